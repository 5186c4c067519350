"""What the Train page shows, as HTML: plain values for the templates in ``templates/``. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from types import MappingProxyType
from urllib.parse import quote

from markupsafe import Markup

from sbert_app.figures.training import COLOURS
from sbert_app.formats import MISSING, format_count, format_estimate, format_time
from sbert_app.pages.components.messages import estimate_plan
from sbert_app.pages.components.templates import macro, render
from sbert_app.services.background.state import AT_WORK
from sbert_app.services.experiments.ablations import PrecomputedRun, PrecomputedTable
from sbert_app.services.experiments.experiment import RunGroup
from sbert_app.services.runs.estimate import NegativesPreview, RunEstimate, TrainingRate
from sbert_app.services.runs.events import MEASURES
from sbert_app.services.runs.record import Run
from training.evaluation.diagnostics import COLLAPSED_FROM
from training.names import ModelName
from training.pooling import pooling_label

NARROW_FROM = 0.3  # mean cosine of random pairs from which unrelated sentences look related


def no_runs(pooling: PrecomputedTable | None) -> Markup:
    """What stands in place of the curves before the first run, with the precomputed pooling table if it ships."""
    columns = [("pooling", ""), ("dev ρ before", "number"), ("after", "number"), ("random pairs", "number")]
    rows, caption = [], ""
    if pooling is not None and pooling.runs:
        by_variant: dict[str, list[PrecomputedRun]] = {}
        for run in pooling.runs:
            by_variant.setdefault(run.variant, []).append(run)
        rows = [[pooling_label(variant), *_means(runs)] for variant, runs in by_variant.items()]
        caption = (
            f"Measured: regression on STSb from {pooling.settings['base']}, {pooling.runs[0].steps:,} steps, "
            f"{format_count(len(pooling.seeds), 'seed')}, {pooling.machine.get('device', '')}. More under Ablation."
        )
    return render("train/templates/no_runs.html", columns=columns, rows=rows, caption=caption)


def status(run: Run, ahead: int) -> Markup:
    """The opened run: state, progress, results and what they mean. ``ahead``: runs before it in the queue."""
    progress = run.progress
    return render(
        "train/templates/status.html",
        run=run,
        label=state_label(run),
        fraction=progress.step / progress.steps if progress.steps else 0.0,
        facts=_facts(run, ahead),
        errors=_errors(run),
        tiles=_tiles(run),
        settings=settings(run),
        compare_url=f"./?model={quote(str(ModelName.of_run(run.id)), safe='')}" if run.has_model else "",
        settings_url=f"train?run={quote(run.id)}&settings={quote(run.id)}",
    )


def run_list(
    runs: Sequence[Run],
    opened: str,
    colours: Mapping[str, str],
    folded: Mapping[str, RunGroup] = MappingProxyType({}),
    hidden: int = 0,
) -> Markup:
    """Runs, newest first.

    Args:
        runs: those that are listed.
        opened: the id of the one that is shown.
        colours: of those whose curves are drawn, by id.
        folded: the group of each run that stands for its group in one row, by id.
        hidden: how many runs the filter leaves out.
    """
    rows: list[_Row | _GroupRow] = []
    seen: set[str] = set()
    for run in runs:
        group = folded.get(run.id)
        if group is None or run.id == opened:
            rows.append(_row(run, run.id == opened, colours.get(run.id, "")))
        elif group.id not in seen:
            seen.add(group.id)
            rows.append(_group_row(group, [each for each in runs if each.id in group.runs]))
    return render("train/templates/run_list.html", rows=rows, most_curves=len(COLOURS), hidden=hidden)


def planned(estimate: RunEstimate, rate: TrainingRate | None, measuring: bool = False) -> Markup:
    """What a run would do and how long it would take."""
    steps = (
        f"{estimate.steps:,} steps of {estimate.config.batch_size}"
        if estimate.steps is not None
        else "the number of steps is known once the data is loaded"
    )
    return estimate_plan(
        [f"{estimate.rows:,} {estimate.kind}" if estimate.rows is not None else estimate.kind, steps],
        estimate.seconds(rate) if rate else None,
        source=rate.source if rate else "",
        measuring=measuring,
        remarks=estimate.notes,
    )


def negatives(preview: NegativesPreview) -> Markup:
    """Mined hard negatives beside their anchors and positives."""
    return macro("train/negatives")(preview=preview)


def log(text: str) -> Markup:
    """The last lines of the log."""
    return macro("train/log")(text=text)


def state_label(run: Run) -> str:
    """The state in a word; a run that was asked to stop but has not yet is stopping."""
    return "stopping…" if run.is_stopping else run.state


def settings(run: Run) -> str:
    """The settings that distinguish runs, in one line."""
    config = run.config
    pooling = run.progress.pooling or config.pooling or "the base's pooling"
    parts = [
        config.objective + (f" {config.concatenation}" if "concatenation" in config.objective_class.fields else ""),
        f"teacher {config.teacher}" if config.teacher else "",
        pooling_label(pooling),
        config.base,
        config.train_data.rsplit("/", 1)[-1],
        f"{config.max_steps:,} steps" if config.max_steps else _epochs(config.epochs),
        f"batch {config.batch_size}"
        + (f", {config.mini_batch_size} at a time" if config.mini_batch_size is not None else ""),
        "mined negatives" if config.mine_negatives else "",
        f"Matryoshka {', '.join(map(str, config.matryoshka_dims))}" if config.matryoshka_dims else "",
        f"lr {format_learning_rate(config.learning_rate)}",
        f"LoRA {config.lora_rank}" if config.lora_rank else "",
        f"seed {config.seed}",
    ]
    return " · ".join(filter(None, parts))


def format_learning_rate(value: float) -> str:
    """A learning rate as people write it: 2e-5."""
    return f"{value:g}".replace("e-0", "e-")


def possible_actions(run: Run | None) -> dict[str, bool]:
    """Which actions make sense for a run, by the name of their component in `live.Panel`."""
    at_work = run is not None and run.state in AT_WORK
    return {
        "stop": at_work and run is not None and not run.is_stopping,
        "resume": run is not None and not at_work and run.state != "finished",
        "export": run is not None and run.state != "running" and run.has_model,
        "delete": run is not None and not at_work,
        "more": run is not None,
    }


def _epochs(epochs: float) -> str:
    return f"{epochs:g} epoch{'' if epochs == 1 else 's'}"


def _means(runs: Sequence[PrecomputedRun]) -> tuple[str, str, str]:
    """Mean dev ρ ×100 before and after training, and mean cosine of random pairs."""
    before, after = (100 * fmean(getattr(run, name) for run in runs) for name in ("before", "after"))
    return f"{before:.1f}", f"{after:.1f}", f"{fmean(run.random_cosine for run in runs):.2f}"


def _facts(run: Run, ahead: int) -> list[str]:
    """Step, time left, throughput, device; for a run in the queue, its place there."""
    progress = run.progress
    if run.state == "queued":
        return [f"{format_count(ahead, 'run')} ahead in the queue" if ahead else "next in the queue"]
    facts = [f"step {progress.step:,} of {progress.steps:,}" if progress.steps else "loading data and model"]
    if run.state == "running":
        if progress.seconds_left is not None:
            facts.append(f"{format_estimate(progress.seconds_left)} left")
        if progress.sentences_per_second:
            facts.append(f"{progress.sentences_per_second:,.0f} sentences/s")
    elif run.record.started and run.record.ended:
        facts.append(f"ended {format_time(run.record.ended)}")
    if progress.device:
        facts.append(f"{progress.device}, {progress.dtype or ''}")
    if progress.memory_gb is not None:
        facts.append(f"{progress.memory_gb:.1f} GB of its memory")
    return facts


def _errors(run: Run) -> list[str]:
    """Why a run ended early and what can be done, and whether its space has collapsed."""
    errors = []
    if run.state == "failed":
        errors.append(f"{run.reason}. The log below has the details.")
    elif run.state == "interrupted":
        errors.append(f"{run.reason}. Resume continues from its last checkpoint.")
    if run.progress.collapsed:
        errors.append(f"{run.progress.collapsed}.")
    return [error[:1].upper() + error[1:] for error in errors]


def _tiles(run: Run) -> list[tuple[str, str, str]]:
    """(value, label, remark) of the metric that selects the model, its gain over the base, and the random pairs."""
    progress = run.progress
    best, base = progress.figure(progress.best), progress.figure(progress.baseline)
    latest, digits = progress.latest, _digits(run)
    metric = MEASURES[progress.measure or "loss"][0]
    tiles = []
    if best is not None and progress.best is not None:
        tiles.append((f"{best:.{digits}f}", f"best {metric}", f"at step {progress.best['step']:,}"))
        if base is not None:
            tiles.append((_gain(best - base, digits), "against the base", f"which has {base:.{digits}f}"))
        last = progress.figure(latest)
        if latest is not None and last is not None and latest is not progress.best:
            tiles.append((f"{last:.{digits}f}", "last", f"at step {latest['step']:,}"))
    elif base is not None:
        tiles.append((f"{base:.{digits}f}", metric, "of the base, before the first step"))
    shorter = (progress.best or latest or {}).get("by_dimension") or {}
    factor = MEASURES[progress.measure or "loss"][1]
    for dimension, value in shorter.items():
        tiles.append((f"{factor * value:.{digits}f}", f"with {dimension} dimensions", "the vectors truncated"))
    if latest is not None and latest.get("plain_cosine") is not None:
        cosine = max(latest["plain_cosine"], latest.get("random_cosine") or -1.0)
        tiles.append((f"{cosine:.2f}", "cosine of random pairs", _openness(cosine)))
    return tiles


def _digits(run: Run) -> int:
    """Decimals of the metric that are worth showing."""
    return 4 if run.progress.measure == "loss" else 1


def _gain(value: float, digits: int) -> str:
    """A difference with its sign; a true minus sign."""
    return f"{value:+.{digits}f}".replace("-", "−")


def _openness(cosine: float) -> str:
    """What a mean cosine of random pairs says about the space."""
    if cosine > COLLAPSED_FROM:
        return "collapsed: all sentences look alike"
    return "narrow: unrelated sentences look related" if cosine > NARROW_FROM else "the space is open"


@dataclass(frozen=True)
class _GroupRow:
    """An experiment in the list."""

    group: str  # its name
    label: str
    runs: str  # how many, in words
    states: str
    created: str


def _group_row(group: RunGroup, runs: Sequence[Run]) -> _GroupRow:
    states = Counter(run.state for run in runs)
    return _GroupRow(
        group=group.name,
        label=group.label,
        runs=format_count(len(runs), "run"),
        states=", ".join(f"{count} {state}" for state, count in states.most_common()),
        created=format_time(max(run.record.created for run in runs)),
    )


@dataclass(frozen=True)
class _Row:
    """A run in the list."""

    id: str
    name: str
    state: str
    label: str
    collapsed: bool
    settings: str
    created: str
    done: str  # of the steps, while it runs
    best: str
    gain: str
    is_open: bool
    colour: str  # of its curves; empty when they are not drawn


def _row(run: Run, is_open: bool, colour: str) -> _Row:
    progress, digits = run.progress, _digits(run)
    best, base = progress.figure(progress.best), progress.figure(progress.baseline)
    return _Row(
        id=run.id,
        name=run.name,
        state=run.state,
        label=state_label(run),
        collapsed=bool(progress.collapsed),
        settings=settings(run),
        created=format_time(run.record.created),
        done=f"{100 * progress.step // progress.steps} %" if run.state == "running" and progress.steps else "",
        best=MISSING if best is None else f"{best:.{digits}f}",
        gain=_gain(best - base, digits) if best is not None and base is not None else "",
        is_open=is_open,
        colour=colour,
    )
