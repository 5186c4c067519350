"""What several pages say, as HTML, and how their events are kept out of the public API."""

from __future__ import annotations

from html import escape
from typing import Any

from sbert_app.services.tasks import TaskProgress
from training.evaluation.attribution import NO_MAP_FOR_CLS

PRIVATE: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}


def error_message(message: str) -> str:
    """One clear sentence, where the result would be."""
    return f'<div class="problem" role="alert">{escape(message[:1].upper() + message[1:])}</div>'


def progress_bar(step: TaskProgress) -> str:
    """What is being done, how much of it, and the time that is left."""
    left = "" if step.seconds_left is None else f" · {spoken_seconds(step.seconds_left)} left"
    percent = step.share * 100
    return (
        f'<div aria-live="polite"><p class="lead">{escape(step.words)} · {percent:.0f}%{left}</p>'
        '<div class="bar" role="progressbar" aria-label="done" aria-valuemin="0" aria-valuemax="100" '
        f'aria-valuenow="{percent:.0f}"><i style="width:{percent:.1f}%"></i></div></div>'
    )


def spoken_seconds(seconds: float) -> str:
    """ "0.4 s", "12 s", "3 min 20 s"."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def map_note(total: float | None) -> str:
    """What the word map is; None where there is no map."""
    if total is None:
        return f'<p class="note">{NO_MAP_FOR_CLS}</p>'
    return (
        '<p class="note">Each cell is what a word pair adds to the cosine. All cells together make '
        f"{total:.4f}: nothing is approximated.</p>"
    )
