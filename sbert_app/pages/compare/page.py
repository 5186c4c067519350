"""The front page: how similar two sentences are and why. The second tab compares every pair of up to 500 sentences."""

from math import comb
from typing import Any

import gradio as gr
from markupsafe import Markup

from sbert_app.figures import compare as figures
from sbert_app.formats import format_count, format_number
from sbert_app.pages.compare.two_sentences import TwoSentences
from sbert_app.pages.components.address import inputs_of, keep_touched, remember
from sbert_app.pages.components.events import Update, on_open, run_js
from sbert_app.pages.components.measure_tab import MeasureTab, visible
from sbert_app.pages.components.messages import heading, lead
from sbert_app.pages.components.pickers import cross_encoder_picker, model_and_pooling
from sbert_app.pages.components.report import of_page, report_button
from sbert_app.pages.components.templates import macro, render
from sbert_app.services.background.watch import Watch
from sbert_app.services.compare import examples
from sbert_app.services.compare.comparison import MAX_CROSS_LINES, MAX_LINES, AllPairs, compare_all
from sbert_app.services.container import Services
from training.catalogue import DEFAULT_MODEL
from training.errors import UserFacingError
from training.models.model import VectorModel

PRESS = lead("Press the button to see which lines are the most similar.")


def build(services: Services) -> None:
    """Builds the page inside the open Blocks: a tab for two sentences, and one for many."""
    gr.HTML(
        heading(
            "Compare", "Type two sentences. See how similar a language model finds them, and why."
        )
    )
    with gr.Tabs(overflow_behavior="wrap") as tabs:
        with gr.Tab("Two sentences", id="two"):
            TwoSentences(services).wire()
        with gr.Tab("Many sentences", id="many") as many:
            lines = _many_sentences(services)
    # The first tab writes its question to the address itself, so only the second one is remembered.
    remember(inputs_of(many, gr.Textbox), tabs)

    def fill_in(request: gr.Request) -> Any:
        """Fills in the sentences that another page has sent: /?tab=many&sentences=<token>."""
        token = request.query_params.get("sentences")
        # If the address has lines as well, `remember` fills them in.
        if not token or lines.elem_id in request.query_params:
            return gr.skip()
        try:
            sentences = services.shared_sentences.sentences(token)
        except UserFacingError as error:
            gr.Warning(error.public)
            return gr.skip()
        # One line for each sentence.
        return "\n".join(" ".join(sentence.split()) for sentence in sentences)

    filled_in = on_open(fill_in, lines)
    # Fills in lines that are too long for the address, which the browser keeps until the window is
    # closed.
    restored = run_js(filled_in.then, "() => window.keptLines()", outputs=lines)
    keep_touched([lines], restored)
    run_js(lines.change, "(text) => { window.keepLines(text); }", lines)


def _many_sentences(services: Services) -> gr.Textbox:
    """Builds the second tab with the lines of an example, and returns the field of the sentences."""
    lines = gr.Textbox(
        examples.lines(),
        label="Sentences, one per line",
        info=f"2 to {MAX_LINES} lines. The cross-encoder compares every pair of up to {MAX_CROSS_LINES} lines.",
        lines=8,
        max_lines=16,
        elem_id="lines",
    )
    with gr.Row(elem_id="many-settings"):
        model, pooling = model_and_pooling(services, "many")
        cross = cross_encoder_picker(elem_id="many-cross")
    tab = MeasureTab.build(
        services, "many", "Compare all pairs", ("compare-all", "stop-all", "times"), PRESS
    )
    with gr.Row():
        cosine_matrix = gr.Plot(
            show_label=False, elem_id="cosine-matrix", min_width=320, visible=False
        )
        cross_matrix = gr.Plot(
            show_label=False, elem_id="cross-matrix", min_width=320, visible=False
        )
    shows = {"The most similar": [tab.status], "All pairs": [cosine_matrix, cross_matrix]}
    report_button(services, *of_page("Many sentences", shows, [model, pooling, cross]), "many")

    def compare(
        watch: Watch,
        lines: str,
        model: str,
        pooling: str,
        cross: str | None,
    ) -> Update:
        """Compares every pair of the lines. Without a cross-encoder, its matrix stays hidden."""
        encoder = services.models.get(model or DEFAULT_MODEL, VectorModel, pooling or None)
        cross_encoder = services.models.cross_encoder_or_none(cross)
        watch.report(0, "Comparing all pairs")
        pairs = compare_all(encoder, cross_encoder, lines, watch.should_stop)
        cosine_figure = figures.cosine_matrix(pairs.lines, pairs.cosine, "cosine of the bi-encoder")
        cross_figure = None
        if pairs.cross is not None:
            cross_figure = figures.cosine_matrix(
                pairs.lines, pairs.cross, "score of the cross-encoder"
            )
        return {
            tab.status: ranked(pairs) + render("compare/templates/all_pairs.html", pairs=pairs),
            cosine_matrix: visible(cosine_figure),
            cross_matrix: visible(cross_figure),
        }

    # Both figures are hidden after an error or a stop.
    empty = {cosine_matrix: visible(None), cross_matrix: visible(None)}
    tab.wire(compare, [lines, model, pooling, cross], empty)
    return lines


def ranked(pairs: AllPairs) -> Markup:
    """Renders a table of the pairs, the most similar first."""
    columns = [("cosine", "number"), ("sentence", ""), ("sentence", "")]
    if pairs.cross is not None:
        columns.insert(1, ("cross-encoder", "number"))
    rows = []
    # ``score`` is the score of the cross-encoder, or None if no cross-encoder was chosen.
    for cosine, score, first, second in pairs.ranked():
        row = [format_number(cosine, 3), first, second]
        if score is not None:
            row.insert(1, format_number(score, 3))
        rows.append(row)
    count = comb(len(pairs.lines), 2)
    which = "All" if len(rows) == count else f"The first {len(rows)} of"
    caption = f"{which} {format_count(count, 'pair')}, most similar first"
    return macro("compare/ranked")(columns=columns, rows=rows, caption=caption)
