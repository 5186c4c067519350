"""``python -m sbert_app`` and the command ``sbert-lab``: see `sbert_app.cli`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from sbert_app.cli import main
from sbert_app.process import exit_now, hide_password


def run(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and end the process with its exit code. Without ``arguments``: those of the process."""
    hide_password()
    exit_now(main(arguments))


if __name__ == "__main__":
    run()
