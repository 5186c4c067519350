"""Run benchmarks: python -m benchmarks [NAME ...] [--rounds N] [--minutes M] [--against PEER] [--json] [--no-save]

Without a name: all of them but gpu, pages, peers, serving, soak and versions. --device is an option
of gpu, --small of gpu and search. Each prints a table and writes benchmarks/results/NAME.json.
"""

import argparse
import inspect
import json
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from sbert_app.process import configure_process
from sbert_app.terminal import clean_stdout
from training.errors import InputError

# The module and the function of each, which returns a dictionary of plain JSON.
BENCHMARKS = {
    "bulk": "bulk.run",
    "cluster": "cluster.run_cluster",
    "cross": "cross.run",
    "encode": "encode.run_encode",
    "explore": "explore.run_explore",
    "gpu": "gpu.run",
    "maps": "maps.run",
    "pages": "pages.run",
    "pairs": "encode.run_pairs",
    "peers": "peers.run",
    "runs": "cluster.run_runs",
    "scaling": "scaling.run",
    "search": "explore.run_search",
    "serving": "serving.run_serving",
    "soak": "soak.run",
    "start-up": "start_up.run",
    "train": "train.run",
    "users": "serving.run_users",
    "versions": "versions.run",
}
# They need another machine, a browser, environments or half an hour.
ON_REQUEST = {"gpu", "pages", "peers", "serving", "soak", "versions"}
RESULTS = Path(__file__).parent / "results"


def measure(name: str, **options: Any) -> dict[str, Any]:
    """Run one benchmark with the options that are not None. InputError if there is no such benchmark or option."""
    if name not in BENCHMARKS:
        raise InputError(f"there is no benchmark {name!r}; choose {', '.join(BENCHMARKS)}")
    module, _, function = BENCHMARKS[name].partition(".")
    run = getattr(import_module(f"benchmarks.{module}"), function)
    parameters = inspect.signature(run).parameters
    options = {option: value for option, value in options.items() if value is not None}
    # Only the long ones save their first rows.
    if "on_partial" not in parameters:
        options.pop("on_partial", None)
    for option in options:
        if option not in parameters:
            raise InputError(f"the benchmark {name} has no option --{option}")
    return run(**options)


def text(result: dict[str, Any]) -> str:
    """A result as lines to read: single figures first, then each list of rows as a table."""
    tables = {key: value for key, value in result.items() if isinstance(value, list) and value}
    lines = [f"{key}: {_plain(value)}" for key, value in result.items() if key not in tables]
    for key, rows in tables.items():
        lines += ["", key, *_table(rows)]
    return "\n".join(lines)


def save(name: str, result: dict[str, Any]) -> Path:
    """Write a result to results/NAME.json, which the docs quote, and return its path."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    return path


def _table(rows: list[dict[str, Any]]) -> list[str]:
    columns = list(rows[0])
    cells = [columns, *([_plain(row[column]) for column in columns] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in cells
    ]


def _plain(value: Any) -> str:
    return (
        ", ".join(f"{k} {_plain(v)}" for k, v in value.items())
        if isinstance(value, dict)
        else str(value)
    )


def main() -> int:
    """The command. Exit code 2: the options are wrong, said in one line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure, and write results/NAME.json."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument(
        "--rounds", type=int, help="times that each side is measured; the median counts"
    )
    parser.add_argument("--minutes", type=float, help="how long the soak lasts (30)")
    parser.add_argument(
        "--against",
        help="what to measure beside: sentence-transformers, an interpreter (peers, serving), another tree (pages)",
    )
    parser.add_argument("--device", help="of gpu: auto, cuda, cpu")
    parser.add_argument(
        "--small", action="store_true", default=None, help="so little that the figures mean nothing"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--no-save", action="store_true", help="leave results/ as it is")
    arguments = parser.parse_args()
    # The app does the same.
    configure_process()
    for name in arguments.names or sorted(set(BENCHMARKS) - ON_REQUEST):
        options = {
            option: getattr(arguments, option)
            for option in ("rounds", "minutes", "device", "small")
        }
        try:
            with clean_stdout():
                result = measure(
                    name,
                    **options,
                    against=arguments.against if arguments.names else None,
                    on_partial=None if arguments.no_save else partial(save, name),
                )
        except InputError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        print(json.dumps(result, ensure_ascii=False) if arguments.json else text(result))
        if not arguments.no_save:
            print(f"-> {save(name, result)}\n", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
