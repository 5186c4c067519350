"""Quality against size: the figures are those of the vectors that are stored, every size is there."""

import dataclasses

import numpy as np
import pytest
from scipy import stats
from sentence_transformers.util import quantize_embeddings

from sbert_app.services.background.watch import Watch
from sbert_app.services.results import cost
from sbert_app.services.results.cost import measure_cost
from training.data.dataset import Dataset
from training.data.load import load_data
from training.errors import InputError, StoppedError
from training.evaluation.bootstrap import Estimate, correlation, sentence_keys
from training.models.encoder import Encoder
from training.models.lexical import TfIdf


@pytest.fixture(scope="module")
def pairs(home):
    return load_data("stsb:dev", home).select(range(150))


@pytest.fixture(scope="module")
def encoder(home):
    return Encoder.load("all-MiniLM-L6-v2", dtype="float32", home=home)


@pytest.fixture(scope="module")
def table(encoder, pairs):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost, "SEARCHED", 500)
        return measure_cost(encoder, pairs)


def test_every_size_is_measured_the_largest_first(table):
    assert table.dimensions == [384, 256, 128, 64, 32]
    assert len(table.cells) == 5 * 4
    assert [table.cell(384, name).bytes for name in ("float32", "bfloat16", "int8", "ubinary")] == [
        1536,
        768,
        384,
        48,
    ]
    assert table.cell(32, "ubinary").bytes == 4
    assert all(
        cell.milliseconds > 0 and cell.rho.low <= cell.rho.value <= cell.rho.high
        for cell in table.cells
    )
    assert "core" in table.machine


def test_binary_vectors_are_scored_as_those_of_sentence_transformers(table, encoder, pairs):
    u, v = (encoder.encode(column) for column in pairs.columns)
    full = table.cells[0]
    assert full.rho.value == pytest.approx(
        100 * stats.spearmanr((u * v).sum(1), pairs.scores)[0], abs=1e-3
    )
    assert (full.change.value, full.change.low, full.change.high) == (0, 0, 0)
    bits = [
        np.unpackbits(quantize_embeddings(vectors[:, :128], "ubinary"), axis=1)
        for vectors in (u, v)
    ]
    scores = (bits[0] == bits[1]).mean(axis=1)
    cell = table.cell(128, "ubinary")
    assert cell.rho.value == pytest.approx(100 * stats.spearmanr(scores, pairs.scores)[0], abs=1e-6)
    expected = correlation(
        scores, np.array(pairs.scores), keys=sentence_keys(pairs.columns)
    ).estimate(100)
    assert cell.rho == pytest.approx(expected, abs=1e-6)


def test_pairs_of_unknown_text_are_left_out_and_counted(table, encoder, pairs, monkeypatch):
    monkeypatch.setattr(cost, "SEARCHED", 500)
    emoji = ([*pairs.columns[0], "🦄"], [*pairs.columns[1], "🐉🐉"])
    costs = measure_cost(
        encoder, dataclasses.replace(pairs, columns=emoji, scores=[*pairs.scores, 0.0])
    )
    assert (costs.n, costs.sentences) == (table.n, table.sentences)
    assert [cell.rho for cell in costs.cells] == [cell.rho for cell in table.cells]
    assert costs.note.startswith("1 of 151 rows are left out")
    assert table.note == ""


def test_the_smallest_that_is_shown_to_come_near(table):
    """The interval of its change lies above the margin: these pairs need not show that of a size with a higher ρ."""
    near = table.smallest_within(1.0)
    assert near.change.low >= -1
    assert all(cell.change.low < -1 for cell in table.cells if cell.bytes < near.bytes)
    unsure = [
        dataclasses.replace(cell, change=Estimate(0.5, -1.1, 2.0)) for cell in table.cells[1:]
    ]
    assert dataclasses.replace(table, cells=(table.cells[0], *unsure)).smallest_within(1.0) is None


def test_models_without_vectors_and_data_without_scores_are_refused(encoder, pairs):
    with pytest.raises(
        InputError, match="tfidf is a sparse encoder, without dense sentence vectors"
    ):
        measure_cost(TfIdf(), pairs)
    with pytest.raises(InputError, match="needs a score or a label"):
        measure_cost(encoder, Dataset("mine", (["a"], ["b"])))
    with pytest.raises(StoppedError):
        measure_cost(encoder, pairs, Watch(should_stop=lambda: True))
