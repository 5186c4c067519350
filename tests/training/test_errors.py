"""Messages for users: whole where they are short, and never as long as what they quote."""

import errno
import os

from training.errors import (
    LONGEST_MESSAGE,
    InputError,
    NotFoundError,
    UserFacingError,
    summary_of,
    unwritable,
)


def test_a_message_is_kept_or_if_long_what_was_wrong_and_what_to_do():
    assert (
        str(InputError("model 'x' is unknown; choose another"))
        == "model 'x' is unknown; choose another"
    )
    assert str(UserFacingError()) == ""
    message = str(InputError(f"model {'x' * 1_000_000!r} is unknown; choose another"))
    assert message.startswith("model 'xxx")
    assert message.endswith("xxx' is unknown; choose another")
    assert len(message) <= LONGEST_MESSAGE + 3


def test_a_visitor_is_told_what_cannot_be_written_and_not_where():
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    error = unwritable("/home/ada/.local/share/out.csv", full, "free some space")
    assert (
        str(error)
        == "/home/ada/.local/share/out.csv cannot be written: No space left on device; free some space"
    )
    assert error.public == "out.csv cannot be written: No space left on device; free some space"
    assert summary_of(error) == error.public
    assert InputError("k is 0").public == "k is 0"
    missing = NotFoundError(
        "x was not found (hub: 404)", summary="x was not found", details=("hub: 404",)
    )
    assert (missing.public, summary_of(missing)) == (
        "x was not found (hub: 404)",
        "x was not found",
    )
    assert len(InputError("x" * 5_000, public="y" * 5_000).public) <= LONGEST_MESSAGE + 3
