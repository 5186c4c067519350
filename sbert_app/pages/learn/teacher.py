"""For teachers: a link that fixes model, data and seed for a class, and a sheet of the questions to print.

    /learn?class=NLP+101&model=all-mpnet-base-v2&data=sickr&seed=7&lessons=4,8,9

The link contains all settings that differ from the standard: nothing is stored, and it means the
same on every machine. The sheet is a plain HTML page at ``/learn/sheet``, without scripts and ready
to print. The answers are another page.
"""

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

import gradio as gr
import segno
from markupsafe import Markup

from sbert_app.hosts import LOOPBACK, WILDCARDS, host_name
from sbert_app.pages.components import messages
from sbert_app.pages.components.events import enable_when, event_options
from sbert_app.pages.components.templates import macro, render
from sbert_app.pages.learn.lesson import DEFAULT_DATA, STANDARD, Setup, lessons
from sbert_app.services.access import AccessPolicy
from sbert_app.services.container import Services
from sbert_app.settings import Settings
from training.catalogue import DEFAULT_MODEL
from training.errors import InputError, UserFacingError

# Relative to the folder of Learn, which may lie under a root path.
SHEET = "learn/sheet"
LONGEST_TITLE = 80
LARGEST_SEED = 2**32 - 1


@dataclass(frozen=True)
class ClassLink:
    """A setup with the title of a class and a selection of lessons; an empty selection means all."""

    title: str = ""
    setup: Setup = STANDARD
    selection: tuple[int, ...] = ()

    @property
    def numbers(self) -> tuple[int, ...]:
        return self.selection or tuple(lesson.number for lesson in lessons())

    @property
    def query(self) -> str:
        """The query of the link, as short as possible for a blackboard; "" without a class."""
        if not self.title:
            return ""
        parameters: dict[str, object] = {"class": self.title}
        for name, standard in vars(STANDARD).items():
            value = getattr(self.setup, name)
            if value != standard:
                parameters[name] = value
        if self.selection:
            parameters["lessons"] = ",".join(map(str, self.selection))
        return urlencode(parameters, safe=":,/")

    def sheet_address(self, answers: bool = False) -> str:
        """The address of the sheet to print, without or with the answers."""
        parameters = [self.query] if self.query else []
        if answers:
            parameters.append("answers=1")
        return f"{SHEET}?{'&'.join(parameters)}" if parameters else SHEET

    def banner(self) -> Markup:
        """The title and the setup of the class; empty without a class."""
        return macro("learn/class_banner")(self, self.sheet_address()) if self.title else Markup()

    def links(self, page: str, settings: Settings) -> Markup:
        """The link with its QR code, or the reason why pupils cannot reach it, and the sheets.

        ``page`` is the address at which the teacher opened Learn.
        """
        network_address = address_for_others(page, settings.host)
        address = f"{network_address or page}?{self.query}"
        # Whether the teacher has opened the page on the server itself. The address of the page is
        # then of no use to others, and the link has the address in the network.
        is_of_network = network_address not in (None, page)
        code = Markup()
        if network_address:
            drawing = segno.make(address, error="l", micro=False).svg_inline(omitsize=True)
            code = Markup(drawing)  # noqa: S704 - drawn by the library
        # The name with which the pupils log in; None if the app asks for no password.
        user = settings.auth[0] if settings.auth else None
        return macro("learn/class_links")(
            self.title,
            address,
            code,
            is_of_network,
            user,
            self.sheet_address(),
            self.sheet_address(answers=True),
        )

    def sheet(self, answers: bool) -> Markup:
        """A page to print: the questions with space to write, or the answers."""
        selected = [lesson for lesson in lessons() if lesson.number in self.numbers]
        title = self.title or "Lessons on sentence embeddings"
        return render(
            "learn/templates/sheet.html", link=self, title=title, lessons=selected, answers=answers
        )


def address_for_others(page: str, server_host: str) -> str | None:
    """The address of a page for other machines; None if the server, which listens on ``server_host``, is out of reach.

    A page that was opened on the server itself gets the address of this machine in its network.
    """
    parts = urlsplit(page)
    if host_name(parts.netloc) not in LOOPBACK:
        return page
    if server_host not in WILDCARDS:
        return None
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            # This sends nothing, but lets the system choose the address that it would use.
            probe.connect(("192.0.2.1", 9))
            host = probe.getsockname()[0]
    except OSError:
        # The machine is offline.
        host = socket.gethostname()
    netloc = host if parts.port is None else f"{host}:{parts.port}"
    return parts._replace(netloc=netloc).geturl()


def read_class(values: Mapping[str, str], access: AccessPolicy) -> ClassLink:
    """The class that the parameters of a link describe; an empty one without the parameter ``class``.

    InputError if a value is invalid; the message names the parameter.
    """
    title = " ".join(values.get("class", "").split())
    if not title:
        return ClassLink()
    if len(title) > LONGEST_TITLE:
        raise InputError(f"the title of a class has at most {LONGEST_TITLE} characters")
    seed = values.get("seed", "").strip() or "0"
    if not (seed.isascii() and seed.isdecimal()) or int(seed) > LARGEST_SEED:
        raise InputError(
            f"seed is {seed[:40]!r}, but must be a whole number from 0 to {LARGEST_SEED:,}"
        )
    model = access.check_model(values.get("model", "").strip() or DEFAULT_MODEL)
    data = access.check_data(values.get("data", "").strip() or DEFAULT_DATA)
    return ClassLink(title, Setup(model, data, int(seed)), _numbers(values.get("lessons", "")))


def _numbers(text: str) -> tuple[int, ...]:
    """The lesson numbers in a text such as "4,8,9", ascending, each once. InputError for an unknown lesson."""
    numbers = {str(lesson.number) for lesson in lessons()}
    parts = [part.strip() for part in text.split(",") if part.strip()]
    for part in parts:
        if part not in numbers:
            raise InputError(
                f"there is no lesson {part[:40]!r}; they are numbered from 1 to {len(numbers)}"
            )
    return tuple(sorted({int(part) for part in parts}))


def build(services: Services) -> None:
    """Builds the fold for teachers inside the open Blocks: the form of a class, and its link."""
    with gr.Accordion(
        "For teachers: a link for your class, and a sheet to print", open=False, elem_id="teacher"
    ):
        title = gr.Textbox(
            label="Class", info="Its name, for page and sheet", max_lines=1, elem_id="class-title"
        )
        choices = [(f"{lesson.number} {lesson.short}", str(lesson.number)) for lesson in lessons()]
        selected = gr.CheckboxGroup(
            choices, label="Lessons", info="Empty: all lessons", elem_id="class-lessons"
        )
        with gr.Row():
            model = gr.Textbox(
                DEFAULT_MODEL,
                label="Model",
                info="By its name",
                max_lines=1,
                min_width=200,
                elem_id="class-model",
            )
            data = gr.Textbox(
                DEFAULT_DATA,
                label="Data",
                info="A named set or hf:<org>/<name>",
                max_lines=1,
                min_width=200,
                elem_id="class-data",
            )
            seed = gr.Textbox(
                "0",
                label="Seed",
                info="Same seed, same pairs",
                max_lines=1,
                min_width=120,
                elem_id="class-seed",
            )
        with gr.Row(elem_classes="actions"):
            make = gr.Button("Make the link", variant="primary", elem_id="make-class")
            enable_when(make, {title: "name the class first"})
            copy = gr.Button("Copy the link", visible=False, elem_id="copy-class")
        links = gr.HTML(elem_id="class-links")

        def show(
            request: gr.Request, selected: list[str], title: str, model: str, data: str, seed: str
        ) -> tuple[Any, Any]:
            """Returns the link of the class or an error, and the update of the button that copies the link."""
            values = {
                "class": title,
                "model": model,
                "data": data,
                "seed": seed,
                "lessons": ",".join(selected),
            }
            try:
                if not title.strip():
                    raise InputError(
                        "give the class a name; it stands at the top of the page and of the sheet"
                    )
                link = read_class(values, services.access)
            except UserFacingError as error:
                return messages.error_message(error), gr.update(visible=False)
            # The request goes to a route of Gradio. The referer is the page, here without parameters.
            page = request.headers.get("referer", "").partition("?")[0]
            return link.links(page, services.settings), gr.update(visible=True)

        gr.on(
            [make.click, title.submit],
            show,
            [selected, title, model, data, seed],
            [links, copy],
            **event_options(queue=False),
        )
        copy.click(None, None, None, js="() => window.copyClassLink()")


def sheet(values: Mapping[str, str], access: AccessPolicy) -> Markup:
    """The sheet for the parameters of a link, which may name lessons without a class. InputError if one is invalid."""
    link = read_class(values, access)
    if not link.title:
        link = ClassLink(selection=_numbers(values.get("lessons", "")))
    return link.sheet(answers=values.get("answers") == "1")
