"""`results/grid.py`, `table.py`, `results.py`: estimates of models × data, cached results, failures explained."""

import csv
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from paths import linked_home

from sbert_app.figures.evaluation import Point, frontier, quality_and_speed
from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.results.error_analysis import MIN_PAIRS, analyze_errors
from sbert_app.services.results.grid import (
    ResultGrid,
    data_fingerprint,
    evaluate_grid,
    load_scored_pairs,
    make_grid,
    model_fingerprint,
)
from sbert_app.services.results.precomputed import (
    SHIPPED,
    TABLE_1,
    TABLE_2,
    PrecomputedResults,
    System,
    paper_column,
    shipped_scores,
)
from sbert_app.services.results.results import (
    AVERAGE,
    STATISTICS,
    EvalResult,
    Metric,
    averaged,
    data_label,
)
from sbert_app.services.results.table import latex, markdown, rank_models, tabulate
from sbert_app.services.store.documents import read_document
from training.data.dataset import Dataset
from training.data.load import load_data
from training.data.overlap import Overlap
from training.errors import InputError, StoppedError
from training.evaluation.bootstrap import Difference
from training.evaluation.scoring import evaluate
from training.models.model import open_model
from training.names import ModelName
from training.similarities import SIMILARITIES

ROWS = [
    ("A man plays the guitar.", "A man is playing a guitar.", 4.8),
    ("A dog runs.", "The dog does not run.", 1.9),
    ("Stocks fell on Monday.", "A cat sleeps.", 0.0),
    ("Two women dance.", "Two women are dancing.", 5.0),
    ("It is raining.", "The sun shines.", 1.0),
    ("A girl eats an apple.", "A girl eats fruit.", 3.6),
]


@pytest.fixture
def small(tmp_path):
    """A file of six scored pairs."""
    return write(tmp_path / "small.csv", ROWS)


@pytest.fixture
def own_home(tmp_path, home):
    """A home of the test's own, with the real models and data."""
    return linked_home(home, tmp_path / "home")


def write(path: Path, rows) -> str:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("sentence1", "sentence2", "score"), *rows])
    return str(path)


def made(models, data, home):
    return evaluate_grid(make_grid(models, data), ModelCache(home), home, UNWATCHED)


def test_an_estimate_equals_that_of_evaluate(own_home, tmp_path):
    dev = load_data("stsb:dev").select(range(0, 1500, 10))
    file = write(tmp_path / "part.csv", zip(*dev.columns, dev.scores, strict=True))
    grid = made(["all-MiniLM-L6-v2:max"], [file], own_home)
    expected = evaluate(open_model("all-MiniLM-L6-v2", "max"), file)
    for similarity in SIMILARITIES:
        for statistic in STATISTICS:
            figure = grid.estimate("all-MiniLM-L6-v2:max", file, Metric(similarity, statistic))
            assert figure.value == pytest.approx(100 * expected[statistic][similarity], abs=1e-3)
    interval = grid.estimate("all-MiniLM-L6-v2:max", file, Metric())
    assert interval[1:] == pytest.approx(
        [100 * expected["interval"][end] for end in ("low", "high")], abs=1e-3
    )


def test_a_cross_encoder_has_one_score_for_all_metrics(own_home, small):
    grid = made(["minilm-stsb"], [small], own_home)
    assert grid.estimate("minilm-stsb", small, Metric("dot")) == grid.estimate(
        "minilm-stsb", small, Metric()
    )


def test_scores_that_never_vary_have_no_correlation(own_home, tmp_path):
    same = write(tmp_path / "same.csv", [(a, b, 3.0) for a, b, _ in ROWS])
    grid = made(["tfidf"], [same], own_home)
    assert grid.failures["tfidf", same].startswith("undefined: all ")
    assert "nan" not in markdown(tabulate(grid, Metric())).lower()


def test_a_failure_is_explained_and_the_others_continue(own_home, small, tmp_path):
    plain = tmp_path / "plain.csv"
    plain.write_text("sentence1,sentence2\na,b\n")
    grid = made(["run:nowhere", "tfidf", "tfidf:max"], [str(plain), small], own_home)
    assert "here is no run" in grid.failures["run:nowhere", small]
    assert "needs a score or a label" in grid.failures["tfidf", str(plain)]
    assert "leave the pooling out" in grid.failures["tfidf:max", small]
    rho = evaluate(open_model("tfidf"), small)["spearman"]["cosine"]
    assert grid.estimate("tfidf", small, Metric()).value == pytest.approx(100 * rho, abs=1e-6)
    assert grid.done == 6


def test_a_known_result_comes_from_the_cache(own_home, small, monkeypatch):
    first = made(["tfidf"], [small], own_home)
    monkeypatch.setattr(ModelCache, "get", lambda *_: pytest.fail("it was loaded again"))
    again = made(["tfidf"], [small], own_home)
    assert again.results["tfidf", small].from_cache
    assert again.estimate("tfidf", small, Metric()) == first.estimate("tfidf", small, Metric())
    assert again.speed("tfidf") == pytest.approx(first.speed("tfidf"))


def test_fingerprints_depend_on_data_pooling_and_files(own_home, tmp_path):
    data = Dataset("mine", (["a"], ["b"]), scores=[1.0])
    other = Dataset("mine", (["a"], ["b"]), scores=[2.0])
    assert data_fingerprint(data) != data_fingerprint(other)
    model = [
        model_fingerprint(ModelName.parse(name), own_home)
        for name in ("all-MiniLM-L6-v2", "minilm-stsb")
    ]
    assert (
        model[0] != model_fingerprint(ModelName.parse("all-MiniLM-L6-v2:cls"), own_home) != model[1]
    )
    file = tmp_path / "vectors.txt"
    file.write_text("man 1 2\n")
    before = model_fingerprint(ModelName(str(file)), own_home)
    time.sleep(0.02)
    file.write_text("man 1 3\n")
    assert model_fingerprint(ModelName(str(file)), own_home) != before


def test_a_stop_keeps_the_results_so_far(own_home, small, tmp_path):
    other = write(tmp_path / "other.csv", ROWS[::-1])
    grid = make_grid(["tfidf"], [small, other])
    with pytest.raises(StoppedError):
        evaluate_grid(
            grid, ModelCache(own_home), own_home, Watch(should_stop=lambda: bool(grid.results))
        )
    assert list(grid.results) == [("tfidf", small)]


def test_nothing_and_too_much_are_refused(own_home, small, monkeypatch):
    with pytest.raises(InputError, match="at least one model"):
        make_grid([], ["stsb:test"])
    with pytest.raises(InputError, match="at least one data set"):
        make_grid(["tfidf"], [])
    with pytest.raises(InputError, match="choose fewer"):
        make_grid([f"run:{i}" for i in range(30)], ["stsb:test", "stsb:dev", "sts12", "sts13"])
    monkeypatch.setattr("sbert_app.services.results.grid.MAX_PAIRS", 5)
    with pytest.raises(InputError, match="python -m sbert_app evaluate"):
        load_scored_pairs(small, own_home)


def cell(scores, gold, **kind):
    by_each = dict.fromkeys(SIMILARITIES, np.asarray(scores, dtype=np.float32))
    return EvalResult(by_each, np.asarray(gold, dtype=float), 10, 0.1, **kind)


@pytest.fixture
def three():
    """A grid with a good model, an equally good one, and a bad one."""
    random = np.random.default_rng(0)
    gold = random.uniform(0, 5, 400)
    grid = ResultGrid(["good", "equal", "bad"], ["stsb:test", "mine.csv"])
    grid.sizes = {"stsb:test": 400, "mine.csv": 400}
    for data in grid.data:
        for model, noise in (("good", 0.8), ("equal", 0.8), ("bad", 4.0)):
            grid.results[model, data] = cell(gold + noise * random.standard_normal(400), gold)
    return grid


def test_a_significant_difference_is_described(three):
    found = three.difference("good", "bad", "stsb:test", Metric())
    good, bad = (
        three.results[model, "stsb:test"].estimate(Metric()).value for model in ("good", "bad")
    )
    assert found.points == pytest.approx(good - bad)
    how = f"(95% {found.low:+.1f} to {found.high:+.1f}; paired bootstrap, p < 0.001)"
    words = f"good is {found.points:.1f} points better than bad on STSb {how}"
    assert found.describe("good", "bad", "on STSb") == words
    turned = three.difference("bad", "good", "stsb:test", Metric())
    assert turned.describe("bad", "good", "on STSb") == words


def test_a_difference_within_chance_is_called_not_significant(three):
    found = three.difference("good", "equal", "stsb:test", Metric())
    assert found.p_value > 0.05
    assert "do not differ significantly" in found.describe("good", "equal", "on STSb")
    good = three.results["good", "stsb:test"].statistic(Metric())
    same = Difference.of(good, good)
    assert (same.points, same.p_value) == (0, 1)
    # The test and the interval agree, also where the interval is skewed.
    assert Difference(2.0, 0.1, 6.4).p_value < 0.05 < Difference(2.0, -0.1, 2.2).p_value
    corrected = found.describe("good", "equal", "on STSb", 0.9)
    assert "paired bootstrap, corrected, p = 0.900" in corrected


def test_pairs_that_a_model_was_trained_on_are_left_out_of_every_verdict(three):
    """The table has the figures of all pairs."""
    gold = three.results["bad", "mine.csv"].gold
    learned = np.concatenate([gold[:300], np.random.default_rng(2).uniform(0, 5, 100)])
    three.results["bad", "mine.csv"] = cell(learned, gold)
    whole = three.estimate("bad", "mine.csv", Metric()).value
    three.overlaps["bad", "mine.csv"] = Overlap(
        "mine.csv", "scored pairs", 400, 300, 300, None, frozenset(range(300))
    )
    assert three.estimate("bad", "mine.csv", Metric()).value == whole > 70
    assert abs(three.estimate("bad", "mine.csv", Metric(), unread=True).value) < 30
    assert three.difference("bad", "good", "mine.csv", Metric()).points < 0
    last = rank_models(three, "mine.csv", Metric()).standings[-1]
    assert (last.name, last.tied) == ("bad", False)
    assert "bad" not in tabulate(three, Metric()).best["mine.csv"]
    three.overlaps["bad", "mine.csv"] = replace(
        three.overlaps["bad", "mine.csv"], read=frozenset(range(400))
    )
    assert three.difference("bad", "good", "mine.csv", Metric()) is None


def test_equal_gold_scores_are_named_as_the_reason(own_home, tmp_path):
    file = tmp_path / "constant.csv"
    file.write_text("sentence1,sentence2,score\na cat,a dog,3\na man,a boy,3\nsnow,ice,3\n")
    grid = evaluate_grid(
        make_grid(["tfidf"], [str(file)]), ModelCache(own_home), own_home, UNWATCHED
    )
    assert list(grid.failures.values()) == ["undefined: all gold scores are equal"]


def test_an_average_over_data_sets_is_tested(three):
    assert three.difference("good", "bad", AVERAGE, Metric()).p_value <= 0.002


def test_an_average_leaves_out_dev_data():
    assert averaged(["sts12", "stsb:dev", "stsb:test"]) == ["sts12", "stsb:test"]
    assert averaged(["stsb:test", "stsb:dev"]) == []


def test_what_a_model_was_trained_on_is_marked_and_never_the_best(three):
    """The training part of STSb holds pairs of the SemEval sets."""
    assert tabulate(three, Metric()).best["stsb:test"] <= {"good", "equal"}
    three.models = ["good", "minilm-stsb"]
    three.data = ["sts14", "stsb:test"]
    three.sizes = {"sts14": 400, "stsb:test": 400}
    for data in three.data:
        three.results["good", data] = three.results["bad", "stsb:test"]
        three.results["minilm-stsb", data] = cell(
            three.results["bad", "stsb:test"].gold, three.results["bad", "stsb:test"].gold
        )
    shown = tabulate(three, Metric())
    assert shown.rows[1].trained_on == {"sts14", AVERAGE}
    assert shown.best == {"sts14": {"good"}, "stsb:test": {"minilm-stsb"}, AVERAGE: {"good"}}
    assert markdown(shown).count("†") == 2
    assert "**" in markdown(shown) and r"\textbf" in latex(shown)


def test_rows_of_the_paper_are_shown_for_the_cosine_alone(three):
    table = tabulate(three, Metric(), "Tables 1 and 2")
    assert len(table.paper_rows) == len(TABLE_1) + len(TABLE_2)
    assert AVERAGE not in table.paper_rows[0].estimates, "the paper has no figure for mine.csv"
    assert tabulate(three, Metric(), "none").paper_rows == []
    assert tabulate(three, Metric("dot")).paper_rows == [], "the paper's figures are of the cosine"


def test_rows_of_the_paper_have_the_averages_that_it_prints():
    printed = (61.32, 54.81, 29.19, 65.01, 71.22, 74.89, 76.55, 74.21, 76.68)
    for row, average in zip(TABLE_1, printed, strict=True):
        # SBERT-NLI-base: its seven figures make 74.86, the paper prints 74.89
        assert np.mean(list(row.figures.values())) == pytest.approx(average, abs=0.035)


def test_a_file_is_a_set_of_the_paper_only_with_its_size():
    assert paper_column("/uploads/sts12.csv", 3108) == "sts12"
    assert paper_column("/uploads/sts12.csv", 12) is None
    assert paper_column("sts12", 3108) == "sts12"
    assert paper_column("stsb:dev", 1500) is None


def test_labels_of_data_hide_folders():
    assert data_label("/home/someone/secret/mine.csv") == "mine.csv"
    assert data_label("stsb:test") == "STSb"


def test_text_to_paste_is_well_formed(three):
    three.models = ["good", "=cmd|x<b>_%", "bad"]
    three.data = [*three.data, "uploads/=1+1.csv"]
    three.results["good", "uploads/=1+1.csv"] = three.results["good", "mine.csv"]
    three.results["=cmd|x<b>_%", "stsb:test"] = three.results["equal", "stsb:test"]
    shown = tabulate(three, Metric())
    lines = markdown(shown).splitlines()
    assert {line.replace("\\|", "").count("|") for line in lines} == {len(shown.columns) + 3}
    assert "<b>" not in markdown(shown)
    assert r"\_\%" in latex(shown)
    # Of the columns, the systems, the paper.
    headings = 1 + len({row.made_of for row in shown.system_rows}) + 1
    references = len(shown.system_rows) + len(shown.paper_rows)
    assert latex(shown).count(r"\\") == headings + len(shown.rows) + references


def test_systems_made_here_stand_between_the_models_and_the_paper():
    results = read_document(SHIPPED, PrecomputedResults)
    assert results.estimate("all-MiniLM-L6-v2", "stsb:test", Metric()).value == pytest.approx(
        82.03, abs=0.05
    )
    table = tabulate(results, Metric())
    labels = [row.label for row in table.system_rows]
    assert any("InferSent" in label for label in labels)
    assert "Deep Averaging Network: scratch:dan" in labels
    assert not any("Universal Sentence Encoder" in label for label in labels), (
        "the paper's is another network"
    )
    infersent = table.system_rows[0]
    assert set(infersent.estimates) == {column.name for column in table.columns}  # the average too
    averaged = [
        infersent.estimates[name].value for name in ("sts12", "sts14", "sts16", "stsb:test")
    ]
    assert infersent.estimates["average"].value == pytest.approx(np.mean(averaged))
    assert all(0 < infersent.deviations[name] < 5 for name in infersent.estimates)  # over seeds
    assert not {row.label for row in table.system_rows} & set().union(*table.best.values())
    assert tabulate(results, Metric("dot")).system_rows == []
    assert tabulate(results, Metric(), "none").system_rows == []
    for text in (markdown(table), latex(table)):
        assert "SBERT Lab, trained on 19,666 labelled pairs" in text
        assert text.index("scratch:bilstm") < text.index("Avg. GloVe embeddings")


def test_a_system_is_the_mean_over_seeds_and_data_sets():
    system = System("mine", {"a": [70.0, 72.0], "b": [60.0, 64.0]})
    assert (system.seeds, system.mean(["a"]), system.mean(["a", "b"])) == (2, 71.0, 66.5)
    assert system.deviation(["a", "b"]) == pytest.approx(np.std([65, 68], ddof=1))
    assert System("one", {"a": [70.0]}).deviation(["a"]) is None


def test_nothing_beats_the_frontier_by_more_than_noise():
    models = [
        Point("mean", "encoder", 751, 82),
        Point("max", "encoder", 763, 70),
        Point("cls", "encoder", 774, 71),
    ]
    fast = Point("tfidf", "baseline", 90_000, 68)
    assert [point.label for point in frontier([*models, fast])] == ["mean", "tfidf"]
    slow = Point("cross", "cross-encoder", 100, 88)
    assert [point.label for point in frontier([*models, slow])] == ["cross", "mean"]
    points = [
        Point("a", "encoder", 10, 80),
        Point("b", "encoder", 5, 70),
        Point("c", "encoder", 100, 60),
    ]
    assert [point.label for point in frontier(points)] == ["a", "c"]
    figure = quality_and_speed([*points, Point("<b>x", "paper", 3, 90)], "Spearman")
    assert "&lt;b&gt;x" in figure.to_json().replace("\\u003c", "<").replace("\\u0026", "&")


def test_the_worst_errors_come_first(own_home, tmp_path):
    gold = np.linspace(0, 5, 40)
    scores = gold.copy()
    # The first is far too high, the last far too low.
    scores[0] = 6
    scores[39] = -1
    data = Dataset("mine", ([f"s{i}" for i in range(40)], ["not here"] * 40), scores=gold.tolist())
    found = analyze_errors(cell(scores, gold), data)
    assert (found.over[0].row, found.under[0].row) == (1, 40)
    assert found.over[0].score_rank == 1
    assert found.over[0].gold_rank == 0


def test_slices_partition_the_pairs():
    first = [
        "A man plays.",
        "He doesn’t run.",
        "No dog barks at all in the long dark night of the whole cold winter.",
    ]
    second = [
        "A man plays.",
        "He runs.",
        "Nobody barks at all in the long dark night of the whole cold winter today.",
    ]
    data = Dataset("mine", (first * 5, second * 5), scores=[5.0, 1.0, 3.0] * 5)
    found = analyze_errors(cell(np.arange(15), data.scores), data).slices
    by_name = {(each.by, each.name): each.n for each in found}
    assert by_name["negation", "in neither sentence"] == 5
    assert by_name["negation", "in one of the two"] == 5
    assert by_name["negation", "in both"] == 5
    for by in ("mean length", "negation", "words in common"):
        assert sum(n for (kind, _), n in by_name.items() if kind == by) == 15
    assert all(each.rho is None for each in found if each.n < MIN_PAIRS)


def test_shipped_scores_and_table_state_the_same_speed_of_a_model(home):
    table = read_document(SHIPPED, PrecomputedResults)
    _, results, _ = shipped_scores(home)
    for model, result in results.items():
        if (speed := table.speed(str(model))) is not None:
            assert result.num_sentences / result.seconds == pytest.approx(speed)
    assert set(map(str, results)) & set(table.speeds)


def test_the_overlaps_of_a_grid_are_read_while_another_thread_adds_some():
    grid = ResultGrid(["a", "b"], ["mine.csv"], sizes={"mine.csv": 2})

    class Filling:
        """The rows of an overlap. Another overlap arrives while they are read."""

        def __iter__(self):
            grid.overlaps["b", "mine.csv"] = Overlap("mine.csv", "scored pairs", 2, 0, 0)
            return iter([0])

    grid.overlaps["a", "mine.csv"] = Overlap("mine.csv", "scored pairs", 2, 1, 1, None, Filling())
    assert grid.unread("mine.csv") == [1]
