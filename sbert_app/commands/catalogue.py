"""models and data: list the names that can be used and where they come from, and show how a file is read."""

from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from sbert_app.commands import options
from sbert_app.formats import format_bytes, format_count
from sbert_app.services.files.doctor import clean as write_clean
from sbert_app.services.files.doctor import examine
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.runs.store import PICKED, RunStore
from sbert_app.terminal import print_result
from training.atomic import folder_size
from training.catalogue import (
    BASELINES,
    BM25,
    CROSS_ENCODERS,
    DATA_SETS,
    DOWNLOADS,
    ENCODERS,
    WORD_ENCODERS,
)
from training.data.load import load_data
from training.data.tables.table import open_table
from training.errors import InputError
from training.models.model import VectorModel, open_model
from training.names import DataName


def models(
    name: Annotated[
        str | None,
        Argument(metavar="[NAME]", help="Shows what it is: its kind, vectors, limits and prompts."),
    ] = None,
    home: options.Home = None,
    offline: options.Offline = False,
    as_json: options.Json = False,
) -> None:
    """List the models that can be named, or show one.

    They are built in, in the home folder, or of runs. Any model of the Hub can be named, too.
    """
    home_path = options.prepare(home, offline)
    if name is not None:
        _show_model(name, home_path, as_json)
        return
    cache = ModelCache(home_path)
    kinds = dict.fromkeys(ENCODERS, "bi-encoder")
    kinds |= dict.fromkeys(CROSS_ENCODERS, "cross-encoder")
    kinds |= dict.fromkeys([*BASELINES, BM25], "baseline")
    kinds |= dict.fromkeys(WORD_ENCODERS, "random weights")
    models_folder = home_path / "models"
    sizes = {}
    # The folder of a model is called NAME or ORG/NAME.
    for pattern in ("*/modules.json", "*/*/modules.json"):
        for file in models_folder.glob(pattern):
            sizes[str(file.parent.relative_to(models_folder))] = folder_size(file.parent)
    for name in sorted(sizes):
        kinds.setdefault(name, "in the home folder")
    rows: list[dict[str, Any]] = []
    for name, kind in kinds.items():
        is_here = cache.is_here(name)
        rows.append({"name": name, "kind": kind, "here": is_here, "bytes": sizes.get(name)})
    # The newest runs, as many as the pickers of the app offer.
    for run in RunStore(home_path).list(PICKED):
        if run.has_model:
            size = folder_size(run.folder / "model")
            rows.append(
                {
                    "name": f"run:{run.id}",
                    "kind": "run",
                    "here": True,
                    "bytes": size,
                    "called": run.name,
                }
            )
    lines = []
    for row in rows:
        state = "here" if row["here"] else "to be fetched"
        disk_space = ""
        if row["bytes"]:
            disk_space = format_bytes(row["bytes"])
        elif not row["here"]:
            disk_space = DOWNLOADS.get(row["name"], "")
        called = row.get("called", "")
        line = f"{row['name']:36} {row['kind']:18} {state:14} {disk_space:>8}  {called}"
        lines.append(line.rstrip())
    lines.append("Any model of the Hub (org/name), folder and endpoint can be named as well.")
    print_result({"models": rows}, as_json, "\n".join(lines))


def _show_model(name: str, home_path: Path, as_json: bool) -> None:
    """Opens a model and prints its settings."""
    model = open_model(name, home=home_path)
    settings: dict[str, Any] = {
        "name": model.name,
        "kind": model.kind,
        "dimension": model.dimension,
        "pooling": model.pooling,
        "max_length": model.max_length,
        "sent_to": model.sent_to,
    }
    if isinstance(model, VectorModel):
        settings |= {
            "similarity": model.similarity_fn_name,
            "settings": model.settings,
            "prompts": dict(model.prompts),
            "prompt": model.prompt,
            "advice": model.prompt_advice,
        }
    # Only models that PyTorch computes have these attributes.
    for key in ("dtype", "device"):
        setting = getattr(model, key, None)
        settings[key] = None if setting is None else str(setting).removeprefix("torch.")
    units = {"dimension": " numbers", "max_length": " tokens"}
    lines = []
    for key, setting in settings.items():
        if setting not in (None, "", {}):
            lines.append(f"{key.replace('_', ' '):12} {setting}{units.get(key, '')}")
    print_result(settings, as_json, "\n".join(lines))


@options.grouped
def data(
    name: Annotated[
        str | None,
        Argument(
            metavar="[NAME_OR_FILE]", help="Shows how it is read: its form, rows and notes; or -."
        ),
    ] = None,
    *,
    file: options.PairFileOptions,
    model: Annotated[
        str | None,
        Option("--model", metavar="NAME", help="Look for text that this model cannot read, too."),
    ] = None,
    against: Annotated[
        str | None, Option(metavar="DATA", help="Look for the rows of this evaluation data, too.")
    ] = None,
    clean: Annotated[
        Path | None, Option(metavar="OUT", help="Write the file without the problem rows.")
    ] = None,
    home: options.Home = None,
    offline: options.Offline = False,
    as_json: options.Json = False,
) -> None:
    """List the data sets, or show how one or a file is read.

    It also lists problem rows: duplicate pairs, pairs judged differently, sentences paired with
    themselves, rows of evaluation data, and text that a model cannot read.
    """
    home_path = options.prepare(home, offline)
    if name is None:
        _list_data_sets(as_json)
        return
    with options.input_file(name) as source:
        dataset = load_data(file.with_options(source), home_path)
        evaluation_data = {}
        if against:
            evaluation_data[against] = load_data(against, home_path, split="test")
        text_model = open_model(model, home=home_path) if model else None
        findings = examine(dataset, text_model, evaluation_data)
        if clean is not None:
            data_name = DataName.parse(source)
            if not data_name.path.is_file():
                raise InputError(f"{name} is not a file, so there is nothing to write --clean from")
            # The rows are copied from the file itself. Settings in the name take precedence over
            # options.
            encoding = data_name.encoding or file.encoding
            table = open_table(data_name.path, encoding, data_name.sheet or file.sheet)
            num_clean = write_clean(table, clean, dataset, findings)
    columns: list[Any] = list(dataset.columns)
    if dataset.scores is not None:
        columns.append(dataset.scores)
    if dataset.labels is not None:
        columns.append([dataset.label_names[label] for label in dataset.labels])
    rows = zip(*columns, strict=True)
    first_rows = [list(row) for row in islice(rows, 3)]
    value: dict[str, Any] = {
        "name": dataset.name,
        "form": dataset.kind,
        "rows": len(dataset),
        "source": dataset.source,
        "notes": dataset.notes,
        "faults": [{"what": finding.what, "rows": finding.rows} for finding in findings],
        "first": first_rows,
    }
    lines = [
        f"{dataset.name}: {len(dataset):,} {dataset.kind}, from {dataset.source}",
        *dataset.notes,
    ]
    # Scores of any other scale have a note that says how they are read.
    has_note = any("read as: " in note for note in dataset.notes)
    if dataset.scores is not None and not has_note:
        lines.append("read as: scores from 0 to 5")
    # ``dataset.rows`` has the number of every row in its file, and only the first three are shown.
    for number, cells in zip(dataset.rows, first_rows, strict=False):
        lines.append(f"row {number}: {'  |  '.join(map(str, cells))}")
    lines += [f"fault: {finding}" for finding in findings]
    if clean is not None:
        value["clean"] = {"file": str(clean), "rows": num_clean}
        size = format_count(num_clean, "row")
        lines.append(
            f"{clean} has {size}; problem rows and unusable rows are left out, cut ones stay"
        )
    print_result(value, as_json, "\n".join(lines))


def _list_data_sets(as_json: bool) -> None:
    """Prints the built-in data sets with their forms, splits and sources."""
    value = {}
    lines = []
    for name, entry in DATA_SETS.items():
        splits = list(entry.splits)
        source = entry.repo or "package index"
        value[name] = {"title": entry.title, "form": entry.form, "splits": splits, "from": source}
        lines.append(f"{name:14} {entry.form:16} {', '.join(splits):18} {source}")
    lines.append(
        "Also hf:org/name for any data set of the Hub, mteb:TASK, beir:FOLDER, nanobeir:SET, and files."
    )
    print_result({"data": value}, as_json, "\n".join(lines))
