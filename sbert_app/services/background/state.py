"""State: the life cycle of long work: a run, a file that is scored, a cell of an experiment.

    queued -> running -> finished | failed | stopped | interrupted (its process ended; it can be started again)

A member equals its word, which is what records on disk, pages and the API hold.
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    OPENED = "opened"  # a file that nobody has asked to be scored yet
    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"


AT_WORK = frozenset({State.QUEUED, State.RUNNING})
RESUMABLE = frozenset({State.INTERRUPTED, State.FAILED, State.STOPPED})
