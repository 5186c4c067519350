"""The Map tab of the Explore page: the corpus as points, near where their vectors are near."""

from __future__ import annotations

import gradio as gr

from sbert_app.services import Services


def build(services: Services, view: gr.State) -> None:
    """Lay the tab out inside the open gr.Tab."""
    gr.HTML("", elem_id="map-status")
