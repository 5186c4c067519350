"""Fewer and shorter stops for the garbage collector.

What is imported here is a million objects that stay. To go through all of them takes Python 0.4 s, in which nobody gets
an answer; by default it does so ten times on the way to the first page, and again while people ask.
"""

from __future__ import annotations

import gc

YOUNG = 100_000  # new objects between two collections; Python's own number is 700


def collect_rarely() -> None:
    """For the start of a process."""
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])


def leave_what_is_there() -> None:
    """Once what stays is loaded: no collection looks at it again. Does not collect: that would be a stop."""
    gc.freeze()
