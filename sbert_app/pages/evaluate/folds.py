"""Evaluate, folds: train on all parts but one, score on that one (argument similarity, the paper's section 4.3)."""

from __future__ import annotations

import time
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from sbert_app.pages.components.events import PRIVATE
from sbert_app.pages.components.messages import error_message
from sbert_app.pages.components.pickers import model_picker
from sbert_app.services.container import Services
from sbert_app.services.experiments import folds
from sbert_app.services.experiments.folds import FoldResult, FoldsRecord
from sbert_app.services.results.genres import pairs_by_genre
from training.errors import UserFacingError

TOPICS, EVERY = "leave one topic out", 2.0  # seconds between two looks at the runs
INTRO = (
    '<p class="note">A run for each part that is held out: they wait in the queue, show on the Train page, and go on '
    "if this page is closed. In the paper (Table 3, SBERT-AFS-base) ρ is 74.13 where each topic is in the training "
    "part too, and 50.65 on a topic that is not. A file needs sentence1, sentence2, score and, to leave topics out, "
    "topic; without a file, STSb dev is split, with its genres for topics.</p>"
)


def build(services: Services) -> None:
    """Lay the tab out inside the open Blocks."""
    jobs, home = services.jobs, services.settings.home
    gr.HTML(INTRO)
    with gr.Row():
        file = gr.File(label="Scored pairs of your own", height=120, min_width=260, elem_id="folds-file")
        with gr.Column(min_width=260):
            how = gr.Radio([TOPICS, "k folds"], value=TOPICS, label="Split", elem_id="folds-how")
            k = gr.Slider(2, folds.MAX_FOLDS, value=5, step=1, label="Folds", visible=False, elem_id="folds-k")
        base = model_picker()
        steps = gr.Number(60, label="Steps a run", precision=0, minimum=1, info="Of 16 pairs", elem_id="folds-steps")
    with gr.Row(elem_classes="actions"):
        go = gr.Button("Start", variant="primary", elem_id="start-folds")
        halt = gr.Button("Stop all", elem_id="stop-folds")
    chosen = gr.Dropdown([], label="Shown", visible=False, elem_id="folds-shown")
    told = gr.HTML(elem_id="folds-told")
    table = gr.HTML(_empty(), elem_id="folds-table")
    timer = gr.Timer(EVERY, active=False)

    def start(file: str | None, how: str, k: float, base: str, steps: float | None) -> Any:
        try:
            path = Path(file) if file else pairs_by_genre(home)
            settings = {"base": base, "max_steps": int(steps or 60), "eval_every": int(steps or 60)}
            record = folds.start(path, None if how == TOPICS else int(k), jobs, **settings)
        except UserFacingError as error:
            return {told: error_message(error)}
        return {told: "", chosen: _offered(home, record.id), timer: gr.Timer(active=True), table: _seen(record.id)}

    def _seen(which: str | None) -> str:
        record = next((each for each in folds.records(home) if each.id == which), None)
        return _empty() if record is None else _table(record, folds.results(record, jobs.store))

    def look(which: str | None) -> Any:
        record = next((each for each in folds.records(home) if each.id == which), None)
        if record is None:
            return _empty(), gr.Timer(active=False)
        found = folds.results(record, jobs.store)
        under_way = any(each.state in ("queued", "running") for each in found)
        return _table(record, found), gr.Timer(active=under_way)

    def stop(which: str | None) -> Any:
        record = next((each for each in folds.records(home) if each.id == which), None)
        for each in folds.results(record, jobs.store) if record else []:
            if each.run is not None and each.state in ("queued", "running"):
                jobs.stop(each.run.id)
        return look(which)

    root = gr.context.Context.root_block
    root.load(lambda: _offered(home, None), None, chosen, **PRIVATE).then(look, chosen, [table, timer], **PRIVATE)
    how.change(lambda how: gr.Slider(visible=how != TOPICS), how, k, **PRIVATE)
    go.click(start, [file, how, k, base, steps], [told, chosen, timer, table], **PRIVATE)
    halt.click(stop, chosen, [table, timer], **PRIVATE)
    chosen.input(look, chosen, [table, timer], **PRIVATE)
    timer.tick(look, chosen, [table, timer], **PRIVATE)


def _offered(home: Path, value: str | None) -> Any:
    known = folds.records(home)
    names = [
        (f"{each.data}, {each.by}, {time.strftime('%d %b %H:%M', time.localtime(each.created))}", each.id)
        for each in known
    ]
    return gr.Dropdown(names, value=value or (known[0].id if known else None), visible=bool(known))


def _empty() -> str:
    return '<p class="note">Nothing has been split yet. Start trains one run for each part, about a minute each.</p>'


def _table(record: FoldsRecord, found: list[FoldResult]) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(each.name)}</th><td class="number">{each.test_pairs:,}</td>'
        f'<td class="number">{_figure(each.before)}</td><td class="number">{_figure(each.after)}</td>'
        f"<td>{escape(_state(each))}</td></tr>"
        for each in found
    )
    done = [each for each in found if each.after is not None and each.before is not None]
    before = sum(each.before or 0 for each in done) / len(done) if done else None
    after = sum(each.after or 0 for each in done) / len(done) if done else None
    return (
        f'<p class="lead">{escape(record.data)}, {escape(record.by)}: {len(done)} of {len(found)} parts scored.</p>'
        '<div class="scores tablewrap"><table class="plain"><thead><tr><th>Held out</th><th class="number">pairs</th>'
        '<th class="number">ρ before</th><th class="number">ρ after training on the rest</th><th>run</th></tr></thead>'
        f'<tbody>{rows}<tr><th scope="row">average</th><td></td><td class="number">{_figure(before)}</td>'
        f'<td class="number"><b>{_figure(after)}</b></td><td></td></tr></tbody></table></div>'
    )


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _state(found: FoldResult) -> str:
    if found.run is None:
        return "deleted"
    progress = found.run.progress
    share = f", {100 * progress.step // progress.steps} %" if found.state == "running" and progress.steps else ""
    return found.state + share
