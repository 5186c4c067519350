"""Exceptions that end work early: an error for the user, or a stop that the user asked for."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

LONGEST_MESSAGE = 1_600
# A longer message loses its middle, as its end says what to do.
_START = 400
# The folders of a path. Their names may have spaces. A slash in a word or in a URL does not start a
# path. Atomic groups and the limit of 40 folders keep the time linear, as a visitor may send a
# thousand slashes.
_FOLDERS = re.compile(
    r"""(?<![\w.:/\\~])(?:file://|~)?(?:/(?>(?:[^\s/.:;,'"]+[ ])*[^\s/:;,'"]+)(?=/)){0,40}/(?=[\w.])"""
    r"""|(?<!\w)[A-Za-z]:(?:\\(?>(?:[^\s\\.:;,'"]+[ ])*[^\s\\:;,'"]+)(?=\\)){0,40}\\(?=[\w.])"""
)


class UserFacingError(Exception):
    """An expected failure. The message is one clear sentence: what, where, what to do.

    The command line prints it and exits with 2, a page shows it beside the control, and the API
    returns it. Any other exception is a bug. A message may quote the wrong input, so the middle of
    a long message is removed: an answer is never as large as the request. ``public`` is the message
    for visitors of the app, without the folders of its machine.
    """

    def __init__(self, message: object = "", public: str = "") -> None:
        super().__init__(_without_middle(str(message)))
        self.public = _without_middle(public) or without_folders(str(self))


class InputError(UserFacingError, ValueError):
    """The user's input cannot be used. The message says what is wrong and what to do.

    Example::

        from sbert_lab import InputError, open_model

        try:
            open_model("tfidf:max")
        except InputError as error:
            print(error)
    """


class QuestionError(InputError):
    """A file can be read in several ways. The message asks which one is meant, and says how to answer."""


class NotFoundError(InputError):
    """No source has this name. The message lists every source with its reason; a page shows less at first.

    For visitors ``summary`` is one sentence without the reasons, and ``details`` are the reasons
    and other advice.
    """

    def __init__(self, message: str, summary: str, details: tuple[str, ...]) -> None:
        super().__init__(message)
        self.summary = without_folders(summary)
        self.details = tuple(map(without_folders, details))


def summary_of(error: UserFacingError) -> str:
    """Returns the message for visitors in one sentence, without the reasons of each source."""
    return error.summary if isinstance(error, NotFoundError) else error.public


def did_you_mean(text: str, names: Iterable[str]) -> str:
    """Returns a clause with the name that is most similar to the text; "" if none is similar."""
    by_folded_name = {name.casefold(): name for name in names if name != text}
    nearest = get_close_matches(text[:100].casefold(), by_folded_name, n=1, cutoff=0.7)
    if not nearest:
        return ""
    return f"; did you mean {by_folded_name[nearest[0]]}?"


def without_folders(text: str) -> str:
    """Replaces each path in ``text`` by its last name."""
    return _FOLDERS.sub("", text)


def unwritable(path: str | Path, error: OSError, advice: str = "") -> InputError:
    """Makes the error for a full disk, a folder without write permission, …; ``advice`` says what to do."""
    message = f"{path} cannot be written: {error.strerror or error}"
    if advice:
        message += f"; {advice}"
    return InputError(message)


def install_command(extra: str) -> str:
    """Returns the command that installs an extra of SBERT Lab, for the end of an error message.

    It installs from the clone, because the package is not on PyPI, where a stranger could publish
    one under its name. Double quotes also work in the shells of Windows.
    """
    return f'in the clone of SBERT Lab, pip install ".[{extra}]"'


def import_optional(module: str, extra: str, what: str) -> Any:
    """Imports a module of the package ``extra``, which ``what`` needs. InputError if it is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        raise InputError(
            f"{what} needs the package {extra}: {install_command(extra)} installs it"
        ) from error


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message, at most 200 characters, or the name of its class."""
    line = str(error).strip().partition("\n")[0] or type(error).__name__
    # A line that introduces others ends with a colon.
    return line.rstrip(" :\r")[:200]


def in_one_line(error: BaseException) -> str:
    """Returns an error's whole message with single spaces for white space, or the name of its class."""
    return " ".join(str(error).split()) or type(error).__name__


class StoppedError(Exception):
    """Raised out of a long computation after its ``should_stop()`` returned True."""


def _without_middle(text: str) -> str:
    """The text, or the beginning and the end of one above `LONGEST_MESSAGE` characters."""
    if len(text) <= LONGEST_MESSAGE:
        return text
    # The index is negative, so it counts from the end.
    end = text[_START - LONGEST_MESSAGE :]
    return f"{text[:_START]} … {end}"
