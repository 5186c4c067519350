"""train: fine-tunes a model.

`train` executes a run in this process. Ctrl-C writes a checkpoint and ends the run; ``train
--resume ID`` continues from it. Its folder is among the runs that the app queues, so ``runs`` and
the Train page show it, too.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from sbert_app.commands import options
from sbert_app.commands.ablate import run_experiment
from sbert_app.formats import format_count, format_duration
from sbert_app.services.background.ray_cluster import RayCluster
from sbert_app.services.background.watch import RESUMABLE, State
from sbert_app.services.experiments.experiment import SEEDS, Experiments, is_experiment, new_seeds
from sbert_app.services.jobs.queue import RunQueue
from sbert_app.services.runs.estimate import estimate_run
from sbert_app.services.runs.on_ray import executor
from sbert_app.services.runs.store import RunStore
from sbert_app.terminal import ProgressBar, clean_stdout, print_result, stop_on_signal
from training.errors import InputError, StoppedError
from training.names import absolute_names, names_file
from training.sources.resolve import find_run
from training.trainer.config import SETTINGS, RunConfig
from training.trainer.run_metrics import RUN_METRICS

if TYPE_CHECKING:
    from training.trainer.train import RunResult

# The number of mined negatives that are printed before the first step.
EXAMPLES = 5


def train(
    seeds: Annotated[
        str | None,
        Option(metavar="0-4|0,3,7", help="A run for each of these seeds, and their mean."),
    ] = None,
    columns: options.Columns = None,
    encoding: options.Encoding = None,
    preview: Annotated[
        bool,
        Option("--preview", help="With --mine-negatives: show the negatives, and do not train."),
    ] = False,
    no_start: Annotated[
        bool,
        Option("--no-start", help="Write the run and print its id; worker --once ID executes it."),
    ] = False,
    engine: options.EngineName = None,
    address: options.Address = None,
    resume: Annotated[
        str | None,
        Option(
            metavar="RUN",
            help="Resume it with its own settings.",
            autocompletion=options.complete_runs,
        ),
    ] = None,
    home: options.Home = None,
    offline: options.Offline = False,
    as_json: options.Json = False,
    **settings: Any,
) -> None:
    """Fine-tune a model. Ctrl-C keeps a checkpoint; --resume continues from it."""
    settings = {"columns": columns, "encoding": encoding, **settings}
    for name, value in list(settings.items()):
        if value is None:
            del settings[name]
        elif isinstance(value, list):
            # An option that was given several times is one text in the config, with the sign
            # ``joint`` between its values.
            settings[name] = SETTINGS[name].joint.join(value)
    home_path = options.prepare(home, offline)
    store = RunStore(home_path)
    if seeds is not None and (preview or no_start or resume or "seed" in settings):
        raise InputError(
            "--seeds starts a run for each seed; leave out --seed, --preview, --no-start and --resume"
        )
    if resume and settings:
        raise InputError(
            f"--resume uses the run's own settings; leave out {', '.join(sorted(settings))}"
        )
    if seeds is not None or (resume and is_experiment(home_path, resume)):
        cluster = options.cluster_of(home_path, engine, address)
        _train_seeds(store, settings, seeds or "", resume, cluster, as_json)
        return
    if preview:
        _preview(store, settings, as_json)
        return
    if no_start:
        if resume:
            raise InputError("--no-start writes a new run; leave out --resume")
        run_id = store.create(_config(store, settings), queue=False).id
        print_result({"id": run_id}, as_json, run_id)
        return
    execute = executor(options.cluster_of(home_path, engine, address))
    # Whether the model and the data are loaded. Before that, a signal ends the process at once.
    has_begun = False
    with (
        clean_stdout(),
        ProgressBar("starting", "steps") as bar,
        stop_on_signal(lambda: not has_begun) as should_end,
    ):
        if resume:
            resume = find_run(resume, home_path)
            state = store.get(resume).state
            if state not in RESUMABLE:
                raise InputError(f"run {resume} is {state}; there is nothing to resume")
        run_id = resume or store.create(_config(store, settings), queue=False).id

        def show(event: dict[str, Any]) -> None:
            """Prints what the run says at its start, and shows its steps in the bar."""
            nonlocal has_begun
            if event.get("state") == State.RUNNING:
                has_begun = True
                print(f"run {run_id}", file=sys.stderr)
                for note in event.get("notes", ()):
                    print(note, file=sys.stderr)
                for triplet in event.get("negatives", ())[:EXAMPLES]:
                    print(_triplet_lines(triplet), file=sys.stderr)
            elif event["kind"] == "train":
                bar.description = "loss not finite"
                if event["loss"] is not None:
                    bar.description = f"loss {event['loss']:.4f}"
                bar(event["step"], event["steps"])

        try:
            # A new run that is not queued counts as stopped, so it is resumable, too.
            result = execute(store, run_id, on_event=show, should_end=should_end, states=RESUMABLE)
        except KeyboardInterrupt:
            raise StoppedError(
                f"{run_id} before its next step; resume it with: train --resume {run_id}"
            ) from None
        except InputError:
            # Before its first step a run has no checkpoint, so nothing is lost if it is deleted.
            is_new = not resume and not store.get(run_id).progress.step
            if is_new:
                # Its data or its base cannot be used, so the run is useless.
                store.delete(run_id)
            raise
    if should_end() and result.status == State.STOPPED:
        raise StoppedError(
            f"{run_id} at step {result.steps:,}; resume it with: train --resume {run_id}"
        )
    print_result(asdict(result), as_json, _summary(result, store.get(run_id).progress.warnings))
    if result.status == State.FAILED:
        print(f"error: run {run_id} failed: {result.reason}", file=sys.stderr)
        raise typer.Exit(1)


def _with_settings(command: Callable[..., None]) -> None:
    """Replaces the last parameter of a command, ``**settings``, by an option for each field of `RunConfig`."""
    # Only keyword-only parameters may have defaults in any order.
    kind = inspect.Parameter.KEYWORD_ONLY
    signature = inspect.signature(command, eval_str=True)
    *own_parameters, _ = signature.parameters.values()
    parameters = []
    for setting in SETTINGS.values():
        description = f"{setting.sentence()}."
        if setting.words:
            description += f" [{setting.words}]"
        complete = None
        if setting.name in ("base", "teacher"):
            complete = options.complete_models
        option = Option(
            setting.option,
            metavar=setting.metavar or "|".join(filter(None, setting.choices)) or None,
            help=description,
            autocompletion=complete,
        )
        # An option whose values can be joined may be given several times.
        type_: Any = list[str] if setting.joint else setting.type
        annotation: Any = Annotated[type_ | None, option]
        parameters.append(
            inspect.Parameter(setting.name, kind, default=None, annotation=annotation)
        )
    parameters += [parameter.replace(kind=kind) for parameter in own_parameters]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]


_with_settings(train)


def _preview(store: RunStore, settings: dict[str, Any], as_json: bool) -> None:
    """Mines hard negatives, and prints some of them."""
    # The import of torch takes seconds.
    from training.trainer.negatives import PREVIEWED, mine_for

    config = _config(store, settings)
    if not config.mine_negatives:
        raise InputError("--preview shows mined negatives; add --mine-negatives")
    with clean_stdout(), ProgressBar("mining negatives", "sentences") as bar:
        mined = mine_for(config, store.home, on_progress=bar)
    triplets = [asdict(triplet) for triplet in mined.examples(PREVIEWED)]
    # The last note is on the mining.
    note = mined.data.notes[-1]
    result = {"triplets": triplets, "rows": len(mined.data), "note": note}
    print_result(result, as_json, "\n".join([*map(_triplet_lines, triplets), note]))


def _triplet_lines(triplet: dict[str, Any]) -> str:
    return (
        f"anchor    {triplet['anchor']}\n"
        f"positive  {triplet['positive_cosine']:.2f}  {triplet['positive']}\n"
        f"negative  {triplet['negative_cosine']:.2f}  {triplet['negative']}\n"
    )


def _config(store: RunStore, settings: dict[str, Any]) -> RunConfig:
    """Returns the config of a new run. Raises InputError if the run cannot start."""
    file = options.FileOptions(settings.pop("columns", None), settings.pop("encoding", None))
    has_file = False
    # Paths become absolute because the run may be resumed from another folder.
    for key in ("train_data", "eval_data"):
        if key not in settings:
            continue
        if names_file(settings[key]):
            has_file = True
            settings[key] = file.data_name(settings[key])
        else:
            settings[key] = absolute_names(settings[key])
    if file.are_given and not has_file:
        # Raises InputError, because the options need a file.
        file.data_name("", "--train-data or --eval-data")
    for key in ("base", "teacher"):
        if key in settings:
            settings[key] = absolute_names(settings[key])
    config = RunConfig(**settings)
    # Raises InputError if the run cannot start.
    estimate_run(config, store)
    return config


def _train_seeds(
    store: RunStore,
    settings: dict[str, Any],
    seeds: str,
    resume: str | None,
    cluster: RayCluster | None,
    as_json: bool,
) -> None:
    """Executes a run for each of the ``seeds``, or the remaining runs of the experiment ``resume``.

    Prints mean ± standard deviation over the seeds, and exits with 1 if a run has failed.
    """
    experiments = Experiments(RunQueue(store))
    if resume:
        kind = experiments.get(resume).record.kind
        if kind != SEEDS:
            raise InputError(
                f"{resume} is a {kind}: resume it with ablate --resume, or its runs with runs resume"
            )
    with clean_stdout():
        if resume:
            experiment_id = resume
        else:
            record = new_seeds(_config(store, settings), seeds)
            experiment_id = experiments.create(record).id
        print(f"experiment {experiment_id}", file=sys.stderr)
        experiment = run_experiment(experiments, experiment_id, cluster, "train")
    record = experiment.record
    # The runs have the same metric, which a run without an evaluation does not know yet.
    measures = [run.progress.measure for run in experiment.runs if run.progress.measure]
    measure = measures[0] if measures else ""
    lines = [f"{experiment.id}: {experiment.state}, {record.name}, seeds {record.by}"]
    result: dict[str, Any] = {
        "id": experiment.id,
        "state": experiment.state,
        "runs": {str(plan.seed): plan.run for plan in record.runs},
    }
    for which in ("baseline", "best", "latest", "test"):
        summary = experiment.summary(which)
        result[which] = summary and asdict(summary)
        if summary:
            line = f"{which:9}{measure} {summary.mean:.2f}"
            if summary.deviation is not None:
                line += f" ± {summary.deviation:.2f}"
            lines.append(line)
    print_result(result, as_json, "\n".join(lines))
    if experiment.reasons:
        print(f"error: runs failed: {'; '.join(experiment.reasons)}", file=sys.stderr)
        raise typer.Exit(1)


def _summary(result: RunResult, warnings: Sequence[str]) -> str:
    """Returns lines on a run that has ended: how it ended, its metrics, its warnings, and where its model is."""
    steps = format_count(result.steps, "step")
    head = f"{result.id}: {result.status} after {steps} in {format_duration(result.seconds)}"
    if result.reason:
        head += f": {result.reason}"
    lines = [head]
    for title, figures in (
        ("before", result.baseline),
        ("best", result.best),
        ("final", result.final),
    ):
        if not figures:
            continue
        for name, metric in RUN_METRICS.items():
            # Losses and diagnostics have the factor 1, and are not printed.
            if metric.factor > 1 and figures.get(name) is not None:
                text = metric.format(figures[name])
                lines.append(f"{title:7} {name} {text} at step {figures['step']:,}")
        for dimension, value in (figures.get("by_dimension") or {}).items():
            lines.append(f"{title:7} with {dimension} dimensions {100 * value:.2f}")
    if result.test:
        lines.append(
            f"best    spearman {100 * result.test['spearman']:.2f} on {result.test['data']}"
        )
    if result.final and result.final.get("undefined"):
        lines.append(f"spearman {result.final['undefined']}")
    if result.final and result.final.get("collapsed"):
        lines.append(result.final["collapsed"])
    lines += warnings
    if result.path:
        lines.append(f"model   {result.path}  (run:{result.id})")
    return "\n".join(lines)
