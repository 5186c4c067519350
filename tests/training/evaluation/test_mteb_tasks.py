"""mteb's tasks on our encoders, without the network: their data is injected, and the figures are those of evaluate."""

import sys

import pytest
from huggingface_hub.errors import HTTPError

from training.data.load import load_data
from training.errors import InputError
from training.evaluation import mteb_tasks
from training.evaluation.mteb_tasks import evaluate_task, find_task, give_data
from training.evaluation.scoring import evaluate
from training.models.model import open_model

pytest.importorskip("mteb")


@pytest.fixture(scope="module")
def stsb():
    """The STS benchmark's task with 300 pairs of it, and the same pairs as we have them."""
    data = load_data("stsb:test").select(range(0, 900, 3))
    task = find_task("STSBenchmark")
    give_data(task, data)
    return task, data


def test_the_sts_benchmark_gives_the_figures_of_evaluate(stsb):
    task, data = stsb
    scorer = open_model("scratch:1x32", dtype="float32")
    counts = []
    answer = evaluate_task(scorer, task, on_progress=lambda done, total: counts.append(done))
    ours = evaluate(scorer, data)
    assert (answer["data"], answer["type"], answer["model"]) == (
        "mteb:STSBenchmark",
        "STS",
        "scratch:1x32",
    )
    assert answer["main_score"] == {
        "cosine_spearman": pytest.approx(ours["spearman"]["cosine"], abs=1e-4)
    }
    scores = answer["scores"]["test"]["default"]
    for measure in ("spearman", "pearson"):
        for similarity in ("cosine", "euclidean", "manhattan"):
            assert scores[f"{similarity}_{measure}"] == pytest.approx(
                ours[measure][similarity], abs=1e-4
            )
    assert counts == [300, 600]


def test_without_the_hub_the_sts_benchmark_is_that_of_the_home_folder(monkeypatch, stsb):
    task = find_task("STSBenchmark")
    monkeypatch.setattr(task, "load_data", unreachable)
    monkeypatch.setattr(mteb_tasks, "load_data", lambda *_, **__: stsb[1])
    assert list(evaluate_task(open_model("scratch:1x32"), task)["scores"]) == ["test"]
    assert len(task.dataset["test"]) == 300


def test_an_unknown_task_and_a_cross_encoder_are_one_sentence(stsb):
    with pytest.raises(InputError, match=r"^mteb has no task 'STSBenchmurk': .*'STSBenchmark'\?$"):
        find_task("STSBenchmurk")
    with pytest.raises(
        InputError, match="minilm-stsb is a cross-encoder; the tasks of mteb need the vectors"
    ):
        evaluate_task(open_model("minilm-stsb"), stsb[0])


def unreachable(**_):
    raise ConnectionError("Couldn't reach the set on the Hub\nin offline mode")


def broken_off(**_):
    # Of the HTTP client that huggingface_hub has.
    raise HTTPError("Couldn't reach the set on the Hub")


@pytest.mark.parametrize("failing", [unreachable, broken_off])
def test_data_that_cannot_be_fetched_is_one_sentence(monkeypatch, failing):
    task = find_task("TwitterURLCorpus")
    monkeypatch.setattr(task, "load_data", failing)
    told = (
        r"the data of mteb:TwitterURLCorpus cannot be fetched: Couldn't reach the set on the Hub$"
    )
    with pytest.raises(InputError, match=told):
        evaluate_task(open_model("scratch:1x32"), task)


def test_without_mteb_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mteb", None)
    with pytest.raises(InputError, match=r'pip install "\.\[mteb\]"'):
        evaluate(open_model("scratch:1x32"), "mteb:STSBenchmark")
