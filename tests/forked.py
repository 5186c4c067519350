"""`sbert-lab worker` in processes that start at once: forked from one that has imported everything a run needs.

A worker spends four seconds of a core on imports before it looks at the queue. What is tested with these is what comes
after; they are processes like any other, with signals and exit codes of their own. How a fresh interpreter starts is
what the tests of the command line and of the app are about.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import torch

from sbert_app.__main__ import run
from training.trainer.events import EventLog

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    [
        "sbert_app.services.runs.execution",
        "training.trainer.train",
        "training.trainer.trainer",
        "transformers.models.auto.modeling_auto",
        "transformers.models.auto.tokenization_auto",
        "transformers.models.bert.modeling_bert",
    ]
)


class ForkedWorker:
    """A worker, with the part of `subprocess.Popen` that tests use.

    Args:
        options: of the command.
        folder: in which a file gets what it prints, and another what it says on stderr.
        step_seconds: that each step of a run takes longer, so that a short run is not over before it is seen.
        file_limit: the size in bytes beyond which no file of it may grow.
    """

    def __init__(
        self, *options: object, folder: Path, step_seconds: float = 0.0, file_limit: int | None = None
    ) -> None:
        folder.mkdir(parents=True)
        self._printed, self._said = folder / "stdout", folder / "stderr"
        variables = {**os.environ, "OMP_NUM_THREADS": "1"}
        streams = self._printed, self._said
        arguments = [*map(str, options)], variables, streams, step_seconds, file_limit
        self._process = _context.Process(target=_work, args=arguments, daemon=True)
        self._process.start()

    @property
    def returncode(self) -> int | None:
        """The exit code; None while the process is there."""
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Nothing where the process has ended."""
        if self._process.pid is not None and self.returncode is None:
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        """End it at once, without its doing anything about it."""
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float) -> int:
        """The exit code, when it has ended. TimeoutExpired if that takes longer than ``timeout`` seconds."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("worker", timeout)
        return self.returncode

    def communicate(self, timeout: float = 60) -> tuple[str, str]:
        """What it has printed and said, when it has ended."""
        self.wait(timeout)
        return self._printed.read_text(), self._said.read_text()


def _work(
    options: list[str],
    variables: Mapping[str, str],
    streams: tuple[Path, Path],
    step_seconds: float,
    file_limit: int | None,
) -> None:
    os.environ.clear()
    os.environ.update(variables)
    for number, path in enumerate(streams, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    if file_limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores it
    torch.set_num_threads(1)
    emit = EventLog.emit

    def emit_later(log: EventLog, kind: str, *arguments: object, **values: object) -> None:
        if kind == "train":
            time.sleep(step_seconds)
        emit(log, kind, *arguments, **values)  # type: ignore[arg-type]

    EventLog.emit = emit_later  # type: ignore[method-assign,assignment]
    sys.argv = ["sbert-lab", "worker", *options]
    run(sys.argv[1:])
