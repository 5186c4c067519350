"""What the Train page shows, as HTML. Pure functions; every text of a user is escaped here."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from html import escape
from statistics import fmean
from urllib.parse import quote

from sbert_app.figures.training import COLOURS
from sbert_app.services.experiments.precomputed import PrecomputedRun, PrecomputedTable
from sbert_app.services.runs.estimate import RunEstimate, TrainingRate
from sbert_app.services.runs.events import MEASURES
from sbert_app.services.runs.record import AT_WORK, Run
from training.evaluation.diagnostics import COLLAPSED_FROM

STATE_WORDS = {
    "queued": "waiting for its turn",
    "running": "running",
    "finished": "finished",
    "failed": "failed",
    "stopped": "stopped",
    "interrupted": "interrupted",
}
NARROW_FROM = 0.3  # mean cosine of random pairs from which the space is no longer open

EXPLAINED = """
<div class="explained">
  <h3>What the curves will say</h3>
  <dl>
    <dt>Spearman ρ ×100</dt><dd>Do the cosines of the dev pairs rank as people ranked them? It should rise; the
      base's own ρ is its first point.</dd>
    <dt>Loss</dt><dd>What is minimised, on the training batches. It falls even when the model gets worse at
      everything else, so never look at it alone.</dd>
    <dt>Cosine of random pairs</dt><dd>Unrelated sentences should stay near 0. When they drift towards 1, every
      sentence looks like every other: the space has collapsed.</dd>
  </dl>
</div>"""


def nothing_yet(pooling: PrecomputedTable | None) -> str:
    """The place of the curves before the first run; with what others measured, if that ships."""
    return (
        '<section class="card first"><h3>No run yet</h3><p class="lead">Press <b>Start</b>: the 60-second demo is '
        f"filled in, and its curves grow here, step by step.</p>{EXPLAINED}{_measured(pooling)}</section>"
    )


def _measured(table: PrecomputedTable | None) -> str:
    """Dev ρ before and after, by pooling, from the table that ships."""
    if table is None or not table.runs:
        return ""
    by_variant: dict[str, list[PrecomputedRun]] = {}
    for run in table.runs:
        by_variant.setdefault(run.variant, []).append(run)
    rows = "".join(
        f"<tr><td>{escape(variant.replace('cls', 'CLS'))}</td>"
        + "".join(f"<td class='number'>{value}</td>" for value in _means(runs))
        + "</tr>"
        for variant, runs in by_variant.items()
    )
    steps, machine = table.runs[0].steps, table.machine.get("device", "")
    return (
        "<table class='plain'><caption>Measured: regression on STSb from "
        f"{escape(str(table.settings['base']))}, {steps:,} steps, {len(table.seeds)} "
        f"seed{'s'[: len(table.seeds) != 1]}, {escape(machine)}. More under Ablation.</caption>"
        "<thead><tr><th>pooling</th><th>dev ρ before</th><th>after</th><th>random pairs</th></tr></thead>"
        f"<tbody>{rows}</tbody></table>"
    )


def _means(runs: Sequence[PrecomputedRun]) -> tuple[str, str, str]:
    before, after = (100 * fmean(getattr(run, name) for run in runs) for name in ("before", "after"))
    return f"{before:.1f}", f"{after:.1f}", f"{fmean(run.random_cosine for run in runs):.2f}"


def status(run: Run, ahead: int) -> str:
    """The opened run: state, how far, how good, and what it means. ``ahead``: runs before it in the queue."""
    return (
        f'<section class="card first run" aria-live="polite"><header><h2>{escape(run.name)}</h2>{chip(run)}</header>'
        f"{_bar(run)}<p class='foot'>{_pace(run, ahead)}</p>{_trouble(run)}{_figures(run)}"
        f"<p class='foot'>{escape(settings(run))}</p>{_notes(run)}{_compare(run)}</section>"
    )


def run_list(runs: Sequence[Run], opened: str, colours: Mapping[str, str]) -> str:
    """All runs, the newest first. A name opens its run; a tick lays its curves over the others."""
    if not runs:
        return '<p class="note">Runs appear here, newest first; they stay when the browser or the app is closed.</p>'
    rows = "".join(_row(run, run.id == opened, colours.get(run.id)) for run in runs)
    return (
        '<div class="runs"><table class="plain"><caption>A name opens a run. Tick several to lay their curves over '
        f'each other (up to {len(COLOURS)}).</caption><thead><tr><th><span class="sr">overlay</span></th><th>run</th>'
        f"<th>state</th><th>best</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def planned(plan: RunEstimate, rate: TrainingRate | None, measuring: bool = False) -> str:
    """What a run would do, and how long it would take."""
    rows = f"{plan.rows:,} {plan.kind}" if plan.rows is not None else plan.kind
    steps = f"{plan.steps:,} steps of {plan.config.batch_size}" if plan.steps is not None else "steps known then"
    seconds = plan.seconds(rate) if rate else None
    if seconds is not None and rate is not None:
        estimate = f"<b>about {duration(seconds)}</b>"
        source = f"from {escape(rate.source)}"
    else:
        estimate = "measuring the rate of this machine…" if measuring else "<b>time unknown</b>"
        source = "" if measuring else "no run from this base was made here yet; its first seconds will tell"
    notes = "".join(f"<li>{escape(note)}</li>" for note in plan.notes)
    return (
        f'<div class="plan" aria-live="polite"><p>{rows} · {steps} · {estimate}</p>'
        f'<p class="foot">{source}</p>{f"<ul>{notes}</ul>" if notes else ""}</div>'
    )


def chip(run: Run) -> str:
    """The state as a word in a pill."""
    words = "stopping…" if run.is_stopping else STATE_WORDS[run.state]
    collapsed = '<span class="chipword bad">collapsed</span>' if run.progress.collapsed else ""
    return f'<span class="chipword {run.state}">{words}</span>{collapsed}'


def settings(run: Run) -> str:
    """The settings that tell runs apart, in one line."""
    config = run.config
    pooling = run.progress.pooling or config.pooling or "the base's pooling"
    length = (
        f"{config.max_steps:,} steps" if config.max_steps else f"{config.epochs:g} epoch{'s'[: config.epochs != 1]}"
    )
    data = config.train_data.rsplit("/", 1)[-1]
    parts = [
        config.objective + (f" {config.concatenation}" if config.objective == "classification" else ""),
        pooling.replace("cls", "CLS"),
        config.base,
        data,
        length,
        f"batch {config.batch_size}",
        f"rate {rate(config.learning_rate)}",
        f"LoRA {config.lora_rank}" if config.lora_rank else "",
        f"seed {config.seed}",
    ]
    return " · ".join(filter(None, parts))


def rate(value: float) -> str:
    """A learning rate as people write it: 2e-5."""
    return f"{value:g}".replace("e-0", "e-")


def log_view(text: str) -> str:
    """The last lines of the log."""
    return f'<pre class="log" tabindex="0">{escape(text) or "nothing yet"}</pre>'


def duration(seconds: float) -> str:
    """As a person would say it."""
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    hours = minutes / 60
    return f"{hours:.1f} hours" if hours < 48 else f"{hours / 24:.1f} days"


def _bar(run: Run) -> str:
    progress = run.progress
    share = progress.step / progress.steps if progress.steps else 0.0
    return (
        f'<div class="bar" role="progressbar" aria-label="steps done" aria-valuenow="{share * 100:.0f}" '
        f'aria-valuemin="0" aria-valuemax="100"><i style="width:{share * 100:.1f}%"></i></div>'
    )


def _pace(run: Run, ahead: int) -> str:
    """Step, time left, rate, device."""
    progress = run.progress
    if run.state == "queued":
        return f"{ahead} run{'s'[: ahead != 1]} before it" if ahead else "next; its worker is getting ready"
    parts = [f"step {progress.step:,} of {progress.steps:,}" if progress.steps else "data and model are being loaded"]
    if run.state == "running":
        if progress.seconds_left is not None:
            parts.append(f"{duration(progress.seconds_left)} left")
        if progress.sentences_per_second:
            parts.append(f"{progress.sentences_per_second:,.0f} sentences/s")
    elif run.record.started and run.record.ended:
        parts.append(f"ended {_clock(run.record.ended)}")
    if progress.device:
        parts.append(f"{escape(progress.device)}, {escape(progress.dtype or '')}")
    return " · ".join(parts)


def _trouble(run: Run) -> str:
    """Why it ended early and what can be done; and the collapse, in words."""
    found = ""
    resume = " Resume goes on from its last checkpoint."
    if run.state == "failed":
        found += _problem(f"{run.record.reason}. The log below has the details.")
    elif run.state == "interrupted":
        found += _problem(f"{run.record.reason}.{resume}")
    if run.progress.collapsed:
        found += _problem(f"{run.progress.collapsed}.")
    return found


def _problem(message: str) -> str:
    return f'<div class="problem">{escape(message[:1].upper() + message[1:])}</div>'


def _figures(run: Run) -> str:
    """The figure it is judged by, its gain over the base, and the random pairs, each with its meaning."""
    progress = run.progress
    best, base = progress.figure(progress.best), progress.figure(progress.baseline)
    latest, digits = progress.latest, _digits(run)
    words = MEASURES[progress.measure or "loss"][0]
    tiles = []
    if best is not None and progress.best is not None:
        tiles.append((f"{best:.{digits}f}", f"best {words}", f"at step {progress.best['step']:,}"))
        if base is not None:
            tiles.append((_gain(best - base, digits), "against the base", f"which has {base:.{digits}f}"))
        last = progress.figure(latest)
        if latest is not None and last is not None and latest is not progress.best:
            tiles.append((f"{last:.{digits}f}", "last", f"at step {latest['step']:,}"))
    elif base is not None:
        tiles.append((f"{base:.{digits}f}", words, "of the base, before the first step"))
    if latest is not None and latest.get("plain_cosine") is not None:
        cosine = max(latest["plain_cosine"], latest.get("random_cosine") or -1.0)
        tiles.append((f"{cosine:.2f}", "cosine of random pairs", _openness(cosine)))
    return "".join(
        ["<div class='tiles'>"]
        + [f"<div><b>{value}</b><span>{label}</span><small>{words}</small></div>" for value, label, words in tiles]
        + ["</div>"]
    )


def _digits(run: Run) -> int:
    """Decimals that are worth showing of the figure that the run is judged by."""
    return 4 if run.progress.measure == "loss" else 1


def _gain(value: float, digits: int) -> str:
    """With its sign, as print has it."""
    return f"{value:+.{digits}f}".replace("-", "−")


def _openness(cosine: float) -> str:
    """What a mean cosine of random pairs says about the space."""
    if cosine > COLLAPSED_FROM:
        return "collapsed: all sentences look alike"
    return "narrow: unrelated sentences look related" if cosine > NARROW_FROM else "the space is open"


def _compare(run: Run) -> str:
    if not run.has_model:
        return ""
    return f'<p><a class="go" href="./?model={quote(f"run:{run.id}", safe="")}">Open in Compare</a></p>'


def _notes(run: Run) -> str:
    return "".join(f"<p class='foot'>{escape(note)}</p>" for note in run.progress.notes)


def _row(run: Run, is_open: bool, colour: str | None) -> str:
    progress, run_id = run.progress, escape(run.id)
    best, base = progress.figure(progress.best), progress.figure(progress.baseline)
    digits = _digits(run)
    figure = "–" if best is None else f"{best:.{digits}f}"
    gain = f"<small>{_gain(best - base, digits)}</small>" if best is not None and base is not None else ""
    share = (
        f"<small>{100 * progress.step // progress.steps} %</small>" if run.state == "running" and progress.steps else ""
    )
    name = escape(run.name)
    dot = f"<i style='background:{colour}'></i>" if colour else ""
    return (
        f'<tr class="{"open" if is_open else ""}"><td><input type="checkbox" data-overlay="{run_id}" '
        f'data-key="tick-{run_id}" aria-label="overlay {name}"{" checked" if colour else ""}></td>'
        f'<td><button class="link" data-open="{run_id}" data-key="open-{run_id}">{dot}{name}</button>'
        f"<p>{escape(settings(run))} · {_clock(run.record.created)}</p></td>"
        f"<td>{chip(run)}{share}</td><td class='number'>{figure}{gain}</td></tr>"
    )


def _clock(seconds: float) -> str:
    """A moment, in the time of the machine that serves."""
    then, today = time.localtime(seconds), time.localtime()
    same_day = (then.tm_year, then.tm_yday) == (today.tm_year, today.tm_yday)
    return time.strftime("%H:%M" if same_day else "%-d %b %H:%M", then)


def can(run: Run | None) -> dict[str, bool]:
    """Which actions make sense for a run."""
    at_work = run is not None and run.state in AT_WORK
    return {
        "stop": at_work and run is not None and not run.is_stopping,
        "resume": run is not None and not at_work and run.state != "finished",
        "export": run is not None and run.state != "running" and run.has_model,
        "delete": run is not None and not at_work,
        "more": run is not None,
    }
