"""Renders runs: the open one, the list of all, the plan of a new one, and the report of ``sbert-lab report``."""

import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, stdev
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, urlencode

from markupsafe import Markup

from sbert_app.figures.training import FIGURES, MOST_CURVES, curves_of
from sbert_app.formats import (
    MISSING,
    format_count,
    format_duration,
    format_estimate,
    format_number,
    format_time,
)
from sbert_app.pages.components.messages import estimate_plan
from sbert_app.pages.components.report import Report, plot
from sbert_app.pages.components.templates import macro, render
from sbert_app.services.background.watch import State
from sbert_app.services.experiments.ablations import PrecomputedTable
from sbert_app.services.experiments.groups import RunGroup
from sbert_app.services.runs.estimate import RunEstimate, TrainingRate
from sbert_app.services.runs.record import Run
from sbert_app.services.runs.store import RunStore
from training.errors import without_folders
from training.evaluation.diagnostics import COLLAPSED_FROM
from training.names import ModelName
from training.objectives.base import is_own
from training.pooling import PAPER_POOLINGS, pooling_label
from training.trainer.config import SETTINGS, RunConfig, default_learning_rate
from training.trainer.run_metrics import RUN_METRICS

# From this mean cosine of random pairs on, unrelated sentences look related.
NARROW_FROM = 0.3
# The maximum length of two sentences in a link, in characters.
LONGEST_LINK = 2_000
# A worker begins the next run within this time, in seconds.
MOST_WAITED = 60.0
ADVICE = {
    State.FAILED: "The log below has the details.",
    State.INTERRUPTED: "Resume continues from its last checkpoint.",
}

# Renders the last lines of a log.
log = macro("train/log")
# Renders mined hard negatives beside their anchors and positives.
negatives = macro("train/negatives")


def no_runs(pooling: PrecomputedTable | None) -> Markup:
    """Renders the page before the first run, with the precomputed table of poolings if the app ships it."""
    columns = [
        ("pooling", ""),
        ("dev ρ before", "number"),
        ("after", "number"),
        ("random pairs", "number"),
    ]
    rows: list[list[str]] = []
    caption = ""
    if pooling is not None and pooling.runs:
        for variant in dict.fromkeys(run.variant for run in pooling.runs):
            runs = [run for run in pooling.runs if run.variant == variant]
            before = 100 * fmean(run.before for run in runs)
            after = 100 * fmean(run.after for run in runs)
            cosine = fmean(run.random_cosine for run in runs)
            rows.append([pooling_label(variant), f"{before:.1f}", f"{after:.1f}", f"{cosine:.2f}"])
        caption = (
            f"Measured: regression on STSb from {pooling.settings['base']}, {pooling.runs[0].steps:,} steps, "
            f"{format_count(len(pooling.seeds), 'seed')}, {pooling.machine.get('device', '')}. More under Ablation."
        )
    return render("train/templates/no_runs.html", columns=columns, rows=rows, caption=caption)


def status(run: Run, ahead: int) -> Markup:
    """Renders the open run: its state, progress, results and their meaning.

    Args:
        ahead: the number of earlier runs that have not ended.
    """
    progress = run.progress
    errors = []
    if run.state in ADVICE:
        errors.append(f"{run.reason}. {ADVICE[run.state]}")
    # `collapsed` and `undefined` are texts that say how and why, or None.
    if progress.collapsed:
        errors.append(f"{progress.collapsed}.")
    if progress.undefined:
        errors.append(f"Spearman’s ρ is {progress.undefined}.")
    errors += [f"{warning}." for warning in progress.warnings]
    link = {"model": ModelName.of_run(run.id), "second": run.config.base}
    # The held-out pair whose cosine has changed most.
    pair = (progress.best or {}).get("changed")
    if pair and sum(map(len, pair)) <= LONGEST_LINK:
        link["a"], link["b"] = pair
    if run.config.pooling in PAPER_POOLINGS:
        link["pooling"] = run.config.pooling
    is_next = run.state == State.QUEUED and not ahead
    fraction = 0.0
    if progress.steps:
        fraction = progress.step / progress.steps
    return render(
        "train/templates/status.html",
        run=run,
        label="starting …" if is_next else state_label(run),
        fraction=fraction,
        facts=_facts(run, ahead),
        # str.capitalize would change the rest of the sentence.
        errors=[error[:1].upper() + error[1:] for error in errors],
        tiles=_tiles(run),
        settings=settings(run),
        compare_url=f"./?{urlencode(link)}" if run.has_model else "",
        settings_url=f"train?run={quote(run.id)}&settings={quote(run.id)}",
    )


def run_list(
    runs: Sequence[Run],
    open_id: str,
    colours: Mapping[str, str],
    folded: Mapping[str, RunGroup] = MappingProxyType({}),
    hidden: int = 0,
) -> Markup:
    """Renders the list of runs, newest first.

    Args:
        open_id: the id of the open run.
        colours: the colours of the runs whose curves are drawn, by id.
        folded: the groups of runs that share one row, by the ids of the runs. The open run has a
            row of its own.
        hidden: the number of further runs, which the filter leaves out or which are older.
    """
    rows: list[dict[str, Any]] = []
    folded_groups: set[str] = set()
    for run in runs:
        group = folded.get(run.id)
        if group is None or run.id == open_id:
            rows.append(
                {
                    "run": run,
                    "is_open": run.id == open_id,
                    "colour": colours.get(run.id),
                    **_row(run),
                }
            )
        elif group.id not in folded_groups:
            folded_groups.add(group.id)
            members = [member for member in runs if member.id in group.runs]
            states = Counter(member.state for member in members).most_common()
            best = _over_seeds(members) if group.differ_in_seed else ""
            rows.append(
                {
                    "group": group,
                    "runs": members,
                    "states": states,
                    "best": best,
                    "metric": _unit(run),
                }
            )
    return render(
        "train/templates/run_list.html", rows=rows, most_curves=MOST_CURVES, hidden=hidden
    )


def _over_seeds(runs: Sequence[Run]) -> str:
    """Returns the mean ± standard deviation of the best figures of the finished runs; "" without finished runs."""
    values = []
    for run in runs:
        best = run.progress.figure(run.progress.best)
        if run.state == State.FINISHED and best is not None:
            values.append(best)
    if not values:
        return ""
    digits = _digits(runs[0])
    mean = f"{fmean(values):.{digits}f}"
    if len(values) == 1:
        return mean
    return f"{mean} ± {stdev(values):.{digits}f}"


def plan(estimate: RunEstimate, rate: TrainingRate | None, seeds: int = 1) -> Markup:
    """Renders the work of a run, or of a run for each of several seeds, and its time."""
    data = estimate.kind
    if estimate.rows is not None:
        data = f"{estimate.rows:,} {data}"
    facts = [data]
    if estimate.steps is None:
        facts.append("the number of steps is known once the data is loaded")
    else:
        facts.append(f"{estimate.steps:,} steps of {estimate.config.batch_size}")
    if seeds > 1:
        facts.append(f"{seeds} seeds")
    # Before the first run of this kind, the time and its source are unknown.
    if rate is None:
        return estimate_plan(facts, None, "", estimate.notes)
    seconds = rate.seconds(estimate)
    total = None if seconds is None else seeds * seconds
    return estimate_plan(facts, total, rate.source, estimate.notes)


def state_label(run: Run) -> str:
    """Returns the state in a word; "stopping…" from the request to stop until the run has stopped."""
    return "stopping…" if run.is_stopping else run.state


def settings(run: Run) -> str:
    """Returns the settings that distinguish runs, in one line."""
    config = run.config
    objective = config.objective_class
    parts = [config.objective]
    if "concatenation" in objective.fields:
        parts[0] += f" {config.concatenation}"
    if config.teacher:
        parts.append(f"teacher {config.teacher}")
    # A cross-encoder, which scores pairs, has no pooling.
    if not objective.scores_pairs:
        parts.append(pooling_label(run.progress.pooling or config.pooling or "the base's pooling"))
    # The names of several sets, without the folders of files.
    files = [name.rsplit("/", 1)[-1] for name in config.train_data.split("+")]
    parts += [config.base, "+".join(files)]
    if len(config.parts) > 1:
        parts.append(f"mixing {config.mix}")
    parts += optimisation(config)
    if config.mine_negatives:
        parts.append("mined negatives")
    if config.matryoshka_dims:
        parts.append(f"Matryoshka {', '.join(map(str, config.matryoshka_dims))}")
    return " · ".join(parts)


def optimisation(config: RunConfig, seeds: str = "") -> list[str]:
    """Returns the length of a run and the settings of its optimiser. ``seeds`` replaces the seed of the config."""
    batch = f"batch {config.batch_size}"
    if config.mini_batch_size is not None:
        batch += f", {config.mini_batch_size} at a time"
    parts = [config.length, batch, f"lr {format_learning_rate(config.learning_rate)}"]
    if config.lora_rank:
        parts.append(f"LoRA {config.lora_rank}")
    return [*parts, f"seed {seeds or config.seed}"]


def format_learning_rate(value: float) -> str:
    """Returns a learning rate as people write it: 2e-5."""
    return f"{value:g}".replace("e-0", "e-")


def _facts(run: Run, ahead: int) -> list[str]:
    """Returns the step, the time left, the throughput and the device, or the place of a run in the queue."""
    progress = run.progress
    if run.state == State.QUEUED:
        if ahead:
            return [f"{format_count(ahead, 'run')} ahead in the queue"]
        waiting = ["starting …"]
        if run.waited > MOST_WAITED:
            waiting.append(
                f"no worker has begun it for {format_duration(run.waited)}: the worker’s log may say why"
            )
        return waiting
    facts = ["no step was made"]
    if run.state == State.RUNNING:
        facts = ["loading data and model"]
    if progress.steps:
        facts = [f"step {progress.step:,} of {progress.steps:,}"]
    if run.state == State.RUNNING:
        if progress.seconds_left is not None:
            facts.append(f"{format_estimate(progress.seconds_left)} left")
        if progress.sentences_per_second:
            facts.append(f"{progress.sentences_per_second:,.0f} sentences/s")
    elif run.record.started and run.record.ended:
        facts.append(f"ended {format_time(run.record.ended)}")
        # A run may finish before its last step. The reasons of other states are shown as errors.
        if run.state == State.FINISHED and run.reason:
            facts.append(run.reason)
    if progress.device:
        facts.append(f"{progress.device}, {progress.dtype or ''}")
    if progress.memory_gb is not None:
        facts.append(f"{progress.memory_gb:.1f} GB of its memory")
    return facts


def _tiles(run: Run) -> list[tuple[str, str, str]]:
    """Returns tiles (value, label, remark) with the selecting metric, its gain over the base, and random pairs."""
    progress = run.progress
    best = progress.figure(progress.best)
    base = progress.figure(progress.baseline)
    latest = progress.latest
    digits = _digits(run)
    # `measure` is None before the first evaluation. No tile names the metric then.
    metric = RUN_METRICS[progress.measure or "loss"]
    tiles = []
    # The share of first sentences whose nearest sentence is their partner, before and after
    # training, if it is measured.
    evaluations = [event for event in (progress.baseline, progress.best) if event]
    with_accuracy = [event for event in evaluations if event.get("accuracy@1") is not None]
    if with_accuracy:
        shares = " → ".join(f"{event['accuracy@1']:.0%}" for event in with_accuracy)
        tiles.append((shares, "finds the partner", f"of {with_accuracy[0]['queries']:,} dev pairs"))
    if best is not None and progress.best is not None:
        label = f"best {metric.label}"
        # `progress.best` leaves out the base, which may have a higher figure.
        if base is not None and best < base:
            label += " after training"
        step = f"at step {progress.best['step']:,}"
        tiles.append((format_number(best, digits), label, step))
        if base is not None:
            gain = format_number(best - base, digits, "+")
            tiles.append((gain, "against the base", f"which has {format_number(base, digits)}"))
        last = progress.figure(latest)
        if latest is not None and last is not None and latest is not progress.best:
            tiles.append((format_number(last, digits), "last", f"at step {latest['step']:,}"))
    elif base is not None:
        tiles.append(
            (format_number(base, digits), metric.label, "of the base, before the first step")
        )
    if progress.test is not None:
        spearman = f"{100 * progress.test['spearman']:.1f}"
        tiles.append((spearman, f"on {progress.test['data']}", "held out"))
    evaluation = progress.best or latest or {}
    for dimension, value in (evaluation.get("by_dimension") or {}).items():
        text = f"{metric.factor * value:.{digits}f}"
        tiles.append((text, f"with {dimension} dimensions", "the vectors truncated"))
    if latest is not None and latest.get("plain_cosine") is not None:
        # The higher of two mean cosines: of plain sentences, and of sentences of the training data.
        # If the training data was not measured, −1 stands in for it.
        cosine = max(latest["plain_cosine"], latest.get("random_cosine") or -1.0)
        if cosine > COLLAPSED_FROM:
            remark = "collapsed: all sentences look alike"
        elif cosine > NARROW_FROM:
            remark = "narrow: unrelated sentences look related"
        else:
            remark = "the space is open"
        tiles.append((f"{cosine:.2f}", "cosine of random pairs", remark))
    return tiles


def _unit(run: Run) -> str:
    """Returns the metric of a run, with an arrow in the direction of better values; the loss until one is measured."""
    metric = RUN_METRICS[run.progress.measure or "loss"]
    return f"{metric.label} {metric.arrow}"


def _digits(run: Run) -> int:
    """Returns the number of decimals of the metric."""
    return 4 if run.progress.measure == "loss" else 1


def _row(run: Run) -> dict[str, str]:
    """Returns the texts of a run in the list, by the name that the template gives them."""
    progress = run.progress
    digits = _digits(run)
    best = progress.figure(progress.best)
    base = progress.figure(progress.baseline)
    row = {
        "label": state_label(run),
        "settings": settings(run),
        "metric": "",
        "done": "",
        "best": MISSING,
        "gain": "",
    }
    if run.state == State.RUNNING and progress.steps:
        row["done"] = f"{100 * progress.step // progress.steps}%"
    if best is not None:
        row["metric"] = _unit(run)
        row["best"] = format_number(best, digits)
        if base is not None:
            row["gain"] = format_number(best - base, digits, "+")
    return row


def run_report(
    store: RunStore, run_id: str, clean: Callable[[str], str] = without_folders
) -> Report:
    """Returns the report of a run: results, curves, evaluations, log.

    ``clean`` removes the paths of this machine from a text.

    Raises RunNotFoundError if the run does not exist.
    """
    run = store.get(run_id)
    record = run.record
    progress = run.progress
    evaluations = [event for event in run.events if event["kind"] == "eval"]
    curves = []
    for make in FIGURES.values():
        figure = make(curves_of([run]))
        if any(len(trace.x) for trace in figure.data):
            curves.append(plot(figure))
    objectives = {part.objective for part in run.config.parts}
    used_settings = {}
    for name, value in run.config:
        setting = SETTINGS[name]
        # A setting that names no objectives is used by all.
        is_used = not setting.objectives or not objectives.isdisjoint(setting.objectives)
        if is_used and (text := _text(value)):
            used_settings[setting.label] = clean(text)
    facts = {"Run": f"run:{run.id}, {run.state}"}
    if progress.device:
        facts["Trained on"] = ", ".join(filter(None, (progress.device, progress.dtype)))
    if record.started and record.ended:
        facts["Took"] = format_duration(record.ended - record.started)
    return Report(
        run.name,
        used_settings,
        {
            "Result": [status(run, ahead=0)],
            "Curves": curves,
            "Evaluations": [_evaluation_table(evaluations)] if evaluations else [],
            "Log": [log(clean(store.log(run_id)))],
        },
        clean(command_of(run.config)),
        facts,
    )


def _evaluation_table(evaluations: Sequence[Mapping[str, Any]]) -> Markup:
    """Renders a row for each evaluation, and a column for each metric that was measured."""
    columns = [("step", "")]
    rows = [[f"{event['step']:,}"] for event in evaluations]
    for name, metric in RUN_METRICS.items():
        values = [event.get(name) for event in evaluations]
        if all(value is None for value in values):
            continue
        columns.append((metric.label, "number"))
        for row, value in zip(rows, values, strict=True):
            row.append(MISSING if value is None else metric.format(value))
    return macro("table")(columns, rows)


def command_of(config: RunConfig) -> str:
    """Returns the command that trains with this config; "" if the config contains a Python object."""
    defaults = {name: setting.default for name, setting in SETTINGS.items()}
    defaults["learning_rate"] = default_learning_rate(config.base, config.objective)
    words = ["sbert-lab", "train"]
    for name, value in config:
        # A Python object, such as an objective of the user, is stored as "own (…)".
        if is_own(str(value)):
            return ""
        if value == defaults[name]:
            continue
        words.append(SETTINGS[name].option)
        # A switch takes no value. It is off by default, so a changed switch is on. RunConfig reads
        # "none" as None.
        if value is not True:
            words.append(_text(value) or "none")
    return shlex.join(words)


def _text(value: Any) -> str:
    """Returns a value of a config as a text; "" for None and False."""
    if isinstance(value, bool) or value is None:
        return "yes" if value else ""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value)
