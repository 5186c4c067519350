"""Rows whose scores say nothing, and one reading of a file for all commands."""

from __future__ import annotations

import numpy as np
import pytest
from bag_encoder import BagEncoder
from command_line import read_csv

from sbert_app.services.files.score import score_file
from training.catalogue import SCORED
from training.data.load import load_data
from training.data.transforms import match_labels
from training.errors import InputError


class Reader(BagEncoder):
    """An encoder that knows ASCII, and fails at one text."""

    def is_unknown(self, sentences):
        return [not sentence.isascii() for sentence in sentences]

    def encode(self, sentences, *args, **more):
        vectors = super().encode(sentences, *args, **more)
        vectors[[sentence == "NaN." for sentence in sentences]] = np.nan
        return vectors


@pytest.mark.parametrize(("keep", "scored"), [(False, 2), (True, 3)])
def test_text_of_unknown_tokens_and_vectors_that_are_not_finite_are_noted_and_have_no_score(tmp_path, keep, scored):
    path, output = tmp_path / "pairs.csv", tmp_path / "scored.csv"
    path.write_text("s1,s2,label\nA.,A.,1\n🚀,🐱,0\nNaN.,B.,0\nA.,C.,0\n", encoding="utf-8")
    summary = score_file(path, [output], Reader(), keep_unknown=keep)
    rows = read_csv(output)
    assert [row["note"] for row in rows] == [
        "",
        "no known token in sentence 1 and sentence 2",
        "the model gives no finite vector",
        "",
    ]
    assert [bool(row["cosine"]) for row in rows] == [True, keep, False, True]
    assert (summary.scored, summary.unknown, sum(summary.report.counts)) == (scored, 1, scored)
    assert "1 without a token that the model knows" in summary.sentence


@pytest.mark.parametrize(
    "cells", [["1.0", "0.0", ""], [1, -1, 1], ["similar", "dissimilar", "similar"], [5, 0, "1e308"], ["", "4", "1"]]
)
def test_a_file_has_one_reading_and_so_one_figure(tmp_path, cells):
    path = tmp_path / "pairs.csv"
    rows = [("A cat.", "A cat."), ("A dog.", "Rain."), ("The sun.", "The moon.")]
    lines = [f"{a},{b},{cell}" for (a, b), cell in zip(rows, cells, strict=True)]
    name = "score" if cells[0] in (5, "") else "label"
    path.write_text(f"s1,s2,{name}\n" + "\n".join(lines) + "\n")
    gold = score_file(path, [tmp_path / "scored.csv"], BagEncoder()).gold
    values, bad = gold.read(cells)
    if bad:
        with pytest.raises(InputError, match=r"row 3, column score: '1e308' is not a number"):
            load_data(str(path))
        return
    data = load_data(str(path))
    if data.kind == SCORED:
        assert data.scores == gold.gold(values[~np.isnan(values)]).tolist()
    else:
        assert match_labels(data)[0].tolist() == (values[~np.isnan(values)] == 1).tolist()
    assert gold.read_as in f"{data.notes} read as: scores from 0 to 5"
