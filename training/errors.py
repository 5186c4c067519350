"""The exceptions with which work ends early: an error for the user, or a stop that the user asked for."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

LONGEST_MESSAGE = 1_600
# A longer message loses its middle, as its end says what to do.
_START = 400
# All of a path but its last name. The names of folders may have spaces; a slash in a word or in a URL begins no path.
# No name is read twice, by (?>…), and no more than 40 are read, as a visitor may send a thousand slashes.
_FOLDERS = re.compile(
    r"""(?<![\w.:/\\~])(?:file://|~)?(?:/(?>(?:[^\s/.:;,'"]+[ ])*[^\s/:;,'"]+)(?=/)){0,40}/(?=[\w.])"""
    r"""|(?<!\w)[A-Za-z]:(?:\\(?>(?:[^\s\\.:;,'"]+[ ])*[^\s\\:;,'"]+)(?=\\)){0,40}\\(?=[\w.])"""
)


class UserFacingError(Exception):
    """An expected failure. The message is one clear sentence: what, where, what to do.

    The command line prints it and exits with 2; a page shows it beside the control; the API returns it. Any other
    exception is a fault of the program. A message quotes what was wrong, whatever its length, and so a long one loses
    its middle: an answer is never as large as the request. ``public`` is the message for visitors of the app, without
    the folders of its machine, which do not concern them.
    """

    def __init__(self, message: object = "", public: str = "") -> None:
        super().__init__(_without_middle(str(message)))
        self.public = _without_middle(public) or without_folders(str(self))


class InputError(UserFacingError, ValueError):
    """The user's input cannot be used."""


class QuestionError(InputError):
    """A file can be read in several ways. The message asks which one is meant, and says how to answer."""


class NotFoundError(InputError):
    """A name that no source has. The message lists every source with its reason; a page shows less at first.

    ``summary`` is one sentence without the reasons, ``details`` the reasons, and what else can be done; both for
    visitors.
    """

    def __init__(self, message: str, summary: str, details: tuple[str, ...]) -> None:
        super().__init__(message)
        self.summary, self.details = without_folders(summary), tuple(map(without_folders, details))


def summary_of(error: UserFacingError) -> str:
    """The message for visitors in one sentence, without the reasons of each source."""
    return error.summary if isinstance(error, NotFoundError) else error.public


def did_you_mean(text: str, names: Iterable[str]) -> str:
    """A clause with the name that is nearest to what was typed; "" where none is near."""
    by_folded_name = {name.casefold(): name for name in names if name != text}
    nearest = get_close_matches(text[:100].casefold(), by_folded_name, n=1, cutoff=0.7)
    return f"; did you mean {by_folded_name[nearest[0]]}?" if nearest else ""


def without_folders(text: str) -> str:
    """``text`` with the last name of each path in place of the path."""
    return _FOLDERS.sub("", text)


def unwritable(path: str | Path, error: OSError, advice: str = "") -> InputError:
    """The error for a full disk, a folder that may not be written to, …; ``advice`` is a clause on what to do."""
    return InputError(f"{path} cannot be written: {error.strerror or error}{advice and f'; {advice}'}")


def install_command(extra: str) -> str:
    """The command that installs an extra of SBERT Lab, for the end of an error message.

    It names the clone: the package is not on PyPI, and a stranger could publish one under its name. Double quotes work
    in the shells of Windows too.
    """
    return f'in the clone of SBERT Lab, pip install ".[{extra}]"'


def import_optional(module: str, extra: str, what: str) -> Any:
    """A module of the package ``extra``, which ``what`` needs. InputError if it is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        raise InputError(f"{what} needs the package {extra}: {install_command(extra)} installs it") from error


def first_line(error: BaseException) -> str:
    """The first line of an error's message, at most 200 characters; the name of its class if it has none."""
    line = str(error).strip().partition("\n")[0] or type(error).__name__
    return line.rstrip(" :\r")[:200]


class Stopped(Exception):  # noqa: N818 - not an error
    """Raised out of a long computation after its ``should_stop()`` returned True."""


def _without_middle(text: str) -> str:
    if len(text) <= LONGEST_MESSAGE:
        return text
    return f"{text[:_START]} … {text[_START - LONGEST_MESSAGE :]}"
