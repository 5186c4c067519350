"""data [NAME]: the data sets that can be named; or how one of them, or a file, is read."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

import typer

from sbert_app.commands import options
from sbert_app.terminal import print_result
from training.catalogue import DATA_SETS

SHOWN = 3  # rows


@options.grouped
def data(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME_OR_FILE]", help="Shows how it is read: its form, rows and notes; or -."),
    ] = None,
    *,
    file: options.FileOptions,
    home: options.Home = None,
    offline: options.Offline = False,
    as_json: options.Json = False,
) -> None:
    """List the data sets, or show how a data set or a file is read."""
    place = options.prepare(home, offline)
    if name is None:
        _list(as_json)
        return
    from training.data.load import load_data

    with options.received(name) as given:
        found = load_data(file.data(given) if file != options.FileOptions() else given, place)
    columns: list[Any] = [*found.columns]
    columns += [found.scores] if found.scores is not None else []
    columns += [[found.label_names[label] for label in found.labels]] if found.labels is not None else []
    first = [list(row) for row in islice(zip(*columns, strict=True), SHOWN)]
    value = {"name": found.name, "form": found.kind, "rows": len(found), "source": found.source, "notes": found.notes}
    lines = [f"{found.name}: {len(found):,} {found.kind}, from {found.source}", *found.notes]
    lines += [f"row {row}: " + "  |  ".join(map(str, cells)) for row, cells in zip(found.rows, first, strict=False)]
    print_result({**value, "first": first}, as_json, "\n".join(lines))


def _list(as_json: bool) -> None:
    value = {
        name: {
            "title": each.title,
            "form": each.form,
            "splits": list(each.splits),
            "from": each.repo or "package index",
        }
        for name, each in DATA_SETS.items()
    }
    lines = [
        f"{name:14} {each['form']:16} {', '.join(each['splits']):18} {each['from']}" for name, each in value.items()
    ]
    lines.append("Also hf:org/name for any data set of the Hub, mteb:TASK, beir:FOLDER, nanobeir:SET, and files.")
    print_result({"data": value}, as_json, "\n".join(lines))
