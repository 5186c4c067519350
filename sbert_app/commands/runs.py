"""runs, worker and report: manage the runs of the home folder, execute them, and write one of them as a file.

The app starts a worker itself. ``worker --once`` executes a single run, for schedulers that start
processes themselves. Its exit codes are 0 finished, 1 failed, 2 wrong input, 75 interrupted (the
same command resumes the run) and 130 stopped by a user.
"""

import math
import os
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from sbert_app.commands import options
from sbert_app.formats import format_bytes
from sbert_app.services.background.ray_cluster import RayCluster
from sbert_app.services.background.watch import State
from sbert_app.services.experiments.experiment import Experiments, is_experiment
from sbert_app.services.files.writers import check_output
from sbert_app.services.jobs.queue import RunQueue
from sbert_app.services.jobs.worker import run_once, run_worker
from sbert_app.services.runs.archives import push as push_run
from sbert_app.services.runs.record import Run
from sbert_app.services.runs.store import RunStore
from sbert_app.settings import Settings
from sbert_app.terminal import clean_stdout, print_result
from training.atomic import replace_folder, write_text
from training.errors import InputError, StoppedError
from training.models.files import check_replaceable
from training.objectives.base import OBJECTIVES
from training.sources.resolve import find_run
from training.trainer.config import SETTINGS
from training.trainer.run_metrics import RUN_METRICS

runs = typer.Typer(
    help="List, show, stop, resume, rename, export, push or delete runs.", rich_markup_mode=None
)


@runs.callback(invoke_without_command=True)
def default(
    context: typer.Context, home: options.Home = None, as_json: options.Json = False
) -> None:
    """Runs of the home folder; without a command, list them."""
    if context.invoked_subcommand is None:
        list_runs(home=home, as_json=as_json)
    else:
        # Options before the subcommand are passed on to it.
        context.default_map = {context.invoked_subcommand: {"home": home, "as_json": as_json}}


@runs.command("list")
def list_runs(
    limit: Annotated[int, Option(metavar="N", min=1, help="The maximum number of runs.")] = 50,
    cursor: Annotated[str, Option(metavar="RUN", help="Only runs older than this one.")] = "",
    home: options.Home = None,
    as_json: options.Json = False,
) -> None:
    """List runs, the newest first."""
    store = RunStore(options.prepare(home))
    stored = store.list(limit, cursor)
    # The runs that this list leaves out, because their files are damaged.
    for error in store.damaged():
        print(f"error: {error}", file=sys.stderr)
    lines = [_line(run) for run in stored]
    if not lines:
        lines = ["no runs yet: start one with train, or on the Train page"]
    # With a cursor, only the runs older than it are counted, as in the list.
    if stored and limit < store.count(cursor):
        lines.append(f"{store.count():,} runs in all; older ones: --cursor {stored[-1].id}")
    print_result({"runs": [run.to_json() for run in stored]}, as_json, "\n".join(lines))


@runs.command()
def show(run_id: options.RunId, home: options.Home = None, as_json: options.Json = False) -> None:
    """Show a run: its settings, its figures, the end of its log."""
    store, run = _open_run(home, run_id)
    lines = [_line(run)]
    if run.record.reason:
        lines.append(f"reason: {run.record.reason}")
    for name, value in run.config.to_dict().items():
        # A setting that belongs to other objectives has no effect. A setting without objectives
        # belongs to all.
        has_effect = run.config.objective in (SETTINGS[name].objectives or OBJECTIVES)
        if has_effect and value not in (None, ""):
            lines.append(f"  {name:28}{value}")
    lines += ["log:", store.log(run.id, lines=20)]
    print_result(run.to_json(), as_json, "\n".join(lines))


@runs.command()
def stop(run_id: options.RunId, home: options.Home = None, as_json: options.Json = False) -> None:
    """Stop a run. It keeps its checkpoint and can be resumed."""
    store, run = _open_run(home, run_id)
    _print_run(store.stop(run.id), as_json)


@runs.command()
def resume(run_id: options.RunId, home: options.Home = None, as_json: options.Json = False) -> None:
    """Queue a run again. A worker resumes it; train --resume does so in this process."""
    store, run = _open_run(home, run_id)
    _print_run(RunQueue(store).resume(run.id), as_json)


@runs.command()
def rename(
    run_id: options.RunId,
    name: Annotated[str, Argument(help="Its new name.")],
    home: options.Home = None,
    as_json: options.Json = False,
) -> None:
    """Rename a run. Its id stays."""
    store, run = _open_run(home, run_id)
    _print_run(store.rename(run.id, name), as_json)


@runs.command()
def export(
    run_id: options.RunId,
    folder: Annotated[
        Path, Argument(metavar="DIR", help="A new folder, or a model's to be replaced.")
    ],
    home: options.Home = None,
    as_json: options.Json = False,
) -> None:
    """Copy a run's model to a folder. sentence-transformers opens it."""
    _, run = _open_run(home, run_id)
    if not run.has_model:
        raise InputError(
            f"run {run.id} is {run.state} and has no model yet; let it run until its first evaluation"
        )
    target = folder.expanduser().absolute()
    check_replaceable(target)
    with replace_folder(target) as fresh:
        shutil.copytree(run.folder / "model", fresh, dirs_exist_ok=True)
    result = {"id": run.id, "path": str(target)}
    print_result(result, as_json, f"the model of {run.id} is in {target}")


@runs.command()
def push(
    run_id: options.RunId,
    repo: Annotated[
        str, Argument(metavar="ORG/NAME", help="The repository; created if it does not exist.")
    ],
    public: Annotated[bool, Option("--public", help="Make a new repository public.")] = False,
    home: options.Home = None,
    as_json: options.Json = False,
) -> None:
    """Push a run's model to the Hugging Face Hub. Asks for a token, or takes it from HF_TOKEN; it is stored nowhere."""
    store, run = _open_run(home, run_id)
    token = os.environ.get("HF_TOKEN", "")
    if not token and sys.stdin.isatty():
        token = typer.prompt("Token of the Hub, with the right to write", hide_input=True, err=True)
    address = push_run(store, run.id, repo, token, private=not public)
    print_result({"id": run.id, "url": address}, as_json, f"the model of {run.id} is at {address}")


@runs.command()
def delete(
    run_id: options.RunId,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
    home: options.Home = None,
    as_json: options.Json = False,
) -> None:
    """Delete a run and its model. Asks first; without a terminal it takes --yes."""
    store, run = _open_run(home, run_id)
    if not yes and not sys.stdin.isatty():
        raise InputError(
            f"{run.id} would be deleted with its model, and nobody can be asked here: add --yes"
        )
    if not yes:
        typer.confirm(f"Delete {run.name} ({run.id}) and its model?", abort=True, err=True)
    store.delete(run.id)
    print_result({"id": run.id, "deleted": True}, as_json, f"{run.id} is deleted")


def _open_run(home: Path | None, run: str) -> tuple[RunStore, Run]:
    """Opens the store, and the run with this id, beginning of an id, or name."""
    store = RunStore(options.prepare(home))
    return store, store.get(find_run(run, store.home))


def _print_run(run: Run, as_json: bool) -> None:
    print_result(run.to_json(), as_json, _line(run))


def _line(run: Run) -> str:
    """Returns a run in one line: id, state, steps, best figure and name."""
    progress = run.progress
    steps = f"{progress.step:,} steps"
    if progress.steps:
        steps = f"{progress.step:,} of {progress.steps:,} steps"
    figure = ""
    if progress.best and progress.measure:
        metric = RUN_METRICS[progress.measure]
        best = progress.best.get(progress.measure)
        if best is not None:
            figure = f"{metric.label} {metric.arrow} {metric.format(best)}"
    return f"{run.id}  {run.state:11}  {steps:20}  {figure:25}  {run.name}"


def worker(
    device: Annotated[int, Option("--gpu", metavar="N", help="Which GPU, counted from 0.")] = 0,
    idle_seconds: Annotated[
        float, Option(metavar="SECONDS", help="End after this time without work; 0: never.")
    ] = 0,
    once: Annotated[
        str | None,
        Option(
            metavar="RUN",
            help="Execute only this run, and end with its outcome.",
            autocompletion=options.complete_runs,
        ),
    ] = None,
    ray: Annotated[
        str | None,
        Option(metavar="ADDRESS", help="Execute them on Ray: auto, ray://HOST:10001 or local."),
    ] = None,
    home: options.Home = None,
    offline: options.Offline = False,
) -> None:
    """Execute queued runs one after another, here or on Ray.

    Ctrl-C leaves a checkpoint.
    """
    home_path = options.prepare(home, offline)
    if once is not None and idle_seconds:
        raise InputError("--once takes no run from the queue; leave out --idle-seconds")
    if once is None:
        # None without --ray and $SBERT_RAY: the runs are executed on this machine.
        cluster = RayCluster.of(Settings.gather(home=home_path, ray=ray))
        if cluster is not None and not idle_seconds:
            # The person who types the command learns at once whether the cluster answers. With
            # --idle-seconds, a worker connects when there is a run.
            cluster.connect()
        run_worker(home_path, device, idle_seconds or math.inf, cluster)
        return
    with clean_stdout():
        run_id = find_run(once, home_path)
        state = run_once(home_path, device, run_id)
    if state == State.STOPPED:
        raise StoppedError(f"{run_id}; the same command resumes it")
    code, hint = OUTCOMES[state]
    print(f"{run_id}: {state}{hint}", file=sys.stderr if code else sys.stdout)
    raise typer.Exit(code)


# The exit code of ``worker --once``, and a hint. 75 is EX_TEMPFAIL of sysexits.h: try again later.
OUTCOMES = {
    State.FINISHED: (0, ""),
    State.FAILED: (1, "; `runs show` has the reason"),
    State.INTERRUPTED: (75, "; the same command resumes it"),
}


def report(
    what: Annotated[
        str, Argument(metavar="run:ID|EXPERIMENT", help="A run, or an experiment, by its id.")
    ],
    output: Annotated[Path, Argument(metavar="OUT", help="The .html file.")],
    home: options.Home = None,
    as_json: options.Json = False,
) -> None:
    """Write a run or an experiment as one HTML file.

    It holds results, curves, settings, versions, the machine and the command.
    """
    # The pages need the extra app.
    from sbert_app.pages.ablation.page import experiment_report
    from sbert_app.pages.train.runs import run_report

    check_output(output, (".html",))
    home_path = options.prepare(home)
    store = RunStore(home_path)
    if is_experiment(home_path, what):
        report = experiment_report(Experiments(RunQueue(store)).get(what))
    else:
        run_id = find_run(what.removeprefix("run:"), home_path)
        # By default ``clean`` removes paths, which the owner of the runs may read.
        report = run_report(store, run_id, clean=str)
    write_text(output, report.html())
    size = output.stat().st_size
    sentence = f"{report.title}: {output}, {format_bytes(size)}"
    print_result({"path": str(output), "bytes": size}, as_json, sentence)
