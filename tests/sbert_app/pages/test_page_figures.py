"""All pages: figures in labels and notes are those of the data and the tables that they speak of."""

from pathlib import Path

import pytest

from sbert_app.pages.components.pickers import CROSS_ENCODER_REMARKS
from sbert_app.pages.evaluate import sts
from sbert_app.pages.train import form
from sbert_app.services.results.precomputed import PAPER_SIZES
from training.catalogue import DATA_SETS, DOWNLOADS
from training.data.load import load_data
from training.objectives.base import HELD_OUT
from training.sources.package_index import MPNET
from training.sources.resolve import stsb_folder


@pytest.mark.parametrize(("label", "name"), [*form.TRAIN_DATA, *form.DEV_DATA])
def test_a_choice_of_data_names_its_size(label, name, home):
    head = name.partition(":")[0]
    if head == "stsb":
        assert f"{len(load_data(name, home)):,} scored pairs" in label
    elif head not in ("none", HELD_OUT):
        rows = DATA_SETS[head].splits["train"].rows
        size = (
            f"{rows / 1e6:.1f} million triplets"
            if head == "wiki-sections"
            else f"{rows:,} labelled pairs"
        )
        assert label.endswith(f": {size}")


def test_sizes_and_what_was_seen_of_the_semeval_sets_are_as_stated(home: Path):
    size = f"{MPNET.megabytes} MB"
    assert size in CROSS_ENCODER_REMARKS["mpnet-stsb"]
    assert DOWNLOADS["all-mpnet-base-v2"] == size
    lines = (stsb_folder(home).path / "sts-train.csv").read_text(encoding="utf-8").splitlines()
    years = [line.split("\t")[2] for line in lines]
    assert years.count("2012test") / PAPER_SIZES["sts12"] == pytest.approx(1 / 3, abs=0.03)
    assert years.count("2014") / PAPER_SIZES["sts14"] == pytest.approx(1 / 2, abs=0.03)
    assert "about a third of STS12 and half of STS14" in sts.SEEN_NOTE
