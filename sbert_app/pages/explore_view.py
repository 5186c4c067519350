"""What the Explore page has open, and what its tabs share: the view, a bar, one sentence about what is wrong.

A ``View`` is small and says everything: which corpus, under which model and pooling. The shell (explore.py) puts it
into a ``gr.State`` when the vectors are ready, so a tab's ``space_of(services, view)`` answers at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from sbert_app.watched import Step

if TYPE_CHECKING:
    from sbert_app.corpus.corpus import Space
    from sbert_app.services import Services

PRIVATE: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}


@dataclass(frozen=True)
class View:
    """An open corpus under a model."""

    corpus: str  # its key in services.spaces
    model: str
    pooling: str

    def __iter__(self) -> Iterator[str]:
        """So that ``services.spaces.space(*view)`` reads well."""
        return iter((self.corpus, self.model, self.pooling))


def space_of(services: Services, view: View) -> Space:
    """The vectors of a view: at once, as the shell has encoded them.

    Raises:
        InputError: the corpus has been pushed out by others meanwhile.
    """
    return services.spaces.space(*view)


def problem(message: str) -> str:
    """One clear sentence, where the result would be."""
    return f'<div class="problem" role="alert">{escape(message[:1].upper() + message[1:])}</div>'


def bar(step: Step) -> str:
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
