"""A soak: several users, training runs and bulk jobs on one app for half an hour, and the memory that it holds.

Each user calls ``compare``, ``encode``, ``search``, ``/v1/embeddings``, the list of runs and a page
in turn, with sentences of the STS benchmark that differ from one request to the next. Beside them
one training run follows the other, and one file of pairs after the other is uploaded and scored.
The memory of the app and of its worker, the threads and the open files of the app are read twice a
minute. Memory does not depend on how busy the machine is.
"""

import json
import statistics
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import psutil

from benchmarks import machine
from benchmarks.bulk import write_pairs
from benchmarks.start_up import copy_home, process_of, started
from scripts.running import end_workers
from training.data.load import load_data

MODEL = {"model": "all-MiniLM-L6-v2", "pooling": "mean"}
# The memory after this time is compared with the memory at the end, in minutes.
SETTLED_MINUTES = 5.0
# Points of the curve.
POINTS = 60
RUN_STEPS = 300
# A user waits for this time after each round of requests.
THINKING_SECONDS = 0.2
TIMEOUT = 600.0
# At the end, requests that are under way may take this time.
LAST_ANSWERS_SECONDS = 10.0


def run(minutes: float = 30, users: int = 8, bulk_rows: int = 5_000) -> dict[str, Any]:
    """Megabytes over time, and how the end compares with `SETTLED_MINUTES`.

    Args:
        minutes: the length of the soak. If it is shorter than 10 minutes, its end is compared with
            its middle.
        users: who send requests at the same time.
        bulk_rows: of the file that is scored again and again.
    """
    about = machine.describe()
    with tempfile.TemporaryDirectory() as folder:
        home = copy_home(Path(folder) / "home")
        pairs = Path(folder) / "pairs.csv"
        write_pairs(pairs, bulk_rows)
        try:
            with started(["app.py", "--home", str(home), "--port"]) as (_, url):
                soak = _Soak(url, pairs)
                curve = soak.run(60 * minutes, users)
        finally:
            end_workers(home)
        temporary_files = [file for file in (home / "tmp").rglob("*") if file.is_file()]
        temporary_size = sum(file.stat().st_size for file in temporary_files)
    settled = 60 * min(SETTLED_MINUTES, minutes / 2)
    return {
        "benchmark": "soak",
        "minutes": minutes,
        "users": users,
        **compare(curve, settled),
        "answers": dict(sorted(soak.answers.items())),
        "failed": dict(sorted(soak.failures.items())),
        "temporary_mb_at_the_end": temporary_size >> 20,
        "curve": curve,
        "machine": about,
    }


def compare(curve: list[dict[str, Any]], settled: float) -> dict[str, Any]:
    """The memory after ``settled`` seconds and at the end, as medians of five points: a single one may be a peak."""
    after = [point for point in curve if point["seconds"] >= settled][:5]
    first = statistics.median(point["app_mb"] for point in after)
    last = statistics.median(point["app_mb"] for point in curve[-5:])
    return {
        "settled_after_minutes": round(settled / 60, 1),
        "settled_mb": first,
        "end_mb": last,
        "growth_percent": round(100 * (last / first - 1), 1),
        "peak_mb": max(point["app_mb"] for point in curve),
    }


class _Soak:
    """Users, a run and a bulk job on the app at ``url``."""

    def __init__(self, url: str, pairs: Path) -> None:
        self.url = url
        self.pairs = pairs
        # The numbers of answers and of failures by the name of the step.
        self.answers: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self._ended = threading.Event()
        self._texts = [text for column in load_data("stsb:train").columns for text in column]

    def run(self, seconds: float, users: int) -> list[dict[str, Any]]:
        """Keeps everything busy for this time. Returns the memory curve."""
        work = [self._keep(self._requests(number)) for number in range(users)]
        work += [self._keep(self._training()), self._keep(self._bulk())]
        for thread in work:
            thread.start()
        curve = []
        started_at = time.monotonic()
        for point in range(POINTS + 1):
            next_point = started_at + seconds * point / POINTS
            self._ended.wait(max(0.0, next_point - time.monotonic()))
            curve.append({"seconds": round(time.monotonic() - started_at), **self._memory()})
        self._ended.set()
        deadline = time.monotonic() + LAST_ANSWERS_SECONDS
        for thread in work:
            thread.join(max(0.0, deadline - time.monotonic()))
        return curve

    def _keep(self, steps: Iterator[tuple[str, Callable[[], object]]]) -> threading.Thread:
        """A thread that takes one step after the other, and counts them."""

        def work() -> None:
            while not self._ended.is_set():
                name, step = next(steps)
                try:
                    step()
                except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
                    # The app is stopped while the last requests are under way.
                    if not self._ended.is_set():
                        self.failures[f"{name}: {error}"] += 1
                else:
                    self.answers[name] += 1

        return threading.Thread(target=work, daemon=True)

    def _requests(self, user: int) -> Iterator[tuple[str, Callable[[], object]]]:
        """The requests of a user, one after the other, with a pause."""
        texts = self._texts
        for turn in count():
            # Users and turns begin at different sentences.
            start = (user * 7_919 + turn * 131) % (len(texts) - 600)
            first, second = texts[start : start + 2]
            batch = texts[start : start + 1 + turn % 200]
            pair = {"sentence_a": first, "sentence_b": second}
            yield "compare", partial(self._post, "compare", **pair, **MODEL)
            yield "encode", partial(self._post, "encode", sentences=batch, **MODEL)
            yield "search", partial(self._post, "search", query=first, data="stsb:dev")
            body = {"model": MODEL["model"], "input": batch}
            yield "/v1/embeddings", partial(self._request, "/v1/embeddings", body)
            yield "list_runs", partial(self._post, "list_runs")
            yield "page", partial(self._request, "/train")
            self._ended.wait(THINKING_SECONDS)

    def _training(self) -> Iterator[tuple[str, Callable[[], object]]]:
        settings = {"base": MODEL["model"], "pooling": "mean", "max_steps": RUN_STEPS}

        def train(seed: int) -> None:
            run_id = self._post("start_run", **settings, seed=seed, name=f"soak {seed}")["id"]
            while not self._ended.wait(2):
                if self._post("run_status", run_id=run_id)["state"] not in ("queued", "running"):
                    return
            self._post("stop_run", run_id=run_id)

        for seed in count():
            yield "run", partial(train, seed)

    def _bulk(self) -> Iterator[tuple[str, Callable[[], object]]]:
        def score() -> None:
            boundary = "sbert-lab-soak"
            disposition = f'form-data; name="files"; filename="{self.pairs.name}"'
            head = f"--{boundary}\r\nContent-Disposition: {disposition}\r\n\r\n"
            body = head.encode() + self.pairs.read_bytes() + f"\r\n--{boundary}--\r\n".encode()
            headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
            [path] = self._send("/gradio_api/upload", body, headers)
            file = {"path": path, "meta": {"_type": "gradio.FileData"}}
            self._post("score_file", file=file, **MODEL)

        while True:
            yield "bulk", score

    def _post(self, name: str, /, **arguments: Any) -> Any:
        return self._request(f"/api/{name}", arguments)

    def _request(self, path: str, body: dict[str, Any] | None = None) -> Any:
        if body is None:
            return self._send(path, None, {})
        return self._send(path, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def _send(self, path: str, body: bytes | None, headers: dict[str, str]) -> Any:
        request = urllib.request.Request(self.url + path, body, headers)
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            text = answer.read()
        # Pages, which are requested without a body, are not JSON.
        return json.loads(text) if body is not None else text

    def _memory(self) -> dict[str, int | None]:
        """Resident megabytes of the app and of its worker; threads and open files of the app."""
        app = psutil.Process(process_of(self.url))
        worker_memory = 0
        for child in app.children():
            if "sbert_app.services.jobs.worker" not in child.cmdline():
                continue
            # The worker and its run share the memory of what has been imported, and PSS counts it once.
            for process in [child, *child.children(recursive=True)]:
                worker_memory += process.memory_full_info().pss
        return {
            "app_mb": app.memory_info().rss >> 20,
            "worker_mb": worker_memory >> 20,
            "threads": app.num_threads(),
            "open_files": app.num_fds(),
        }
