"""What the Ablation page shows, as HTML. Pure functions; texts that can hold a user's words are escaped here."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from urllib.parse import quote

from sbert_app.formats import format_duration, format_estimate
from sbert_app.services.experiments.ablations import Ablation
from sbert_app.services.experiments.precomputed import PrecomputedTable
from sbert_app.services.experiments.record import Sweep, SweepCell
from sbert_app.services.experiments.statistics import VariantRow, by_chance
from sbert_app.services.experiments.sweeps import SweepEstimate
from sbert_app.services.runs.estimate import TrainingRate
from sbert_app.services.runs.record import AT_WORK
from training.registry import DEFAULT_MODEL

WORDS = {
    "queued": "waits",
    "running": "runs",
    "failed": "failed",
    "stopped": "stopped",
    "interrupted": "cut off",
    "deleted": "no run",
}
SPEAKS_OF_BASE = (
    f"The base here, {DEFAULT_MODEL}, was already tuned on sentence pairs, with mean pooling: it starts high. From a "
    "raw <code>bert-base-uncased</code> (on the Hub), as in the paper, the gaps are larger."
)


def question(ablation: Ablation) -> str:
    """What is asked, and what the answer means."""
    return f'<p class="lead"><b>{escape(ablation.question)}</b></p><p class="note">{escape(ablation.lesson)}</p>'


def measured_where(table: PrecomputedTable) -> str:
    """Where the shipped numbers come from: runs, seeds, steps, machine, day, command."""
    settings, machine = table.settings, table.machine
    steps = sorted({run.steps for run in table.runs})
    seconds = sorted(run.seconds for run in table.runs)
    seeds = _count(len(table.seeds), "seed")
    facts = {
        "Runs": f"{len(table.runs)}: {seeds} ({', '.join(map(str, table.seeds))})",
        "Length": f"{' to '.join(f'{step:,}' for step in steps)} steps of {settings['batch_size']} rows, "
        f"learning rate {settings['learning_rate']:g}",
        "Trained on": f"{settings['train_data']}, {table.training_rows:,} rows; a run saw "
        f"{min(steps[-1] * settings['batch_size'], table.training_rows):,} of them",
        "Measured on": f"{settings['eval_data']}, 1,500 pairs, before the first step and after the last",
        "Machine": f"{machine['device']}"
        + (f", {_count(int(machine['threads']), 'thread')}" if "threads" in machine else "")
        + f", {machine['dtype']}, torch {machine['torch']}; "
        f"a run took {format_duration(seconds[len(seconds) // 2])} (median)",
        "Day": table.measured,
        "Command": f"<code>{escape(table.command)}</code>",
    }
    rows = "".join(
        f"<dt>{name}</dt><dd>{fact if name == 'Command' else escape(fact)}</dd>" for name, fact in facts.items()
    )
    uneven = "" if len(table.runs) == len(table.seeds) * _variants(table) else _UNEVEN
    return f"<details class='where' open><summary>Where these numbers come from: {len(table.runs)} runs, {seeds}, " + (
        f"{steps[-1]:,} steps each</summary><dl>{rows}</dl>{uneven}</details>"
    )


_UNEVEN = '<p class="note">The last seed has not been measured for every variant; each row says its own number.</p>'


def not_measured(ablation: Ablation) -> str:
    """The honest empty place of a table that does not ship."""
    return (
        f'<section class="card first"><h3>{escape(ablation.title)}</h3><p class="lead">No table of this ablation '
        "ships: nobody has measured it yet. Choose seeds and steps below and press <b>Start</b>; the grid fills here, "
        "cell by cell, on your machine.</p></section>"
    )


def legend(ablation: Ablation, rows: Sequence[VariantRow]) -> str:
    """What came out in a sentence, what the bars are, and what to know about our base."""
    paper = (
        f"Grey: the paper’s Table 6, {escape(ablation.setting)} from a raw bert-base-uncased, the mean of ten seeds."
        if ablation.setting
        else "The paper has no figures for this one."
    )
    base = "" if "base" in next(iter(ablation.variants.values())).changes else f'<p class="note">{SPEAKS_OF_BASE}</p>'
    return (
        f'<p class="lead">{_outcome(rows)}</p><p class="note">Blue: measured, the mean over seeds; the whisker is its '
        f"95% interval. Diamond: the base before training, under that variant. {paper}</p>{base}"
    )


def _outcome(rows: Sequence[VariantRow]) -> str:
    """The best and the worst of what was measured, and how far apart, here and in the paper."""
    measured = sorted((row for row in rows if row.summary), key=lambda row: row.summary.mean if row.summary else 0.0)
    if len(measured) < 2:
        return ""
    worst, best = measured[0], measured[-1]
    gap = best.summary.mean - worst.summary.mean if best.summary and worst.summary else 0.0
    papers = [row.paper for row in rows if row.paper is not None]
    compared = f"; in the paper the span is {max(papers) - min(papers):.1f}" if papers else ""
    return (
        f"Best here: <b>{escape(best.label)}</b>. Last: <b>{escape(worst.label)}</b>, {gap:.1f} points below{compared}."
    )


def statistics(rows: Sequence[VariantRow]) -> str:
    """The table: mean ± standard deviation, interval, test against the default, the paper's figure."""
    has_paper = any(row.paper is not None for row in rows)
    default = next(row.label for row in rows if row.is_default)
    paper = '<th class="paper">paper</th>' if has_paper else ""
    body = "".join(_statistics_row(row, has_paper) for row in rows)
    tests = sum(row.against is not None and row.against.p is not None for row in rows)
    chance = (
        f" Each test stands alone: of {tests}, at least one falls below 0.05 by chance in {by_chance(tests):.0%} of "
        "such tables."
        if tests > 1
        else ""
    )
    return (
        '<div class="runs ablation"><table class="plain"><thead><tr><th></th><th class="wide">before</th>'
        '<th>ρ ×100, mean ± sd</th><th class="wide">95% interval</th><th class="wide">seeds</th>'
        f"<th>against {escape(default)}</th>{paper}</tr></thead>"
        f'<tbody>{body}</tbody></table></div><p class="note">Before: the base as it came, under this variant. The '
        "test is Student’s t on the differences within a seed: p is how often a gap like this would come from the "
        f"luck of the seeds alone, if there were none.{chance}</p>"
    )


def planned(plan: SweepEstimate, rate: TrainingRate | None, measuring: bool = False) -> str:
    """What a sweep would do, how long it would take, and what it leaves on the disk."""
    first = next(iter(plan.estimates.values()))
    steps = f"{first.steps:,} steps each" if first.steps is not None else "as long as the data is"
    seconds = plan.seconds(rate) if rate else None
    if seconds is not None and rate is not None:
        estimate, source = f"<b>about {format_estimate(seconds)}</b>", f"from {escape(rate.source)}"
    else:
        estimate = "measuring the rate of this machine…" if measuring else "<b>time unknown</b>"
        source = "" if measuring else "no run from this base was made here yet; its first runs will tell"
    disk = f" · {plan.bytes / 1e9:.1f} GB of models" if plan.bytes else ""
    notes = "".join(f"<li>{escape(note)}</li>" for note in first.notes)
    return (
        f'<div class="plan" aria-live="polite"><p>{len(plan.estimates)} variants × {_count(plan.seeds, "seed")} = '
        f"{plan.runs} runs · {steps} · {estimate}{disk}</p>"
        f'<p class="foot">{source}</p>{f"<ul>{notes}</ul>" if notes else ""}</div>'
    )


def sweep_status(sweep: Sweep) -> str:
    """How far a sweep is, and what went wrong."""
    counts = sweep.counts
    done, total = counts["finished"], len(sweep.cells)
    parts = [f"{done} of {total} runs finished"]
    parts += [f"{counts[state]} {state}" for state in ("failed", "stopped", "interrupted", "deleted") if counts[state]]
    left = sweep.seconds_left
    if left is not None:
        parts.append(f"about {format_estimate(left)} left")
    share = (done + sum(cell.share for cell in sweep.cells if cell.state == "running")) / total
    reasons = "".join(f'<div class="problem">{escape(reason)}</div>' for reason in sweep.reasons)
    return (
        f'<div aria-live="polite"><p class="lead">{" · ".join(parts)}</p><div class="bar" role="progressbar" '
        f'aria-label="runs done" aria-valuenow="{100 * share:.0f}" aria-valuemin="0" aria-valuemax="100">'
        f'<i style="width:{100 * share:.1f}%"></i></div><p class="note">{escape(settings(sweep))}</p>{reasons}</div>'
    )


def grid(sweep: Sweep) -> str:
    """Variants down, seeds across; each cell is its run's figure and opens it."""
    cells = {(cell.variant, cell.seed): cell for cell in sweep.cells}
    heads = "".join(f"<th>seed {seed}</th>" for seed in sweep.record.seeds)
    body = "".join(
        f"<tr><th>{escape(variant.label)}</th>"
        + "".join(_cell(cells[name, seed], variant.label) for seed in sweep.record.seeds)
        + "</tr>"
        for name, variant in sweep.ablation.variants.items()
    )
    return (
        '<div class="runs ablation"><table class="plain grid"><caption>Spearman ρ ×100 on STSb dev after the last '
        f"step. A cell opens its run.</caption><thead><tr><th></th>{heads}</tr></thead><tbody>{body}</tbody></table>"
        "</div>"
    )


def settings(sweep: Sweep) -> str:
    """What all cells of a sweep share, in one line."""
    config = sweep.ablation.config(sweep.ablation.default, sweep.record.seeds[0], **sweep.record.changes)
    length = f"{config.max_steps:,} steps" if config.max_steps else f"{config.epochs:g} epoch"
    fixed = {"base": config.base, "objective": config.objective}
    varied = set(next(iter(sweep.ablation.variants.values())).changes)
    parts = [value for name, value in fixed.items() if name not in varied]
    return " · ".join(
        [*parts, config.train_data, length, f"batch {config.batch_size}", f"rate {config.learning_rate:g}"]
    )


def sweep_name(sweep: Sweep) -> str:
    """How the picker calls a sweep: when, how many seeds, how far."""
    stamp = sweep.id
    when = f"{stamp[6:8]}.{stamp[4:6]}. {stamp[9:11]}:{stamp[11:13]}"
    state = f"{sweep.counts['finished']}/{len(sweep.cells)}" if sweep.state != "finished" else "finished"
    return f"{when} · {_count(len(sweep.record.seeds), 'seed')} · {state}"


def _statistics_row(row: VariantRow, has_paper: bool) -> str:
    summary = row.summary
    if summary is None:
        mean, interval, n = "–", "–", "0"
    else:
        spread = f" ± {summary.deviation:.2f}" if summary.deviation is not None else ""
        mean, n = f"<b>{summary.mean:.2f}</b>{spread}", str(summary.n)
        interval = "one seed: none" if summary.low is None else f"{summary.low:.2f} to {summary.high:.2f}"
    before = "–" if row.before is None else f"{row.before:.2f}"
    paper = f'<td class="number paper">{"–" if row.paper is None else f"{row.paper:.2f}"}</td>' if has_paper else ""
    return (
        f'<tr class="{"chosen" if row.is_default else ""}"><th>{escape(row.label)}</th>'
        f'<td class="number wide">{before}</td><td class="number">{mean}</td><td class="number wide">{interval}</td>'
        f'<td class="number wide">{n}</td><td>{_against(row)}</td>{paper}</tr>'
    )


def _against(row: VariantRow) -> str:
    if row.is_default:
        return "the default"
    if row.against is None:
        return "–"
    p = row.against.p
    told = "" if p is None else f" <small>p {'&lt; 0.001' if p < 0.001 else f'= {p:.3f}'}</small>"
    return f"{row.against.words}{told}"


def _cell(cell: SweepCell, label: str) -> str:
    if cell.run is None:
        return f'<td><span class="cell">{WORDS["deleted"]}</span></td>'
    if cell.value is not None:
        text = f"{cell.value:.2f}"
    elif cell.state == "running" and cell.run.progress.steps:
        text = f"{cell.share:.0%}"
    else:
        text = WORDS.get(cell.state, "no ρ")
    fill = f' style="--done:{100 * cell.share:.0f}%"' if cell.state in AT_WORK else ""
    title = escape(f"{label}, seed {cell.seed}: {cell.run.record.reason or cell.state}")
    return (
        f'<td><a class="cell {cell.state}" href="train?run={quote(cell.run.id)}" title="{title}"{fill}>{text}</a></td>'
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s'[: number != 1]}"


def _variants(table: PrecomputedTable) -> int:
    return len({run.variant for run in table.runs})
