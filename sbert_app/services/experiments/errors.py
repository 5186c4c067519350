"""Why a sweep cannot be used as asked. Shown to the user as they are."""

from training.errors import UserFacingError


class SweepError(UserFacingError):
    """A sweep cannot be used as asked."""


class SweepNotFound(SweepError):  # noqa: N818 - reads as a state
    """There is no such sweep, or its file is damaged."""


class SweepBusy(SweepError):  # noqa: N818
    """Runs of the sweep are queued or running."""


class SweepStateError(SweepError):
    """The sweep's state does not allow what was asked, such as resuming one that is finished."""
