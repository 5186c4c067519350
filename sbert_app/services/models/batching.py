"""Dynamic batching of requests: small jobs of several threads are computed in the same batches.

A pass of the transformer over two short sentences takes nearly as long as over twenty, because the
weights are fetched from memory either way. While one thread computes, the jobs of others queue up,
and the next thread computes all of them at once. A job that arrives alone is computed without
delay.
"""

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from itertools import chain, groupby
from typing import Any, Generic, TypeVar

import torch

from sbert_app.services.access import BATCH, WAITING
from training import parallel
from training.errors import StoppedError
from training.inference.batching import Row
from training.inference.runner import Hidden, InferenceRunner, Reduce, Text

# A job with more tokens fills batches by itself.
SMALL_JOB_TOKENS = 1_024

Request = TypeVar("Request")
Response = TypeVar("Response")
Result = TypeVar("Result")


class DynamicBatcher(Generic[Request, Response]):
    """Calls ``process`` with the requests of all waiting threads, and returns its response to each. Thread-safe.

    ``process`` takes a list of requests and returns their responses in the same order. If it raises
    an error, every thread whose request was in the list raises it.
    """

    def __init__(self, process: Callable[[list[Request]], list[Response]]) -> None:
        self._process = process
        self._processing = threading.Lock()
        self._queue_lock = threading.Lock()
        self._queue: list[tuple[Request, Future[Response]]] = []

    def __call__(self, request: Request) -> Response:
        future: Future[Response] = Future()
        with self._queue_lock:
            self._queue.append((request, future))
        WAITING.inc()
        with self._processing:
            # Another thread may have processed the request by now. Otherwise the request is still
            # in the queue that this thread takes.
            if future.done():
                return future.result()
            with self._queue_lock:
                queue = self._queue
                self._queue = []
            WAITING.dec(len(queue))
            BATCH.observe(len(queue))
            try:
                responses = self._process([request for request, _ in queue])
            except BaseException as error:  # noqa: BLE001 - raised again in each thread
                for _, waiting in queue:
                    waiting.set_exception(error)
            else:
                for (_, waiting), response in zip(queue, responses, strict=True):
                    waiting.set_result(response)
        return future.result()


# The arguments of a call of ``InferenceRunner.map``, and what it yields.
Job = tuple[Sequence[Text], Reduce[Any]]
BatchResults = list[tuple[list[int], Any]]


class BatchingRunner(InferenceRunner[Text]):
    """An ``InferenceRunner`` that computes small jobs of several threads in the same batches."""

    def __init__(self, runner: InferenceRunner[Text]) -> None:
        self.runner = runner
        self.device = runner.device
        self._batcher: DynamicBatcher[Job[Text], BatchResults] = DynamicBatcher(self._compute)

    def batches(self, lengths: list[int], token_budget: int) -> Iterator[list[Row]]:
        return self.runner.batches(lengths, token_budget)

    def hidden(self, texts: Sequence[Text], rows: list[Row]) -> Hidden:
        return self.runner.hidden(texts, rows)

    def map(
        self,
        texts: Sequence[Text],
        reduce: Reduce[Result],
        should_stop: Callable[[], bool] | None = None,
    ) -> Iterator[tuple[list[int], Result]]:
        """Computes a small job in the same batches as those of other threads, and a larger job by itself."""
        # The length of a text is the number of its tokens. A caller that limits the batches does
        # not want other texts in them.
        if sum(map(len, texts)) > SMALL_JOB_TOKENS or self.batch_size is not None:
            yield from super().map(texts, reduce, should_stop)
            return
        if should_stop is not None and should_stop():
            raise StoppedError
        yield from self._batcher((texts, reduce))

    def _compute(self, jobs: list[Job[Text]]) -> list[BatchResults]:
        """The results that ``map`` would have yielded for each job alone."""
        texts: list[Text] = []
        # The position after the last text of each job.
        ends = []
        for part, _ in jobs:
            texts += part
            ends.append(len(texts))

        def compute(rows: list[Row]) -> list[tuple[int, list[int], Any]]:
            """For each job in the batch: its number, the positions of its texts in the job, and the reduced states."""
            # A row lists the texts that share it, by their positions in ``texts``. The hidden
            # states are in the order of ``batch``.
            batch = list(chain.from_iterable(rows))

            # The number of the job to which the text at a place in the batch belongs.
            def job_of(place: int) -> int:
                return bisect_right(ends, batch[place])

            batch_results = []
            with torch.inference_mode():
                hidden, mask = self.hidden(texts, rows)
                # The texts of a job are consecutive in ``texts``, so sorting puts them together.
                by_text = sorted(range(len(batch)), key=batch.__getitem__)
                for number, group in groupby(by_text, job_of):
                    places = list(group)
                    part, reduce = jobs[number]
                    # The position in ``texts`` of the first text of the job.
                    first = ends[number] - len(part)
                    job_mask = None if mask is None else mask[places]
                    result = reduce(hidden[places], job_mask)
                    batch_results.append(
                        (number, [batch[place] - first for place in places], result)
                    )
            return batch_results

        results: list[BatchResults] = [[] for _ in jobs]
        for batch_results in parallel.imap(compute, self.plan([len(text) for text in texts])):
            for number, rows, result in batch_results:
                results[number].append((rows, result))
        return results
