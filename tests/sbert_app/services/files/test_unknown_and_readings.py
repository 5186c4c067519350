"""Rows whose scores say nothing, in `files/score.py`, `evaluation/scoring.py`, thresholds and calibration."""

from dataclasses import replace

import numpy as np
import pytest
from bag_encoder import AnyModel, BagEncoder
from command_line import read_csv

from sbert_app.services.background.watch import UNWATCHED
from sbert_app.services.files.score import score_file
from sbert_app.services.results.carry import advise
from sbert_app.services.results.decisions import decide_results, score_labels
from sbert_app.services.results.grid import ResultGrid, evaluate_one, with_scores
from sbert_app.services.results.results import Metric
from training.catalogue import SCORED
from training.data.dataset import Dataset
from training.data.load import load_data
from training.data.transforms import match_labels
from training.errors import InputError
from training.evaluation.calibration import calibrate
from training.evaluation.scoring import evaluate
from training.names import ModelName


class Reader(BagEncoder):
    """An encoder that knows ASCII, and fails at one text."""

    def is_unknown(self, sentences):
        return [not sentence.isascii() for sentence in sentences]

    def encode(self, sentences, *args, **more):
        vectors = super().encode(sentences, *args, **more)
        vectors[[sentence == "NaN." for sentence in sentences]] = np.nan
        return vectors


@pytest.mark.parametrize(("keep", "scored"), [(False, 2), (True, 3)])
def test_unknown_tokens_and_vectors_that_are_not_finite_are_noted(tmp_path, keep, scored):
    path = tmp_path / "pairs.csv"
    output = tmp_path / "scored.csv"
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
    noted = "1 without a token that the model knows, 1 without a finite score"
    assert noted in summary.sentence


@pytest.mark.parametrize(
    "cells",
    [
        ["1.0", "0.0", ""],
        [1, -1, 1],
        ["similar", "dissimilar", "similar"],
        [5, 0, "1e308"],
        ["", "4", "1"],
    ],
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


@pytest.mark.parametrize(("keep", "n"), [(False, 2), (True, 3)])
@pytest.mark.parametrize("scores", [False, True])
def test_figures_and_thresholds_leave_out_rows_without_a_score(tmp_path, keep, n, scores):
    rows = "s1,s2,label\nA cat.,A cat.,1\n🚀,🐱,0\nNaN.,B.,0\nA dog.,Rain.,0\n"
    path = tmp_path / "pairs.csv"
    path.write_text(
        rows.replace("label", "score").replace(",1", ",4.5") if scores else rows, encoding="utf-8"
    )
    data = load_data(str(path))
    figures = evaluate(Reader(), data, keep_unknown=keep)
    spec = ModelName("tfidf")
    advice = advise(spec, data, lambda name: Reader(), tmp_path, ["best-f1"], keep_unknown=keep)
    unknown = "" if keep else "in 1 there is a text of which bag-of-words knows no token, "
    note = f"{4 - n} of 4 rows are left out: {unknown}in 1 the score by bag-of-words is not a finite number"
    assert (figures["n"], figures["notes"]) == (n, [note])
    assert (advice.decision.decision.n, advice.notes) == (n, (note,))


def test_evaluations_of_several_models_leave_out_what_one_cannot_score(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text(
        "s1,s2,label\nA cat.,A cat.,1\n🚀,🐱,0\nB C.,B D.,1\nA dog.,Rain.,0\n", encoding="utf-8"
    )
    data = load_data(str(path))
    spec = ModelName("tfidf")
    models = AnyModel(Reader())
    models.home = tmp_path
    result = evaluate_one(spec, with_scores(data), models, UNWATCHED)
    assert result.left_out == [1]
    other = replace(result, scores={"cosine": np.zeros(4, dtype=np.float32)})
    decisions = decide_results({spec: result, ModelName("glove"): other}, data, ["best-f1"])
    assert [model.on_data.decision.n for model in decisions.models] == [3, 3]
    assert decisions.left_out == [
        "1 pair left out for all models: TF-IDF knows no token of a text or gives no finite score"
    ]
    grid = ResultGrid(
        ["tfidf"], ["pairs.csv"], {("tfidf", "pairs.csv"): result}, sizes={"pairs.csv": 4}
    )
    assert grid.unread("pairs.csv") == [0, 2, 3]
    assert not np.isnan(grid.estimate("tfidf", "pairs.csv", Metric()).value)
    assert grid.left_out[0].endswith(
        "1 pair left out, of which it knows no token of a text or gives no finite score"
    )


def test_triplets_labels_and_calibrations_leave_out_rows_without_a_score():
    texts = ["A cat.", "A dog.", "🚀"]
    triplets = evaluate(Reader(), Dataset("mine", (texts, texts, ["Rain."] * 3)))
    labels = score_labels(
        Reader(), Dataset.from_pairs(texts, ["A cat.", "Rain.", "🐱"], labels=["1", "0", "0"])
    )
    for n, [note] in ((triplets["n"], triplets["notes"]), (labels.n, labels.notes)):
        assert n == 2
        assert note.startswith("1 of 3 rows are left out")
    rows = [(f"A cat {n}.", f"A cat {n % 7}.", n % 5) for n in range(60)] + [("🚀", "🐱", 1)]
    first, second, scores = zip(*rows, strict=True)
    assert calibrate(Reader(), Dataset.from_pairs(first, second, scores)).pairs == 60


def test_data_without_any_score_cannot_be_measured():
    data = Dataset("mine", (["🚀", "🐱"], ["A.", "B."]), scores=[1.0, 2.0])
    with pytest.raises(InputError, match="nothing can be measured: 2 of 2 rows are left out"):
        evaluate(Reader(), data)
