"""Short texts as HTML: headings, notes, error messages, progress. Also how a handler's user error is shown."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import gradio as gr
from markupsafe import Markup

from sbert_app.formats import format_estimate
from sbert_app.pages.components.templates import macro
from sbert_app.process import is_ending
from sbert_app.services.background.tasks import TaskProgress
from training.errors import NotFoundError, UserFacingError, summary_of
from training.evaluation.attribution import Attribution, WordAttribution

log = logging.getLogger("sbert_lab.pages")
INTERNAL_ERROR = "This failed because of a fault in the app; its log has the details."

heading = macro("heading")
section = macro("section")
lead = macro("lead")
note = macro("note")
waiting = macro("waiting")


def error_message(error: str | Exception) -> Markup:
    """The message of an error, with a capital letter, in the place of the result; of the disk's without the path."""
    text = summary_of(error) if isinstance(error, UserFacingError) else str(getattr(error, "strerror", "") or error)
    details = error.details if isinstance(error, NotFoundError) else ()
    return macro("error")(sentence_case(text), details=details)


def sentence_case(text: str) -> str:
    """With a capital letter, unless the text begins with a name, such as empty.csv or hf:org/name."""
    first = text.split(maxsplit=1)[0] if text.strip() else ""
    return text[:1].upper() + text[1:] if first.rstrip(",;:'").replace("-", "").isalpha() else text


def error_of(action: Callable[..., object], *values: Any) -> Markup:
    """Call ``action``; return the error that it raises, the user's or the disk's, as HTML, or an empty text."""
    try:
        action(*values)
    except (UserFacingError, OSError) as error:  # what is changed may have been deleted meanwhile
        return error_message(error)
    return Markup()


@contextmanager
def gradio_errors() -> Iterator[None]:
    """In the block a user's error becomes Gradio's, which is shown as it is; a fault of the app is logged instead."""
    try:
        yield
    except UserFacingError as error:
        raise gr.Error(summary_of(error), print_exception=False) from error
    except gr.Error:
        raise
    except Exception as error:
        if not is_ending.is_set():  # else executors take nothing more
            log.exception("a handler failed")
        raise gr.Error(INTERNAL_ERROR, print_exception=False) from error


def progress_bar(step: TaskProgress) -> Markup:
    """What is being done, how much of it, and the time left."""
    left = "" if step.seconds_left is None else f" · {format_estimate(step.seconds_left)} left"
    return macro("progress")(f"{step.description} · {step.fraction:.0%}{left}", step.fraction)


Unknown = Literal["measuring", "on change", "no run"]  # why the time that runs take is not known
NO_TIME: dict[Unknown, tuple[str, str]] = {
    "measuring": ("measuring the throughput of this machine…", ""),
    "on change": ("time unknown", "it is measured once you change a setting"),
    "no run": ("time unknown", "no run from this base has been made on this machine; the first one will show"),
}


def estimate_plan(
    facts: Sequence[str], seconds: float | None, source: str, unknown: Unknown, remarks: Sequence[str]
) -> Markup:
    """What pressing Start would do, and how long it would take.

    ``seconds``: known from ``source``, or None for the reason ``unknown``. ``remarks``: what else to know, such as what
    will be derived from the data.
    """
    time, why = NO_TIME[unknown] if seconds is None else (f"about {format_estimate(seconds)}", f"from {source}")
    return macro("plan")(facts, time, why, remarks)


def attribution(explanation: Attribution | WordAttribution) -> Markup:
    """How to read a word map; or the words, what each adds to the score, and how that was found."""
    if isinstance(explanation, WordAttribution):
        return macro("word_attribution")(explanation)
    return note(
        "Each cell shows what a word pair adds to the cosine (blue) or takes from it (orange). "
        f"The cells sum to the cosine, {explanation.cosine:.4f}."
    )
