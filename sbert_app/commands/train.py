"""train: one run in the foreground, in a folder of its own among the home folder's runs.

Ctrl-C writes a checkpoint and ends; ``train --resume ID`` resumes from it. The runs that the app queues are in the same
folder; ``runs`` and the Train page show all of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sbert_app.commands import options
from sbert_app.formats import format_duration
from sbert_app.services.runs.record import RESUMABLE
from sbert_app.terminal import ProgressBar, clean_stdout, print_result, stop_on_signal
from training.data.reference import absolute_names, names_file
from training.errors import InputError, Stopped
from training.trainer.config import CHOICES, REPORTERS, RunConfig

if TYPE_CHECKING:
    from sbert_app.services.runs.store import RunStore
    from training.trainer.train import RunResult


EXAMPLES = 5  # mined negatives that are shown before the first step


def _choices(field: str) -> str:
    return "|".join(choice for choice in CHOICES[field] if choice)


def train(
    objective: Annotated[str | None, typer.Option(metavar=_choices("objective"), help="What is learned.")] = None,
    base: Annotated[str | None, typer.Option(metavar="NAME", help="Start from this model. [all-MiniLM-L6-v2]")] = None,
    pooling: options.Pooling = None,
    concatenation: Annotated[
        str | None, typer.Option("--concat", metavar=_choices("concatenation"), help="For classification. [uv+diff]")
    ] = None,
    train_data: Annotated[str | None, typer.Option(metavar="NAME_OR_FILE", help="Learn from. [stsb:train]")] = None,
    eval_data: Annotated[
        str | None, typer.Option(metavar="NAME_OR_FILE", help="Measure on; none for no data. [stsb:dev]")
    ] = None,
    encoding: options.Encoding = None,
    epochs: Annotated[float | None, typer.Option(help="Passes over the data. [1]")] = None,
    max_steps: Annotated[int | None, typer.Option(help="Optimiser steps, in place of epochs.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Pairs per step. [16]")] = None,
    learning_rate: Annotated[
        float | None, typer.Option("--lr", help="Peak learning rate. [2e-5; of scratch:bilstm and scratch:dan 1e-3]")
    ] = None,
    warmup: Annotated[float | None, typer.Option(help="Share of the steps that warms up. [0.1]")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Decoupled weight decay. [0]")] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything random. [0]")] = None,
    eval_every: Annotated[int | None, typer.Option(help="Steps between evaluations. [about 100]")] = None,
    max_length: Annotated[int | None, typer.Option(help="Tokens a sentence. [the base's]")] = None,
    dtype: Annotated[str | None, typer.Option(metavar=_choices("dtype"), help="Precision. [auto]")] = None,
    lora_rank: Annotated[int | None, typer.Option(help="LoRA of this rank; 0 trains all weights. [0]")] = None,
    triplet_metric: Annotated[
        str | None, typer.Option(metavar=_choices("triplet_metric"), help="For triplet. [euclidean]")
    ] = None,
    triplet_margin: Annotated[float | None, typer.Option(help="For triplet. [1]")] = None,
    mnrl_scale: Annotated[float | None, typer.Option(help="For mnrl: the factor on the cosine. [20]")] = None,
    mnrl_symmetric: Annotated[
        bool | None, typer.Option("--mnrl-symmetric", help="For mnrl: also from the positive to the anchor.")
    ] = None,
    cosent_scale: Annotated[
        float | None, typer.Option(help="For cosent and angle: the factor on the similarity. [20]")
    ] = None,
    contrastive_margin: Annotated[float | None, typer.Option(help="For contrastive, as 1 - cosine. [0.5]")] = None,
    teacher: Annotated[
        str | None, typer.Option(metavar="NAME", help="For mse and margin-mse: a cross-encoder or a bi-encoder.")
    ] = None,
    margin_similarity: Annotated[
        str | None, typer.Option(metavar=_choices("margin_similarity"), help="For margin-mse. [dot]")
    ] = None,
    matryoshka_dims: Annotated[
        str | None, typer.Option(metavar="D,D,…", help="Train the first D dimensions too, as 256,128,64.")
    ] = None,
    mini_batch_size: Annotated[
        int | None, typer.Option(help="Gradient caching: compute so many rows of a batch at a time.")
    ] = None,
    mine_negatives: Annotated[
        bool | None,
        typer.Option("--mine-negatives", help="For triplet, mnrl, margin-mse: hard negatives, found by the base."),
    ] = None,
    negative_margin: Annotated[
        float | None, typer.Option(help="A mined negative is less similar than its positive by this fraction. [0.05]")
    ] = None,
    preview: Annotated[
        bool, typer.Option("--preview", help="With --mine-negatives: show the negatives, and do not train.")
    ] = False,
    report_to: Annotated[
        str | None, typer.Option(metavar=",".join(REPORTERS), help="Write the figures to these trackers too.")
    ] = None,
    no_start: Annotated[
        bool, typer.Option("--no-start", help="Write the run and print its id; worker --once ID executes it.")
    ] = False,
    name: Annotated[str | None, typer.Option(help="What to call the run.")] = None,
    resume: Annotated[str | None, typer.Option(metavar="ID", help="Resume this run with its own settings.")] = None,
    home: options.Home = None,
    offline: options.Offline = False,
    as_json: options.Json = False,
) -> None:
    """Fine-tune a model. Ctrl-C keeps a checkpoint; --resume continues from it."""
    settings = {key: value for key, value in locals().items() if key not in _NOT_SETTINGS and value is not None}
    place = options.prepare(home, offline)
    from sbert_app.services.jobs.execution import execute
    from sbert_app.services.runs.store import RunStore

    store = RunStore(place)
    if preview:
        _preview(store, settings, as_json)
        return
    if no_start:
        if resume:
            raise InputError("--no-start writes a new run; leave out --resume")
        run_id = _created(store, settings)
        print_result({"id": run_id}, as_json, run_id)
        return
    running: list[str] = []  # the run, once it is loaded: before, there is nothing that a signal has to wait for
    with clean_stdout(), ProgressBar("starting", "steps") as bar, stop_on_signal(lambda: not running) as should_end:
        run_id = _resumed(store, resume, settings) if resume else _created(store, settings)
        show = _progress_handler(bar, run_id)

        def handle(event: dict[str, Any]) -> None:
            if event.get("state") == "running":
                running.append(run_id)
            show(event)

        try:
            result = execute(store, run_id, on_event=handle, should_end=should_end, states=RESUMABLE)
        except KeyboardInterrupt:
            raise Stopped(f"{run_id} before its next step; resume it with: train --resume {run_id}") from None
    if should_end() and result.status == "stopped":
        raise Stopped(f"{run_id} at step {result.steps:,}; resume it with: train --resume {run_id}")
    print_result(asdict(result), as_json, _summary(result))
    if result.status == "failed":
        print(f"error: run {run_id} failed: {result.reason}", file=sys.stderr)
        raise typer.Exit(1)


_NOT_SETTINGS = ("resume", "home", "offline", "as_json", "preview", "no_start")


def _preview(store: RunStore, settings: dict[str, Any], as_json: bool) -> None:
    """Show mined negatives, and do not train."""
    from sbert_app.services.runs.negatives import preview_negatives

    config = _config(store, settings)
    if not config.mine_negatives:
        raise InputError("--preview shows mined negatives; add --mine-negatives")
    with clean_stdout(), ProgressBar("mining negatives", "sentences") as bar:
        found = preview_negatives(config, store.home, bar)
    lines = [_triplet_lines(asdict(each)) for each in found.triplets]
    print_result(asdict(found), as_json, "\n".join([*lines, found.note]))


def _triplet_lines(triplet: dict[str, Any]) -> str:
    """A mined triplet in three lines, with cosines."""
    return (
        f"anchor    {triplet['anchor']}\n"
        f"positive  {triplet['positive_cosine']:.2f}  {triplet['positive']}\n"
        f"negative  {triplet['negative_cosine']:.2f}  {triplet['negative']}\n"
    )


def _created(store: RunStore, settings: dict[str, Any]) -> str:
    return store.create(_config(store, settings), queue=False).id


def _config(store: RunStore, settings: dict[str, Any]) -> RunConfig:
    """The config of a new run. InputError if it cannot start."""
    from sbert_app.services.runs.estimate import estimate_run

    encoding = settings.pop("encoding", None)
    if encoding is not None and not any(names_file(settings.get(key) or "") for key in ("train_data", "eval_data")):
        raise InputError("--encoding is that of a file; name one with --train-data or --eval-data")
    for key, its_encoding in (("base", None), ("teacher", None), ("train_data", encoding), ("eval_data", encoding)):
        if key in settings:  # by its whole path, as the run may be resumed from another folder
            settings[key] = absolute_names(settings[key], its_encoding)
    if settings.get("eval_data") == "none":
        settings["eval_data"] = None
    config = RunConfig.from_dict(settings)
    estimate_run(config, store)
    return config


def _resumed(store: RunStore, run_id: str, settings: dict[str, Any]) -> str:
    if settings:
        raise InputError(f"--resume uses the run's own settings; leave out {', '.join(sorted(settings))}")
    run = store.get(run_id)
    if run.state not in RESUMABLE:
        raise InputError(f"run {run_id} is {run.state}; there is nothing to resume")
    return run_id


def _progress_handler(bar: ProgressBar, run_id: str) -> Callable[[dict[str, Any]], None]:
    """Returns an event handler that prints the run's id at its start and updates the progress bar."""

    def handle(event: dict[str, Any]) -> None:
        if event.get("state") == "running":
            print(f"run {run_id}", file=sys.stderr)
            for triplet in event.get("negatives", ())[:EXAMPLES]:
                print(_triplet_lines(triplet), file=sys.stderr)
        if event["kind"] == "train":
            loss = "not finite" if event["loss"] is None else f"{event['loss']:.4f}"
            bar.description = f"loss {loss}"
            bar(event["step"], event["steps"])

    return handle


def _summary(result: RunResult) -> str:
    lines = [f"{result.id}: {result.status} after {result.steps:,} steps in {format_duration(result.seconds)}"]
    for what, figures in (("before", result.baseline), ("best", result.best), ("final", result.final)):
        for measure, factor in (("spearman", 100), ("accuracy", 100)):
            if figures and figures.get(measure) is not None:
                lines.append(f"{what:7} {measure} {factor * figures[measure]:.2f} at step {figures['step']:,}")
        for dim, value in ((figures or {}).get("by_dimension") or {}).items():
            lines.append(f"{what:7} with {dim} dimensions {100 * value:.2f}")
    if result.final and result.final.get("collapsed"):
        lines.append(f"collapsed: {result.final['collapsed']}")
    if result.path:
        lines.append(f"model   {result.path}  (run:{result.id})")
    return "\n".join(lines)
