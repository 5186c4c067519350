"""A run's model as one zip: a folder in the sentence-transformers layout, with its model card and its settings.

The card (README.md, written by `training.trainer.model_card`) states the data, the settings and the figures;
``run.json`` beside it holds all settings and the figures of every evaluation, for machines.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from sbert_app.services.runs.record import AT_WORK, Run, slug
from sbert_app.services.runs.store import RunStore
from training.atomic import replace_file
from training.errors import InputError


def export(store: RunStore, run_id: str, folder: Path) -> Path:
    """Write ``folder``/<name of the run>.zip and return its path. The folder inside has the same name.

    Weights do not shrink, so nothing is compressed. InputError if the run has no model yet or is at work, or if the
    folder cannot be written.
    """
    run = store.get(run_id)
    if run.state in AT_WORK:
        raise InputError(f"run {run_id} is {run.state}; export it when it has ended, or stop it")
    if not run.has_model:
        raise InputError(f"run {run_id} has no model: it ended before its first evaluation; resume it")
    name = slug(run.name) or run.id
    target = folder / f"{name}.zip"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with replace_file(target) as fresh, zipfile.ZipFile(fresh, "w", zipfile.ZIP_STORED) as packed:
            for file in sorted(run.folder.joinpath("model").rglob("*")):
                if file.is_file():
                    packed.write(file, f"{name}/{file.relative_to(run.folder / 'model')}")
            packed.writestr(f"{name}/run.json", _facts(run, store))
    except OSError as error:
        raise InputError(f"{target} could not be written: {error.strerror or error}") from error
    return target


def _facts(run: Run, store: RunStore) -> str:
    """Settings and every evaluation as JSON."""
    evaluations = [event for event in store.events(run.id) if event["kind"] == "eval"]
    facts = {"id": run.id, "name": run.name, "config": run.config.to_dict(), "evaluations": evaluations}
    return json.dumps(facts, indent=1, ensure_ascii=False) + "\n"
