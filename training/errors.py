"""The two ways in which work ends early: the input is wrong, or somebody pressed Stop."""


class InputError(ValueError):
    """The user's input cannot be used. The message is one clear sentence: what, where, what to do.

    The command line prints it and exits with 2; a page shows it beside the control; the API returns it.
    """


class Stopped(Exception):  # noqa: N818 - it is no error
    """Raised out of a long computation after its ``should_stop`` said yes."""
