"""worker: take runs from the queue and execute them. The app starts one itself.

With --once it executes one run and ends, for schedulers that start processes themselves. Exit codes: 0 finished, 1
failed, 2 wrong input, 75 interrupted (the same command again resumes it), 130 stopped by a user.
"""

from __future__ import annotations

import math
import sys
from typing import Annotated

import typer

from sbert_app.commands import options
from sbert_app.services.background.watch import State
from sbert_app.settings import Settings
from sbert_app.terminal import clean_stdout
from training.errors import InputError, Stopped
from training.sources.resolve import find_run


def worker(
    device: Annotated[int, typer.Option("--gpu", metavar="N", help="Which GPU, counted from 0.")] = 0,
    idle_seconds: Annotated[
        float, typer.Option(metavar="SECONDS", help="End after so long without work; 0 for never.")
    ] = 0,
    once: Annotated[
        str | None,
        typer.Option(
            "--once",
            metavar="RUN",
            help="Execute this run alone, and end with its outcome.",
            autocompletion=options.complete_runs,
        ),
    ] = None,
    ray: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Execute them on Ray: auto, ray://HOST:10001 or local.")
    ] = None,
    home: options.Home = None,
    offline: options.Offline = False,
) -> None:
    """Execute queued runs one after another, here or on Ray.

    Ctrl-C leaves a checkpoint.
    """
    place = options.prepare(home, offline)
    if once is not None and idle_seconds:
        raise InputError("--once takes no run from the queue; leave out --idle-seconds")
    from sbert_app.services.jobs.worker import run_once, run_worker

    if once is None:
        from sbert_app.services.background.ray_cluster import RayCluster

        cluster = RayCluster.of(Settings.gather(home=place, ray=ray))
        if cluster is not None and not idle_seconds:
            cluster.connect()  # one that is not there is a mistake of who types this; a queued run says it by itself
        run_worker(place, device, idle_seconds or math.inf, cluster)
        return
    with clean_stdout():
        once = find_run(once, place)
        state = run_once(place, device, once)
    if state == State.STOPPED:
        raise Stopped(f"{once}; the same command resumes it")
    print(f"{once}: {state}{_HINTS[state]}", file=sys.stdout if state == State.FINISHED else sys.stderr)
    if code := EXIT_CODES[state]:
        raise typer.Exit(code)


EXIT_CODES = {State.FINISHED: 0, State.FAILED: 1, State.INTERRUPTED: 75}  # 75 is EX_TEMPFAIL of sysexits.h: try again
_HINTS = {
    State.FINISHED: "",
    State.FAILED: "; `runs show` has the reason",
    State.INTERRUPTED: "; the same command resumes it",
}
