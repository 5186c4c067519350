"""Why a run cannot be used as asked. All are shown to the user as they are."""

from training.errors import UserFacingError


class RunError(UserFacingError):
    """A run cannot be used as asked."""


class RunNotFound(RunError):  # noqa: N818 - reads as a state
    """There is no such run, or it was deleted meanwhile."""


class RunBusy(RunError):  # noqa: N818
    """Another process is working on the run."""


class RunStateError(RunError):
    """The run's state does not allow what was asked, such as stopping one that is finished."""
