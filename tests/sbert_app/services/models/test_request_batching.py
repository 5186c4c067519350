"""`models/batching.py`: waiting requests are processed together, and each thread gets its own response."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import ARCHITECTURES, make_model
from transformers import AutoModel
from waiting import wait_until

from sbert_app.services.models.batching import SMALL_JOB_TOKENS, BatchingRunner, DynamicBatcher
from sbert_app.services.models.cache import ModelCache
from training.errors import StoppedError
from training.inference.runner import InferenceRunner, build_runner


def test_waiting_requests_are_batched_and_each_gets_its_response():
    batches: list[list[int]] = []
    first_is_processed = threading.Event()
    go_on = threading.Event()

    def process(requests: list[int]) -> list[int]:
        batches.append(requests)
        first_is_processed.set()
        go_on.wait(60)
        return [2 * request for request in requests]

    batcher = DynamicBatcher(process)
    with ThreadPoolExecutor(9) as threads:
        first = threads.submit(batcher, 0)
        first_is_processed.wait(60)
        others = [threads.submit(batcher, request) for request in range(1, 9)]
        wait_until(lambda: len(batcher._queue) == 8)
        go_on.set()
        assert first.result() == 0
        assert [other.result() for other in others] == [2 * request for request in range(1, 9)]
    assert batches[0] == [0]
    assert sorted(request for batch in batches for request in batch) == list(range(9))
    assert len(batches) < 9


def test_an_error_reaches_the_caller_and_the_next_request_is_processed():
    batcher = DynamicBatcher(lambda requests: [1 / request for request in requests])
    with pytest.raises(ZeroDivisionError):
        batcher(0)
    assert batcher(4) == 0.25


@pytest.fixture(scope="module", params=["bert", "modernbert"])
def runner(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> InferenceRunner:
    """Packed and padded."""
    assert request.param in ARCHITECTURES
    folder = make_model(tmp_path_factory.mktemp("model"), request.param, initializer_range=0.2)
    return build_runner(AutoModel.from_pretrained(folder).eval(), torch.float32, pad_id=0)


def token_ids(lengths: list[int], seed: int = 0) -> list[list[int]]:
    draw = np.random.default_rng(seed)
    return [draw.integers(5, 100, length).tolist() for length in lengths]


def sums(runner: InferenceRunner, ids: list[list[int]]) -> np.ndarray:
    """One number for each text: the sum of its hidden states."""

    def reduce(hidden: torch.Tensor, mask: torch.Tensor | None) -> np.ndarray:
        return (
            (hidden if mask is None else hidden * mask[..., None]).double().sum(dim=(1, 2)).numpy()
        )

    values = np.full(len(ids), np.nan)
    for rows, batch in runner.map(ids, reduce):
        values[rows] = batch
    return values


@settings(max_examples=8)
@given(jobs=st.lists(st.lists(st.integers(1, 64), min_size=1, max_size=6), min_size=1, max_size=6))
def test_concurrent_jobs_get_what_each_would_get_alone(
    runner: InferenceRunner, jobs: list[list[int]]
):
    batching = BatchingRunner(runner)
    texts = [token_ids(lengths, seed) for seed, lengths in enumerate(jobs)]
    start = threading.Barrier(len(texts))

    def run(ids: list[list[int]]) -> np.ndarray:
        start.wait(30)
        return sums(batching, ids)

    with ThreadPoolExecutor(len(texts)) as threads:
        for values, ids in zip(threads.map(run, texts), texts, strict=True):
            np.testing.assert_allclose(values, sums(runner, ids), atol=1e-3)


def test_large_jobs_are_planned_as_without_batching(runner: InferenceRunner):
    ids = token_ids([60] * (2 * SMALL_JOB_TOKENS // 60))
    np.testing.assert_allclose(sums(BatchingRunner(runner), ids), sums(runner, ids), atol=1e-3)


@pytest.mark.parametrize("count", [1, 100])
def test_jobs_of_any_size_can_be_stopped(runner: InferenceRunner, count: int):
    with pytest.raises(StoppedError):
        list(
            BatchingRunner(runner).map(
                token_ids([60] * count), lambda hidden, mask: None, lambda: True
            )
        )


def test_models_of_the_cache_answer_as_the_plain_models_do(home: Path):
    from training.models.encoder import Encoder

    sentences = ["a dog", "a man is playing a guitar", ""]
    cached = ModelCache(home).get("scratch:1x32", Encoder)
    plain = Encoder.load("scratch:1x32", home=home)
    np.testing.assert_allclose(cached.encode(sentences), plain.encode(sentences), atol=1e-5)
    assert isinstance(cached.with_pooling("max").inference, BatchingRunner)
