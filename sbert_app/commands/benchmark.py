"""benchmark: how fast this machine is, beside others."""

from __future__ import annotations

from typing import Annotated

import typer

from sbert_app.commands import options
from sbert_app.terminal import answer, clean_stdout
from training.errors import InputError


def benchmark(
    name: Annotated[str, typer.Argument(metavar="NAME", help="encode, start-up, …")],
    against: Annotated[
        str | None, typer.Option(metavar="PEER", help="Measure beside this one: sentence-transformers.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, metavar="<int>", help="Times each side is measured.")] = None,
    as_json: options.Json = False,
) -> None:
    """Measure how fast this machine is: both sides in turn, medians and ratios."""
    from benchmarks.__main__ import BENCHMARKS, measure, text

    if name not in BENCHMARKS:
        raise InputError(f"there is no benchmark {name!r}; choose {', '.join(BENCHMARKS)}")
    with clean_stdout():
        found = measure(name, rounds=rounds, against=against)
    answer(found, as_json, text(found))
