"""benchmark: measure how fast this machine is, beside other libraries."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from sbert_app.commands import options
from training.errors import InputError

CLONE = Path(__file__).parents[2]


def benchmark(
    name: Annotated[str, typer.Argument(metavar="NAME", help="encode, start-up, …")],
    against: Annotated[str | None, typer.Option(metavar="PEER", help="Also measure sentence-transformers.")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, metavar="N", help="Times each side is measured.")] = None,
    minutes: Annotated[float | None, typer.Option(min=0.1, metavar="N", help="How long soak lasts. [30]")] = None,
    as_json: options.Json = False,
) -> int:
    """Measure how fast this machine is. Needs a clone.

    The sides take turns, round by round; medians and ratios are printed.
    """
    if not (CLONE / "benchmarks" / "__main__.py").is_file():
        raise InputError("benchmarks are not part of the installed package: run this command in a clone of SBERT Lab")
    # A process of its own, as benchmarks import the app and the app must not import them.
    command = [sys.executable, "-m", "benchmarks", name, "--no-save"]
    command += ["--against", against] if against else []
    command += ["--rounds", str(rounds)] if rounds else []
    command += ["--minutes", str(minutes)] if minutes else []
    command += ["--json"] if as_json else []
    # In a session of its own, which is ended whole: the terminal's Ctrl-C does not reach it, and what it has started
    # ends with it.
    with subprocess.Popen(command, cwd=CLONE, start_new_session=True) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            with suppress(ProcessLookupError):
                if hasattr(os, "killpg"):
                    os.killpg(process.pid, signal.SIGKILL)
                else:  # Windows has no sessions
                    process.kill()
            process.wait()  # which leaving the block does not after an interrupt
            raise
