"""report run:ID OUT.html: a run, or an experiment, as one file to hand in. It opens offline, in any browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sbert_app.commands import options
from sbert_app.formats import format_bytes
from sbert_app.terminal import print_result
from training.atomic import write_text
from training.sources.resolve import find_run


def report(
    what: Annotated[str, typer.Argument(metavar="run:ID|EXPERIMENT", help="A run, or an experiment, by its id.")],
    output: Annotated[Path, typer.Argument(metavar="OUT", help="The .html file.")],
    home: options.Home = None,
    as_json: options.Json = False,
) -> None:
    """Write a run or an experiment as one HTML file.

    It holds results, curves, settings, versions, the machine and the command.
    """
    place = options.prepare(home, offline=False)
    from sbert_app.pages.ablation.page import experiment_report
    from sbert_app.pages.train.runs import run_report
    from sbert_app.services.experiments.experiment import Experiments, is_experiment
    from sbert_app.services.files.writers import check_output
    from sbert_app.services.jobs.queue import RunQueue
    from sbert_app.services.runs.store import RunStore

    check_output(output, (".html",))
    store = RunStore(place)
    if is_experiment(place, what):
        found = experiment_report(Experiments(RunQueue(store)).get(what))
    else:
        found = run_report(store, find_run(what.removeprefix("run:"), place), clean=str)
    write_text(output, found.html())
    size = output.stat().st_size
    print_result({"path": str(output), "bytes": size}, as_json, f"{found.title}: {output}, {format_bytes(size)}")
