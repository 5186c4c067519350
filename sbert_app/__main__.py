"""``python -m sbert_app`` and the command ``sbert-lab``: see `sbert_app.cli`."""

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

# The exit code after Ctrl-C, as in `sbert_app.process`, which is imported later.
INTERRUPTED = 130


def run(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs a command, by default with the arguments of the process, and ends the process with its exit code."""
    try:
        hide_password()
        if is_serving(sys.argv[1:] if arguments is None else arguments):
            print("SBERT Lab is starting ...", flush=True)
        # The import takes a second or more, and Ctrl-C must not print a traceback in that time.
        from sbert_app.cli import main

        sys.exit(main(arguments))
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(INTERRUPTED)


def is_serving(arguments: Sequence[str]) -> bool:
    """Whether these are the arguments of ``serve``, whose imports and pages take seconds."""
    return arguments[:1] == ["serve"] and not {"-h", "--help"} & set(arguments)


def hide_password() -> None:
    """Starts the process anew without ``--auth USER:PASSWORD``, which every user of the machine could read.

    The list of processes shows command lines but not environments, so the password is moved to
    $SBERT_AUTH. Nothing happens without this option, or on Windows, which cannot replace a process.
    """
    if sys.platform == "win32":
        return
    arguments, auth = without_option(sys.orig_argv, "--auth")
    if auth is not None:
        # The value of ``--auth=`` is empty. Then the file with the password, if there is one, stays
        # in force.
        if auth:
            # `Settings.gather` would prefer the file, as the password no longer comes from an option.
            arguments, _ = without_option(arguments, "--auth-file")
            os.environ.pop("SBERT_AUTH_FILE", None)
        os.environ["SBERT_AUTH"] = auth
        os.execv(sys.executable, [sys.executable, *arguments[1:]])  # noqa: S606 - the very same command


def without_option(arguments: list[str], name: str) -> tuple[list[str], str | None]:
    """Returns the arguments without ``name VALUE`` and ``name=VALUE``, and the last such value or None."""
    others: list[str] = []
    last: str | None = None
    remaining = iter(arguments)
    for argument in remaining:
        option, equals, value = argument.partition("=")
        if option != name:
            others.append(argument)
            continue
        if not equals:
            value = next(remaining, "")
        if equals or value:
            last = value
        else:
            # The option lacks its value: the command line says what is wrong.
            others.append(argument)
    return others, last


if __name__ == "__main__":
    run()
