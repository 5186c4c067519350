"""worker: take runs from the queue and execute them. The app starts one itself unless the queue is Redis."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from sbert_app.commands import options


def worker(
    device: Annotated[int, typer.Option(metavar="N", help="Which GPU, counted from 0.")] = 0,
    idle_seconds: Annotated[float, typer.Option(help="End after so long without work; 0 for never.")] = 0,
    home: options.Home = None,
    offline: options.Offline = False,
) -> None:
    """Execute queued runs, one after another, on one device. Ctrl-C leaves a checkpoint."""
    place = options.prepare(home, offline)
    from sbert_app.services.jobs.worker import run_worker

    run_worker(place, device, idle_seconds or math.inf)
