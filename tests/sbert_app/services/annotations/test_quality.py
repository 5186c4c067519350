"""What follows from ratings: agreement, ρ with an interval, a split without a sentence on two sides, a CSV."""

import csv
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from sbert_app.services.annotations import quality
from sbert_app.services.annotations.project import ChosenPair, Project, ProjectInfo, Projects
from sbert_app.services.jobs.queue import RunQueue
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.runs.store import RunStore
from training.agreement import krippendorff_alpha
from training.data.load import load_data
from training.errors import InputError
from training.evaluation.metrics import spearman

INFO = ProjectInfo("My pairs", "stsb:dev", "all-MiniLM-L6-v2", "minilm-stsb", 0.5, 0, 1.0)


@pytest.fixture
def project(home, tmp_path):
    """Sixty pairs of STSb dev, judged by their rounded gold scores."""
    data = load_data("stsb:dev", home)
    rows = np.linspace(0, len(data) - 1, 60).astype(int)
    reasons = ("disagree", "threshold", "random")
    pairs = [
        ChosenPair(data.columns[0][row], data.columns[1][row], reasons[i % 3], 0.5, 0.5)
        for i, row in enumerate(rows)
    ]
    projects = Projects(tmp_path)
    project = projects.open(projects.create(INFO, pairs))
    for i, row in enumerate(rows):
        project.rate("Ann", i, round(data.scores[row]))
    return project


@pytest.fixture(scope="module")
def models(home):
    return ModelCache(home)


def test_agreement_is_that_of_the_table(project):
    for i in range(20):
        project.rate("Ben", i, min(5, project.ratings()["Ann"][i] + i % 2))
    found = quality.agreement(project)
    ratings = project.ratings()
    both = np.array([[ratings[name][i] for i in range(20)] for name in ("Ann", "Ben")], dtype=float)
    assert found.judged == {"Ann": 60, "Ben": 20} and found.shared == 20
    assert found.alpha == pytest.approx(krippendorff_alpha(both))
    assert found.between["Ann", "Ben"][1] == 20 and found.between["Ann", "Ben"][0] > 0.8


def test_disagreements_are_listed_by_size_to_raters_who_judged_the_pair(project):
    first = project.ratings()["Ann"]
    for i in range(12):
        project.rate("Ben", i, first[i] if i < 9 else min(5, first[i] + 1))
    project.rate("Ben", 3, 5 - first[3] if first[3] not in (2, 3) else 5)
    project.rate("Ben", 20, None)
    found = quality.disagreements(project, "Ben")
    assert found[0].pair == 3 and found[0].difference == max(each.difference for each in found)
    assert {each.pair for each in found} == {3} | {i for i in (9, 10, 11) if first[i] < 5}
    assert found == quality.disagreements(project, "Ann")
    assert quality.disagreements(project, "Cem") == [], (
        "who has judged nothing sees no rating of others"
    )
    confusion = quality.agreement(project).confusion
    assert confusion.sum() == 12 and confusion[first[3], project.ratings()["Ben"][3]] == 1


@pytest.fixture
def three_raters(project):
    """The project after Ben and Cem have judged 20 of its pairs, too."""
    ratings = project.ratings()["Ann"]
    for i in range(20):
        project.rate("Ben", i, min(5, ratings[i] + i % 2))
        project.rate("Cem", i, max(0, ratings[i] - i % 3))
    return project


def shared_ratings(project) -> np.ndarray:
    """The ratings of Ann, Ben and Cem, a row each, of the 20 pairs that all have judged."""
    ratings = project.ratings()
    return np.array(
        [[ratings[name][i] for i in range(20)] for name in ("Ann", "Ben", "Cem")], dtype=float
    )


def test_one_rater_alone_has_no_correlation_and_no_ceiling(project):
    assert quality.rater_correlations(project) == {}
    assert quality.ceiling(project) is None


def test_each_rater_is_correlated_with_the_mean_of_the_others(three_raters):
    table = shared_ratings(three_raters)
    found = quality.rater_correlations(three_raters)
    assert found["Ben"] == pytest.approx(100 * spearman(table[1], table[[0, 2]].mean(axis=0)))
    assert list(found) == ["Ann", "Ben", "Cem"]


def test_the_ceiling_is_that_of_the_mean_of_the_raters(three_raters):
    table = shared_ratings(three_raters)
    # Spearman–Brown, with 3 ratings of 20 pairs and 1 of 40, whose mean has the error of 1.3
    # ratings.
    r = np.mean(
        [spearman(table[0], table[1]), spearman(table[0], table[2]), spearman(table[1], table[2])]
    )
    k = 60 / (20 / 3 + 40 / 1)
    ceiling = quality.ceiling(three_raters)
    assert ceiling.value == pytest.approx(100 * np.sqrt(k * r / (1 + (k - 1) * r)))
    assert ceiling.low < ceiling.value < ceiling.high <= 100


def test_the_interval_of_the_ceiling_is_as_wide_as_ceilings_differ(project, monkeypatch):
    random = np.random.default_rng(0)
    ceilings = []
    for _ in range(50):
        truth = random.uniform(0, 5, 60)
        scores = np.clip(np.round(truth + random.normal(0, 1.6, (3, 60))), 0, 5).astype(int)
        ratings = {
            name: dict(enumerate(row.tolist())) for name, row in zip("abc", scores, strict=True)
        }
        monkeypatch.setattr(Project, "ratings", lambda self, ratings=ratings: ratings)
        ceilings.append(quality.ceiling(project))
    width = 2 * 1.96 * np.std([ceiling.value for ceiling in ceilings])
    assert np.mean([ceiling.high - ceiling.low for ceiling in ceilings]) == pytest.approx(
        width, rel=0.25
    )


def test_model_quality_has_intervals_for_all_and_for_random_pairs(project, models):
    found = quality.model_quality(project, models, "all-MiniLM-L6-v2")
    assert found.rho.low < found.rho.value < found.rho.high
    assert 60 < found.rho.value < 100 and found.pairs == 60
    assert found.random_pairs == 20 and found.random.low < found.random.value < found.random.high
    more = quality.expected_margin(found.pairs + found.more_pairs) / quality.expected_margin(
        found.pairs
    )
    assert more == pytest.approx(0.5)


@pytest.fixture
def answers(project, tmp_path):
    """The same pairs, which Ann and Ben judge by yes and no: they differ on every fifth."""
    projects = Projects(tmp_path)
    answers = projects.open(
        projects.create(replace(INFO, name="Answers", is_binary=True), project.pairs)
    )
    for i, score in project.ratings()["Ann"].items():
        yes = score >= 3
        answers.rate("Ann", i, 5 * yes)
        answers.rate("Ben", i, 5 * (yes ^ (i % 5 == 0)))
    return answers


def test_yes_no_agreement_has_wilsons_interval_and_nominal_alpha(answers):
    found = quality.agreement(answers)
    assert found.equal == pytest.approx((80, 68.2, 88.2), abs=0.1)
    ratings = answers.ratings()
    table = np.array(
        [[ratings[name][i] for i in range(60)] for name in ("Ann", "Ben")], dtype=float
    )
    assert found.alpha == pytest.approx(krippendorff_alpha(table, "nominal"))
    for i in range(30):
        answers.rate("Cem", i, ratings["Ann"][i])
    # Of three raters one differs: one in three pairs of answers is equal.
    assert quality.agreement(answers).equal.value == pytest.approx(100 * (48 + 6 / 3) / 60)


def test_yes_no_ratings_measure_a_model_by_average_precision_and_f1(answers, models):
    gold = quality.joint_ratings(answers)
    assert len(gold) == 48, "as many say yes as no on the other 12"
    found = quality.answer_quality(answers, models, "all-MiniLM-L6-v2")
    assert list(found) == ["all judged pairs", "drawn at random"]
    decision = found["all judged pairs"]
    precision = decision.average_precision
    f1 = decision.choices[0].f1
    pairs = [(answers.pairs[i].first, answers.pairs[i].second) for i in gold]
    scores = quality.score_pairs(models, "all-MiniLM-L6-v2", pairs)
    assert precision.value == pytest.approx(
        average_precision_score(np.array(list(gold.values())) == 5, scores)
    )
    assert precision.low < precision.value < precision.high and f1.low <= f1.value <= f1.high
    assert (decision.n, decision.matches) == (
        48,
        list(gold.values()).count(5),
    ) and decision.choices[0].is_held_out
    for i in range(60):
        for rater in ("Ann", "Ben"):
            answers.rate(rater, i, 5)
    with pytest.raises(InputError, match="the same rating"):
        quality.answer_quality(answers, models, "all-MiniLM-L6-v2")


def test_too_few_or_equal_ratings_are_no_measure(project, models):
    empty = replace(project, folder=project.folder.parent)
    with pytest.raises(InputError, match="0 pairs are judged; from 10 on"):
        quality.model_quality(empty, models, "all-MiniLM-L6-v2")
    for i in range(60):
        project.rate("Ann", i, 3)
    with pytest.raises(InputError, match="the same rating"):
        quality.model_quality(project, models, "all-MiniLM-L6-v2")


@given(st.integers(0, 1_000), st.integers(40, 90))
def test_no_sentence_is_in_two_parts_and_no_pair_is_lost(seed, count):
    random = np.random.default_rng(seed)
    rows = [
        (f"s{random.integers(count * 2)}", f"t{random.integers(count * 2)}", float(i))
        for i in range(count)
    ]
    try:
        parts = quality.split(rows, seed)
    except InputError:
        return
    sentences = {name: {text for row in part for text in row[:2]} for name, part in parts.items()}
    assert (
        not sentences["train"] & sentences["dev"] and not sentences["train"] & sentences["held-out"]
    )
    assert not sentences["dev"] & sentences["held-out"]
    assert sorted(row for part in parts.values() for row in part) == sorted(rows)


def test_pairs_are_split_into_train_dev_and_held_out_parts():
    parts = quality.split([(f"a{i}", f"b{i}", 1.0) for i in range(100)], 0)
    assert {name: len(part) for name, part in parts.items()} == {
        "train": 60,
        "dev": 20,
        "held-out": 20,
    }


def test_pairs_that_share_too_many_sentences_cannot_be_split():
    with pytest.raises(InputError, match="too many of the judged pairs share sentences"):
        quality.split([("the same", f"b{i}", 1.0) for i in range(50)], 0)
    with pytest.raises(InputError, match="training needs 40 at least"):
        quality.split([(f"a{i}", f"b{i}", 1.0) for i in range(39)], 0)


def test_a_run_is_queued_with_the_parts_and_remembers_its_held_out_pairs(
    project, tmp_path, monkeypatch
):
    jobs = RunQueue(RunStore(tmp_path))
    monkeypatch.setattr(jobs, "start_workers", lambda: None)
    assert quality.last_training(project) is None
    run = quality.start(project, jobs)
    training = quality.last_training(project)
    train, dev = (load_data(name) for name in (run.config.train_data, run.config.eval_data))
    assert (len(train), len(dev), len(training.held_out)) == (training.train, training.dev, 12)
    seen = {text for data in (train, dev) for column in data.columns for text in column}
    assert not seen & {text for row in training.held_out for text in row[:2]}
    assert max(train.scores) <= 5 and run.config.base == INFO.model and training.run == run.id


def test_before_and_after_are_measured_on_the_held_out_pairs(project, models):
    rows = [
        (pair.first, pair.second, float(score))
        for pair, score in zip(project.pairs, range(60), strict=True)
    ]

    class RunIsTheBase:
        def get(self, name, type_):
            return models.get("all-MiniLM-L6-v2", type_)

    result = quality.compare(quality.Training("x", "all-MiniLM-L6-v2", 1, 1, rows), RunIsTheBase())
    assert result.before.value == pytest.approx(result.after.value) and result.pairs == 60
    assert result.difference.points == pytest.approx(0)
    answers = [(*texts, 5.0 * (score >= 30)) for *texts, score in rows]
    result = quality.compare(
        quality.Training("x", "all-MiniLM-L6-v2", 1, 1, answers), RunIsTheBase(), is_binary=True
    )
    pairs = [tuple(texts) for *texts, _ in answers]
    expected = average_precision_score(
        [score == 5 for *_, score in answers],
        quality.score_pairs(models, "all-MiniLM-L6-v2", pairs),
    )
    assert result.before.value == pytest.approx(
        100 * expected
    ) and result.difference.points == pytest.approx(0)


def test_an_agreed_score_replaces_the_mean_in_the_csv(project, tmp_path):
    project.rate("score", 0, 1)
    project.agree("Ben", 1, 1)
    with quality.export_csv(project, tmp_path / "out" / "x.csv").open(
        encoding="utf-8", newline=""
    ) as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 60
    first = rows[0]
    assert first["sentence1"] == project.pairs[0].first and first["reason"] == "disagree"
    assert first["rater score"] == "1" and rows[1]["rater score"] == ""
    assert float(first["score"]) == (int(first["Ann"]) + 1) / 2 and float(rows[1]["score"]) == 1


def test_no_cell_of_the_csv_is_a_formula(tmp_path):
    projects = Projects(tmp_path)
    pairs = [
        ChosenPair("=cmd|' /C calc'!A0", "＠SUM(1+1)", "random", -0.5, 0.5),
        ChosenPair("-1.5", "x", "random", 0, 0),
    ]
    project = projects.open(projects.create(INFO, pairs))
    for rater in ("=HYPERLINK(1)", "+Ann"):
        project.rate(rater, 0, 3)
    with quality.export_csv(project, tmp_path / "x.csv").open(encoding="utf-8", newline="") as file:
        header, first, second = csv.reader(file)
    assert header[-2:] == ["'+Ann", "'=HYPERLINK(1)"]
    assert first[:2] == ["'=cmd|' /C calc'!A0", "'＠SUM(1+1)"] and second[0] == "-1.5"
    assert first[4] == "-0.5000", "a number is no formula"
