"""The front page: how similar two sentences are and why, and in a second tab all pairs of a few hundred."""

from __future__ import annotations

from typing import Any

import gradio as gr

from sbert_app.pages.compare import many
from sbert_app.pages.compare.two_sentences import TwoSentences
from sbert_app.pages.components.messages import heading
from sbert_app.services.container import Services


def build(services: Services) -> None:
    """Build the page inside the open Blocks."""
    gr.HTML(heading("SBERT Lab", "How similar are two sentences, and why?"))
    with gr.Tabs() as tabs:
        with gr.Tab("Two sentences", id="two"):
            TwoSentences(services).wire()
        with gr.Tab("Many sentences", id="many") as many_tab:
            many.build(services, many_tab)
    gr.context.Context.root_block.load(_tab_of_link, None, tabs, queue=False, api_visibility="private")


def _tab_of_link(request: gr.Request) -> Any:
    """/?tab=many opens the second tab."""
    return gr.Tabs(selected="many") if request.query_params.get("tab") == "many" else gr.skip()
