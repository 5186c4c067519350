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
# These need another machine, a browser, environments or half an hour, so they are measured only by name.
ON_REQUEST = {"gpu", "pages", "peers", "serving", "soak", "versions"}
RESULTS = Path(__file__).parent / "results"


def measure(name: str, **options: Any) -> dict[str, Any]:
    """Run one benchmark with the options that are not None.

    Raises InputError if there is no such benchmark, or if it does not have one of the options.
    """
    if name not in BENCHMARKS:
        raise InputError(f"there is no benchmark {name!r}; choose {', '.join(BENCHMARKS)}")
    module, _, function = BENCHMARKS[name].partition(".")
    run = getattr(import_module(f"benchmarks.{module}"), function)
    parameters = inspect.signature(run).parameters
    options = {option: value for option, value in options.items() if value is not None}
    # Only benchmarks that take long save their results before the end.
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
    cells = [columns]
    for row in rows:
        cells.append([_plain(row[column]) for column in columns])
    widths = [max(map(len, texts)) for texts in zip(*cells, strict=True)]
    lines = []
    for texts in cells:
        padded = [text.rjust(width) for text, width in zip(texts, widths, strict=True)]
        lines.append("  ".join(padded))
    return lines


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(part)}" for key, part in value.items())
    return str(value)


def main() -> int:
    """The command. Returns 0, or 2 if the options are wrong."""
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
    # The app applies the same settings of the process.
    configure_process()
    for name in arguments.names or sorted(set(BENCHMARKS) - ON_REQUEST):
        try:
            with clean_stdout():
                result = measure(
                    name,
                    rounds=arguments.rounds,
                    minutes=arguments.minutes,
                    device=arguments.device,
                    small=arguments.small,
                    # Only benchmarks that are named can have the same peer.
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
