"""For teachers: a link that fixes model, data and seed for a class, and a sheet of the questions to print.

The sheet is a plain HTML page at ``/learn/sheet``: it needs no script, and a browser prints it as it is.
"""

from __future__ import annotations

from typing import Any

import gradio as gr
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from sbert_app.pages.components import messages
from sbert_app.pages.components.events import UNQUEUED
from sbert_app.pages.learn import views
from sbert_app.services.container import Services
from sbert_app.services.lessons.setup import DEFAULT_DATA, SchoolClass, read_class
from sbert_app.services.lessons.text import lessons
from training.errors import InputError, UserFacingError
from training.registry import DEFAULT_MODEL

COPY_CLASS_LINK = """() => {
  const link = document.querySelector("#class-links a[data-class]");
  if (link) navigator.clipboard.writeText(link.href);
}"""


def build(services: Services) -> None:
    """Build the section inside the open Blocks."""
    with gr.Accordion("For teachers: a link for your class, and a sheet to print", open=False, elem_id="teacher"):
        with gr.Row():
            title = gr.Textbox(label="Class", placeholder="NLP 101", max_lines=1, min_width=160, elem_id="class-title")
            model = gr.Textbox(DEFAULT_MODEL, label="Model", max_lines=1, min_width=200, elem_id="class-model")
            data = gr.Textbox(
                DEFAULT_DATA,
                label="Data",
                info="Pairs with gold scores: a named set or hf:<org>/<name>",
                max_lines=1,
                min_width=200,
                elem_id="class-data",
            )
            seed = gr.Textbox(
                "0", label="Seed", info="0: pairs at equal distances", max_lines=1, min_width=120, elem_id="class-seed"
            )
        chosen = gr.CheckboxGroup(
            [(f"{lesson.number} {lesson.short}", str(lesson.number)) for lesson in lessons()],
            value=[],
            label="Lessons",
            info="None chosen: all",
            elem_id="class-lessons",
        )
        with gr.Row(elem_classes="actions"):
            make = gr.Button("Make the link", variant="primary", elem_id="make-class")
            copy = gr.Button("Copy the link", visible=False, elem_id="copy-class")
        links = gr.HTML(elem_id="class-links")

        def show(title: str, model: str, data: str, seed: str, chosen: list[str]) -> tuple[Any, Any]:
            values = {"class": title, "model": model, "data": data, "seed": seed, "lessons": ",".join(chosen)}
            try:
                if not title.strip():
                    raise InputError("give the class a name; it stands at the top of the page and of the sheet")
                school_class = read_class(values, services.access)
            except UserFacingError as error:
                return messages.error_message(error), gr.update(visible=False)
            return views.class_links(school_class), gr.update(visible=True)

        gr.on([make.click, title.submit], show, [title, model, data, seed, chosen], [links, copy], **UNQUEUED)
        copy.click(None, None, None, js=COPY_CLASS_LINK)


def routes(services: Services) -> list[BaseRoute]:
    """The sheet. Its parameters are those of a class; ``answers=1`` adds the answers."""

    def sheet(request: Request) -> Response:
        values = dict(request.query_params)
        try:
            school_class = read_class(values, services.access)
        except UserFacingError as error:
            return HTMLResponse(messages.error_message(error), status_code=400)
        if not school_class.title and values.get("lessons"):
            return sheet_of(SchoolClass(chosen=read_class({**values, "class": "-"}, services.access).chosen), values)
        return sheet_of(school_class, values)

    def sheet_of(school_class: SchoolClass, values: dict[str, str]) -> Response:
        return HTMLResponse(views.sheet(school_class, answers=values.get("answers") == "1"))

    return [Route(views.SHEET, sheet)]
