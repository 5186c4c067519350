"""The exceptions with which work ends early: an error for the user, or a stop that the user asked for."""


class UserFacingError(Exception):
    """An expected failure. The message is one clear sentence: what, where, what to do.

    The command line prints it and exits with 2; a page shows it beside the control; the API returns it. Any other
    exception is a fault of the program.
    """


class InputError(UserFacingError, ValueError):
    """The user's input cannot be used."""


class Stopped(Exception):  # noqa: N818 - not an error
    """Raised out of a long computation after its ``should_stop()`` returned True."""
