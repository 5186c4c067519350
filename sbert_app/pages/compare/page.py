"""The front page: how similar two sentences are and why, and in a second tab all pairs of a few hundred."""

from __future__ import annotations

from typing import Any

import gradio as gr

from sbert_app.pages.compare import many
from sbert_app.pages.compare.two_sentences import TwoSentences
from sbert_app.pages.components.messages import heading
from sbert_app.services.container import Services
from training.errors import UserFacingError


def build(services: Services) -> None:
    """Build the page inside the open Blocks."""
    gr.HTML(heading("SBERT Lab", "How similar are two sentences, and why?"))
    with gr.Tabs() as tabs:
        with gr.Tab("Two sentences", id="two"):
            TwoSentences(services).wire()
        with gr.Tab("Many sentences", id="many"):
            lines = many.build(services)

    def opened(request: gr.Request) -> tuple[Any, Any]:
        return _opened_by_link(services, request)

    gr.context.Context.root_block.load(opened, None, [tabs, lines], queue=False, api_visibility="private")


def _opened_by_link(services: Services, request: gr.Request) -> tuple[Any, Any]:
    """/?tab=many opens the second tab, with &sentences=<token> on the sentences that another page has sent."""
    if request.query_params.get("tab") != "many":
        return gr.skip(), gr.skip()
    token = request.query_params.get("sentences")
    if not token:
        return gr.Tabs(selected="many"), gr.skip()
    try:
        sentences = services.shared_sentences.sentences(token)
    except UserFacingError as error:
        gr.Warning(error.public)
        return gr.Tabs(selected="many"), gr.skip()
    return gr.Tabs(selected="many"), "\n".join(" ".join(sentence.split()) for sentence in sentences)
