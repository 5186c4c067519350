"""Thresholds: how they are chosen, on what they are measured, their intervals; equal to libraries where they agree."""

import itertools
import json

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import average_precision_score, f1_score, precision_score, recall_score

from scripts.measure_thresholds import FORECASTS, Kind, join
from training.data.dataset import Dataset
from training.data.transforms import match_labels
from training.errors import InputError
from training.evaluation.bootstrap import Estimate, sentence_keys
from training.evaluation.match_scores import BEST_F1, INTERVAL_FROM, TEST_ERROR, Criterion
from training.evaluation.metrics import classify_pairs, precision_recall
from training.evaluation.thresholds import CRITERIA, MOST_CRITERIA, choose_threshold, decide, halves


def drawn(n: int = 600, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Scores of matches around 0.8 and of others around 0.5."""
    random = np.random.default_rng(seed)
    matches = random.random(n) < 0.4
    return np.where(matches, random.normal(0.8, 0.12, n), random.normal(0.5, 0.15, n)), matches


def beta_drawn(n: int = 600, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Scores of matches and of others that overlap less, and are skewed."""
    random = np.random.default_rng(seed)
    matches = random.random(n) < 0.5
    return np.where(matches, random.beta(8, 2, n), random.beta(3, 5, n)), matches


MODELS = {"normal": drawn, "beta": beta_drawn}


def test_the_best_f1_is_chosen_on_one_half_and_measured_on_the_other():
    """With scikit-learn as the referee, also of the average precision, which is that of all pairs."""
    scores, matches = drawn()
    chosen_on, reported_on = halves(matches, seed=0)
    assert not set(chosen_on) & set(reported_on)
    assert abs(matches[chosen_on].sum() - matches[reported_on].sum()) <= 1
    decision = decide(scores, matches)
    assert decision == decide(scores, matches)
    assert decision.average_precision.value == pytest.approx(
        average_precision_score(matches, scores)
    )
    choice = decision.choice(BEST_F1)
    assert choice.threshold.value == classify_pairs(scores[chosen_on], matches[chosen_on]).threshold
    above = scores[reported_on] >= choice.threshold.value
    truth = matches[reported_on]
    figures = (choice.precision.value, choice.recall.value, choice.f1.value)
    assert figures == pytest.approx(
        tuple(f(truth, above) for f in (precision_score, recall_score, f1_score))
    )
    assert (choice.chosen_on, choice.measured_on, choice.is_held_out) == (301, 299, True)
    [given] = decide(scores, matches, ("0.7",)).choices
    assert (given.chosen_on, given.measured_on, given.is_held_out) == (0, 600, False)
    assert given.precision.value == pytest.approx(precision_score(matches, scores >= 0.7))


class TestPrecision:
    @pytest.mark.parametrize(
        ("n", "is_shared", "least"),
        [(4_000, False, 36), (16_000, False, 58), (4_000, True, 24), (16_000, True, 54)],
    )
    def test_it_is_offered_where_it_is_reached_and_holds_in_nine_of_ten(self, n, is_shared, least):
        """A precision of 0.95 that one in four matches reaches, from pairs that may share sentences."""
        precision_at = Kind().precision_at()
        offered = []
        for seed in range(60):
            pairs = Kind().draw(n, np.random.default_rng(seed), is_shared)
            threshold = pairs.choose(Criterion("precision", 0.95)).value
            if not np.isnan(threshold):
                offered.append(precision_at(threshold) >= 0.95)
        assert len(offered) >= least
        assert sum(offered) >= 0.9 * len(offered)

    def test_an_unreachable_precision_is_seldom_offered(self):
        """The hardest case: pairs above every threshold match with a probability just below 0.95."""
        offers = []
        for flat in (0.949, 0.94, 0.93):
            samples = (
                Kind(flat=flat).draw(4_000, np.random.default_rng(seed)) for seed in range(60)
            )
            offers.append(
                sum(
                    not np.isnan(pairs.choose(Criterion("precision", 0.95)).value)
                    for pairs in samples
                )
            )
        assert offers[0] <= 30
        assert offers[1] <= 12
        assert offers[2] <= 6

    def test_more_pairs_come_near_the_highest_recall(self):
        scores, matches = beta_drawn(400_000, seed=10_000)
        best = max(t for t in np.linspace(0.3, 0.9, 121) if matches[scores >= t].mean() < 0.95)
        few, many = (choose_threshold(*beta_drawn(n)) for n in (500, 20_000))
        assert best < many < best + 0.04 < few
        with pytest.raises(
            InputError, match="these 100 pairs reach 95%, but are too few to show that others will"
        ):
            choose_threshold(*beta_drawn(100))

    @pytest.mark.parametrize(("name", "kind", "precision"), FORECASTS)
    def test_the_number_of_missing_pairs_that_is_named_suffices(self, name, kind, precision):
        """In nine of ten samples of 100 to 1,000 pairs."""
        criterion = Criterion("precision", precision)
        enough = []
        for n, seed in itertools.product((100, 300, 1_000), range(60)):
            random = np.random.default_rng(seed)
            pairs = kind.draw(n, random)
            if np.isnan(pairs.choose(criterion).value) and (more := pairs.more_pairs(precision)):
                enough.append(
                    not np.isnan(join(pairs, kind.draw(more, random)).choose(criterion).value)
                )
                assert more == int(float(f"{more:.1e}"))
        if name == "well within reach":
            assert len(enough) >= 10
            assert sum(enough) >= 0.9 * len(enough)
        else:
            assert len(enough) <= 18

    def test_what_is_not_shown_is_offered_as_such(self):
        scores, matches = drawn()
        sure, here = decide(scores, matches, ("precision=0.95",)).choices
        assert (sure.exists, sure.is_tested) == (False, True)
        assert (here.exists, here.is_tested, here.is_held_out) == (True, False, True)
        rows, _ = halves(matches, seed=0)
        above = scores[rows] >= here.threshold.value
        assert matches[rows][above].mean() >= 0.95
        assert above.sum() >= 20

    def test_it_is_chosen_and_measured_on_all_pairs_and_has_no_interval(self):
        scores, matches = beta_drawn(2_000)
        choice = decide(scores, matches, ("precision=0.9",)).choices[0]
        assert choice.threshold.value == choose_threshold(scores, matches, precision=0.9)
        assert np.isnan([choice.threshold.low, choice.threshold.high]).all()
        assert (choice.chosen_on, choice.measured_on, choice.is_held_out) == (2_000, 2_000, False)
        above = scores >= choice.threshold.value
        assert choice.precision.value == pytest.approx(precision_score(matches, above))
        # It passes an exact test.
        assert (
            binomtest(int(matches[above].sum()), int(above.sum()), 0.9, "greater").pvalue
            <= TEST_ERROR
        )
        keys = sentence_keys(
            [["a"] * 1_000 + [f"b{i}" for i in range(1_000)], [f"c{i}" for i in range(2_000)]]
        )
        assert (
            "allows for shared sentences"
            in decide(scores, matches, ("precision=0.9",), keys=keys).interval_method
        )

    def test_what_no_threshold_reaches_is_said_and_not_invented(self):
        scores = np.tile([0.9, 0.8, 0.7, 0.6], 20)
        matches = np.tile([False, True, False, True], 20)
        choice = decide(scores, matches, ("precision=0.95",)).choices[0]
        assert not choice.exists
        assert np.isnan(choice.recall.value)
        assert (
            choice.why_none == "95% is out of reach of these scores, as far as these 80 pairs show"
        )
        with pytest.raises(
            InputError, match=r"precision=0\.95: 95% is out of reach of these scores"
        ):
            choose_threshold(scores, matches)


class TestIntervals:
    def test_they_hold_their_value_and_shrink_with_the_number_of_pairs(self):
        few, many = (decide(*drawn(n), (BEST_F1,)) for n in (300, 4_800))
        for decision in (few, many):
            for estimate in (decision.average_precision, *decision.choices[0].__dict__.values()):
                if isinstance(estimate, Estimate):
                    assert estimate.low <= estimate.value <= estimate.high
        for name in ("precision", "recall", "f1"):
            widths = [
                getattr(each.choices[0], name).high - getattr(each.choices[0], name).low
                for each in (few, many)
            ]
            assert widths[1] < 0.5 * widths[0]

    @pytest.mark.parametrize("n", [20, pytest.param(200, marks=pytest.mark.slow)])
    @pytest.mark.parametrize("model", MODELS)
    def test_nineteen_of_twenty_hold_what_is_true(self, model, n):
        """The average precision in 93% of samples at least, and the precision at a given threshold in 92%."""
        scores, matches = MODELS[model](400_000, seed=10_000)
        truths = (
            precision_recall(scores, matches).average_precision,
            matches[scores >= 0.5].mean(),
        )
        decisions = [
            decide(*MODELS[model](n, seed), ("0.5",)) for seed in range(200 if n == 20 else 100)
        ]
        estimates = [
            (decision.average_precision, decision.choices[0].precision) for decision in decisions
        ]
        coverage = np.mean(
            [
                [each.low <= truths[i] <= each.high for i, each in enumerate(row)]
                for row in estimates
            ],
            0,
        )
        assert (coverage >= (0.93, 0.92)).all()

    @pytest.mark.slow
    @pytest.mark.parametrize(("model", "n"), [("normal", 2 * INTERVAL_FROM), ("beta", 1_000)])
    def test_the_threshold_of_the_best_f1_is_in_its_interval(self, model, n):
        """In nine samples of ten; the highest F1 is that of all pairs of the kind."""
        truth = classify_pairs(*MODELS[model](400_000, seed=10_000)).threshold
        thresholds = [
            decide(*MODELS[model](n, seed), (BEST_F1,)).choices[0].threshold for seed in range(60)
        ]
        assert sum(threshold.low <= truth <= threshold.high for threshold in thresholds) >= 54

    def test_few_pairs_have_no_interval_or_a_wide_one(self):
        few, many = (
            decide(*drawn(2 * n), (BEST_F1,)).choices[0].threshold for n in (100, INTERVAL_FROM)
        )
        assert np.isnan(few.low)
        assert many.low <= many.value <= many.high
        # Of 5 pairs above 0.9 all are matches: Wilson's lower limit of 5 of 5.
        scores = np.array([0.95] * 5 + [0.5] * 20)
        choice = decide(scores, np.arange(25) < 10, ("0.9",)).choices[0]
        assert choice.precision == pytest.approx(
            (1.0, binomtest(5, 5).proportion_ci(method="wilson").low, 1.0)
        )


def test_criteria_are_read_as_written_and_anything_else_is_refused():
    for text in ("best-f1", "precision=0.95", "0.8", "-0.25"):
        assert str(Criterion.parse(text)) == text
    for text in (
        "",
        "f2",
        "precision",
        "precision=0",
        "precision=1",
        "precision=x",
        "nan",
        "best-f1=1",
    ):
        with pytest.raises(InputError, match=r"must be best-f1, precision=0\.95"):
            Criterion.parse(text)


def test_labels_and_gold_scores_say_what_is_a_match():
    pairs = (["a", "b", "c"], ["c", "d", "e"])
    matches, meaning = match_labels(
        Dataset(
            "nli", pairs, labels=[0, 1, 2], label_names=("entailment", "neutral", "contradiction")
        )
    )
    assert matches.tolist() == [True, False, False]
    assert meaning == "entailment is a match, neutral and contradiction are not"
    matches, meaning = match_labels(
        Dataset("mine", pairs, labels=[1, 0, 1], label_names=("0", "1"))
    )
    assert (matches.tolist(), meaning) == ([True, False, True], "1 is a match, 0 is not")
    scored = Dataset("mine", pairs, scores=[4.0, 3.9, 0.0])
    assert match_labels(scored)[0].tolist() == [True, False, False]
    matches, meaning = match_labels(scored, 3.5)
    assert matches.tolist() == [True, True, False]
    assert meaning == "a gold score of at least 3.5 (of 5) is a match"


@pytest.mark.parametrize(
    ("gold", "message"),
    [
        ({}, "mine holds pairs; a threshold needs pairs with labels or gold scores"),
        ({"scores": [5.0]}, "mine has only matches"),
        ({"scores": [1.0]}, "mine has no matches"),
    ],
)
def test_data_that_says_nothing_is_refused(gold, message):
    with pytest.raises(InputError, match=message):
        match_labels(Dataset("mine", (["a"], ["b"]), **gold))


def test_the_answer_is_plain_json_of_no_more_criteria_than_allowed():
    values = decide(*drawn()).to_dict()
    assert json.loads(json.dumps(values))["choices"][0]["threshold"]["low"] > 0
    assert list(dict.fromkeys(each["criterion"] for each in values["choices"])) == list(CRITERIA)
    assert "curve" not in values
    scores = np.array([0.1, 0.9])
    matches = np.array([False, True])
    assert len(decide(scores, matches, ["0.5"] * MOST_CRITERIA).choices) == MOST_CRITERIA
    with pytest.raises(InputError, match="2,000 thresholds are asked for; at most 20"):
        decide(scores, matches, ["0.5"] * 2_000)
