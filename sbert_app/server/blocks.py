"""The pages as one multipage Gradio app, with the endpoints by their names."""

from __future__ import annotations

from importlib import import_module

import gradio as gr

from sbert_app.pages import PAGES
from sbert_app.pages.components import pickers
from sbert_app.server import endpoints
from sbert_app.server.whole_steps import WholeSteps
from sbert_app.services.container import Services

FOOTER = '<footer class="page-footer"><a href="./#api">Use via API</a></footer>'
# Each opening of a page is a session, and in each Gradio keeps the settings of all components of all pages: 1.8 MB. The
# sessions that were not used for the longest go first, with what their pages had open.
MOST_SESSIONS = 300


def build(services: Services) -> gr.Blocks:
    """The app; the endpoints belong to its front page."""

    def leave(request: gr.Request) -> None:
        if request.session_hash:
            services.tasks.forget(request.session_hash)

    front, *others = PAGES
    app = WholeSteps(title="SBERT Lab", analytics_enabled=False).queue(default_concurrency_limit=4, max_size=512)
    with app:
        _build_page(front, services, app)
        endpoints.build(services)
        app.unload(leave)
    for name in others:
        with app.route(name.title(), name):
            _build_page(name, services, app)
    app.state_session_capacity = MOST_SESSIONS
    # A file that a request names by its path is read only if it was uploaded. Gradio checks that in launched apps, and
    # does not count a mounted one among them.
    app.has_launched = True
    return app


def _build_page(name: str, services: Services, app: gr.Blocks) -> None:
    gr.Navbar(main_page_name=PAGES[0].title())
    import_module(f"sbert_app.pages.{name}.page").build(services)
    pickers.read_anew(services, app)
    gr.HTML(FOOTER)
