"""The tab Folds: trains on all folds but one and scores that one (argument similarity, the paper's section 4.3)."""

from statistics import fmean
from typing import Any

import gradio as gr
from markupsafe import Markup

from sbert_app.pages.components import messages
from sbert_app.pages.components.events import Output, event_options, on_open
from sbert_app.pages.components.experiments import ExperimentPanel, progress_of
from sbert_app.pages.components.file_panel import FilePanel, chosen_name
from sbert_app.pages.components.pickers import HINT, model_picker
from sbert_app.pages.components.report import of_page, report_button
from sbert_app.pages.components.templates import render
from sbert_app.pages.evaluate.pickers import shipped
from sbert_app.services.access import visitor_of
from sbert_app.services.container import Services
from sbert_app.services.experiments import folds
from sbert_app.services.experiments.experiment import FOLDS, Experiment, Experiments
from sbert_app.services.results.transfer import pairs_by_genre
from training.errors import UserFacingError

BY_TOPIC = "leave one topic out"
K_FOLDS = "k folds"
DEFAULT_STEPS = 60
INTRO = (
    "Start trains one run for each fold and scores it on the pairs of that fold, which it has not seen. The runs also "
    "appear on the Train page, and continue when you close this page. In the paper (Table 3, SBERT-AFS-base) ρ is "
    "74.13 where each topic is in the training data too, and 50.65 on a held-out topic. A file needs pairs with scores "
    "and, to leave topics out, a column topic. Without a file, STSb dev is split by its genres."
)


def build(services: Services) -> None:
    """Builds the tab inside the open Blocks. Before the first experiment, it shows a shipped measurement."""
    # `check_run` refuses runs that a visitor may not start.
    experiments = Experiments(services.jobs, services.access.check_run)
    gr.HTML(messages.note(INTRO))
    with gr.Row():
        file = gr.File(
            label="Your own scored pairs", height=120, min_width=260, elem_id="folds-file"
        )
        with gr.Column(min_width=260):
            split = gr.Radio(
                [BY_TOPIC, K_FOLDS], value=BY_TOPIC, label="Split", elem_id="folds-how"
            )
            k = gr.Slider(
                2, folds.MAX_FOLDS, value=5, step=1, label="Folds", visible=False, elem_id="folds-k"
            )
        base = model_picker(services, info=HINT)
        steps = gr.Number(
            DEFAULT_STEPS,
            precision=0,
            minimum=1,
            label="Steps per run",
            info="Of 16 pairs",
            elem_id="folds-steps",
        )
    file_panel = FilePanel(services, file, "folds")
    button = gr.Button("Start", variant="primary", elem_id="start-folds")
    file_panel.hold([button])
    error = gr.HTML(elem_id="folds-told")
    panel = ExperimentPanel(experiments, FOLDS, "folds", "Experiment", watches_always=False)
    example = shipped("fold_scores")
    table = gr.HTML(example, elem_id="folds-table")
    report_button(services, *of_page("Folds", {"Each fold": [table]}, [base, steps]), "folds")

    def start(
        file: str | None,
        split: str,
        k: float,
        base: str,
        steps: float | None,
        request: gr.Request,
        *how: str,
    ) -> tuple[Any, Any]:
        """Queues a run for each fold. Returns the error or "", and the id of the experiment.

        ``how`` are the inputs of the file panel, which say how the file is read.
        """
        count = int(steps or DEFAULT_STEPS)
        try:
            home = services.settings.home
            path = chosen_name(services, file, *how) if file else pairs_by_genre(home)
            # None stands for a fold for each topic.
            parts = int(k) if split == K_FOLDS else None
            experiment = folds.start(
                path,
                parts,
                experiments,
                visitor_of(request),
                base=services.access.check_model(base),
                max_steps=count,
                # Evaluated after the last step, and not in between.
                eval_every=count,
            )
        except UserFacingError as wrong:
            return messages.error_message(wrong), gr.skip()
        return "", experiment.id

    def show(experiment: Experiment | None) -> dict[Any, Output]:
        # Called only if the page shows an older progress.
        def draw() -> Markup:
            return score_table(experiment) if experiment else example

        return {table: Output(progress_of(experiment), draw)}

    show_on = panel.wire(show, [table])
    # The timer does not run when the page is opened, so the newest experiment is shown here.
    show_on(on_open().then)
    split.change(lambda split: gr.Slider(visible=split == K_FOLDS), split, k, **event_options())
    inputs = [file, split, k, base, steps, *file_panel.inputs]
    started = button.click(start, inputs, [error, panel.selected], **event_options())
    show_on(started.success)


def score_table(experiment: Experiment) -> Markup:
    """Renders a table of ρ on each fold before and after training on the other folds, with the averages so far."""
    before = []
    after = []
    for cell in experiment.cells:
        # Both averages are over the folds whose run is finished.
        if cell.before is not None and cell.value is not None:
            before.append(cell.before)
            after.append(cell.value)
    return render(
        "evaluate/templates/fold_scores.html",
        data=experiment.record.name,
        by=experiment.record.by,
        folds=experiment.cells,
        done=len(after),
        before=fmean(before) if before else None,
        after=fmean(after) if after else None,
    )
