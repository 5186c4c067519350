"""Renders short texts: headings, notes, error messages, progress. Also shows the errors of a handler."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import gradio as gr
from markupsafe import Markup

from sbert_app.figures.compare import MOST_WORDS, condense
from sbert_app.formats import format_estimate, format_number
from sbert_app.pages.components.templates import macro
from sbert_app.process import is_ending
from sbert_app.services.background.tasks import TaskProgress
from training.errors import NotFoundError, UserFacingError, summary_of
from training.evaluation.attribution import Attribution, WordAttribution
from training.progress import STEPS_BEFORE_ESTIMATE

log = logging.getLogger("sbert_lab.pages")
INTERNAL_ERROR = "This failed because of a fault in the app; its log has the details."

heading = macro("heading")
section = macro("section")
lead = macro("lead")
note = macro("note")
waiting = macro("waiting")


def error_message(error: str | Exception) -> Markup:
    """Renders the message of an error with a capital letter. An OSError is shown without its path."""
    if isinstance(error, UserFacingError):
        text = summary_of(error)
    else:
        # The text of an OSError ends with the path; its ``strerror`` is the reason alone.
        text = str(getattr(error, "strerror", "") or error)
    # The reason of each source in which the name was looked for.
    details = error.details if isinstance(error, NotFoundError) else ()
    return macro("error")(sentence_case(text), details=details)


def ask_first(missing: Sequence[str], remedy: str) -> Markup:
    """Renders the ``missing`` models and data of a link, which does not start a download, and the ``remedy``."""
    return note(f"Not on this machine yet: {' and '.join(missing)}. {remedy}")


def sentence_case(text: str) -> str:
    """Returns the text with a capital letter, unless it begins with a name such as empty.csv or hf:org/name."""
    # An empty text has no first word.
    first, *_ = text.split(maxsplit=1) or [""]
    # A name contains dots, colons, slashes or digits; a word ends with punctuation or has hyphens.
    is_word = first.rstrip(",;:'").replace("-", "").isalpha()
    return text[:1].upper() + text[1:] if is_word else text


def error_of(action: Callable[..., object], *values: Any) -> Markup:
    """Calls ``action``, and returns the UserFacingError or OSError that it raises as HTML; "" without an error."""
    try:
        action(*values)
    except (UserFacingError, OSError) as error:
        return error_message(error)
    return Markup()


@contextmanager
def gradio_errors() -> Iterator[None]:
    """Turns errors for the user into errors of Gradio, which shows their messages. Faults of the app are logged."""
    try:
        yield
    except UserFacingError as error:
        raise gr.Error(summary_of(error), print_exception=False) from error
    except gr.Error:
        # A gr.Error already has a message for the user.
        raise
    except Exception as error:
        # While the process ends, executors refuse work, which is not a fault.
        if not is_ending.is_set():
            log.exception("a handler failed")
        raise gr.Error(INTERNAL_ERROR, print_exception=False) from error


def progress_bar(step: TaskProgress) -> Markup:
    """Renders a bar with the current step; as soon as a share is done, with this share and the time left."""
    # Loading a model has no share that is done, so its bar would stand at 0%.
    if not step.fraction:
        return macro("progress")(f"{step.description} …", 0)
    left = "" if step.seconds_left is None else f" · {format_estimate(step.seconds_left)} left"
    return macro("progress")(f"{step.description} · {step.fraction:.0%}{left}", step.fraction)


def estimate_plan(
    facts: Sequence[str], seconds: float | None, source: str, remarks: Sequence[str]
) -> Markup:
    """Renders the work that Start would do, and its time.

    Args:
        seconds: the time, estimated from ``source``; None before the first run of this kind on this
            machine.
        remarks: further facts, such as a conversion of the data.
    """
    if seconds is None:
        return macro("plan")(facts, f"time known after {STEPS_BEFORE_ESTIMATE} steps", "", remarks)
    return macro("plan")(facts, f"about {format_estimate(seconds)}", f"from {source}", remarks)


def attribution(explanation: Attribution | WordAttribution) -> Markup:
    """Renders the legend of a word map, or a table of words with their contributions to the score."""
    if isinstance(explanation, WordAttribution):
        return macro("word_attribution")(explanation)
    text = (
        "Each cell shows what a word pair adds to the cosine (blue) or takes from it (orange); all cells sum to the "
        f"cosine, {format_number(explanation.cosine, 4)}."
    )
    # The figure shows the condensed map, which is smaller only for longer texts.
    if condense(explanation).matrix.shape != explanation.matrix.shape:
        text += f" Longer texts are summed by sentence; the {MOST_WORDS} parts that count most are shown."
    return note(text)
