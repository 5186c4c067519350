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
# The memory after so many minutes is compared with that at the end.
SETTLED_MINUTES = 5.0
# Points of the curve.
POINTS = 60
RUN_STEPS = 300
# A user waits so long between two requests.
THINKING_SECONDS = 0.2
TIMEOUT = 600.0
# At the end, requests that are under way have so long.
LAST_ANSWERS_SECONDS = 10.0


def run(minutes: float = 30, users: int = 8, bulk_rows: int = 5_000) -> dict[str, Any]:
    """Megabytes over time, and how the end compares with `SETTLED_MINUTES`.

    Args:
        minutes: the length of the soak; what is shorter than 10 minutes is compared with its
            middle.
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
        left = (
            sum(file.stat().st_size for file in (home / "tmp").rglob("*") if file.is_file()) >> 20
        )
    settled = 60 * min(SETTLED_MINUTES, minutes / 2)
    return {
        "benchmark": "soak",
        "minutes": minutes,
        "users": users,
        **compared(curve, settled),
        "answers": dict(sorted(soak.answers.items())),
        "failed": dict(sorted(soak.failures.items())),
        "temporary_mb_at_the_end": left,
        "curve": curve,
        "machine": about,
    }


def compared(curve: list[dict[str, Any]], settled: float) -> dict[str, Any]:
    """Memory once settled and at the end: medians over five points, as a single one may lie on a peak."""
    after = [point for point in curve if point["seconds"] >= settled][:5]
    first, last = (
        statistics.median(point["app_mb"] for point in part) for part in (after, curve[-5:])
    )
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
        self.url, self.pairs = url, pairs
        self.answers: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self._ended = threading.Event()
        self._texts = [text for column in load_data("stsb:train").columns for text in column]

    def run(self, seconds: float, users: int) -> list[dict[str, Any]]:
        """Keep everything busy for so long. Returns the memory curve."""
        work = [self._keep(self._requests(number)) for number in range(users)]
        work += [self._keep(self._training()), self._keep(self._bulk())]
        for thread in work:
            thread.start()
        curve = []
        started_at = time.monotonic()
        for point in range(POINTS + 1):
            self._ended.wait(max(0.0, started_at + seconds * point / POINTS - time.monotonic()))
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
        texts, size = self._texts, len(self._texts)
        for turn in count():
            at = (user * 7_919 + turn * 131) % (size - 600)
            some = texts[at : at + 1 + turn % 200]
            yield (
                "compare",
                partial(
                    self._post, "compare", sentence_a=texts[at], sentence_b=texts[at + 1], **MODEL
                ),
            )
            yield "encode", partial(self._post, "encode", sentences=some, **MODEL)
            yield "search", partial(self._post, "search", query=texts[at], data="stsb:dev")
            body = {"model": MODEL["model"], "input": some}
            yield "/v1/embeddings", partial(self._request, "/v1/embeddings", body)
            yield "list_runs", partial(self._post, "list_runs")
            yield "page", partial(self._request, "/train")
            self._ended.wait(THINKING_SECONDS)

    def _training(self) -> Iterator[tuple[str, Callable[[], object]]]:
        settings = {"base": MODEL["model"], "pooling": "mean", "max_steps": RUN_STEPS}

        def one(seed: int) -> None:
            run_id = self._post("start_run", **settings, seed=seed, name=f"soak {seed}")["id"]
            while not self._ended.wait(2):
                if self._post("run_status", run_id=run_id)["state"] not in ("queued", "running"):
                    return
            self._post("stop_run", run_id=run_id)

        for seed in count():
            yield "run", partial(one, seed)

    def _bulk(self) -> Iterator[tuple[str, Callable[[], object]]]:
        def one() -> None:
            boundary, name = "sbert-lab-soak", self.pairs.name
            head = f'--{boundary}\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\n\r\n'
            body = head.encode() + self.pairs.read_bytes() + f"\r\n--{boundary}--\r\n".encode()
            kind = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
            [path] = self._send("/gradio_api/upload", body, kind)
            file = {"path": path, "meta": {"_type": "gradio.FileData"}}
            self._post("score_file", file=file, **MODEL)

        while True:
            yield "bulk", one

    def _post(self, name: str, /, **arguments: Any) -> Any:
        return self._request(f"/api/{name}", arguments)

    def _request(self, path: str, body: dict[str, Any] | None = None) -> Any:
        if body is None:
            return self._send(path, None, {})
        return self._send(path, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def _send(self, path: str, body: bytes | None, headers: dict[str, str]) -> Any:
        with urllib.request.urlopen(
            urllib.request.Request(self.url + path, body, headers), timeout=TIMEOUT
        ) as answer:
            text = answer.read()
        return json.loads(text) if body is not None else text

    def _memory(self) -> dict[str, int | None]:
        """Resident megabytes of the app and of its worker; threads and open files of the app."""
        app = psutil.Process(process_of(self.url))
        workers = [
            child for child in app.children() if "sbert_app.services.jobs.worker" in child.cmdline()
        ]
        return {
            "app_mb": app.memory_info().rss >> 20,
            # The worker with its run, which share what has been imported.
            "worker_mb": sum(
                process.memory_full_info().pss
                for child in workers
                for process in [child, *child.children(recursive=True)]
            )
            >> 20,
            "threads": app.num_threads(),
            "open_files": app.num_fds(),
        }
