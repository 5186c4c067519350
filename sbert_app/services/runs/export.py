"""A run's model as a zip file: a folder in the format of sentence-transformers, with model card and settings.

The card (README.md, written by `training.trainer.model_card`) states the data, the settings and the figures;
``run.json`` beside it has all settings and the figures of every evaluation in machine-readable form.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from sbert_app.services.runs.errors import RunBusy, RunStateError
from sbert_app.services.runs.record import AT_WORK, Run, slug
from sbert_app.services.runs.store import RunStore
from training.atomic import replace_file
from training.errors import unwritable


def export(store: RunStore, run_id: str, folder: Path) -> Path:
    """Write ``folder``/<name of the run>.zip and return its path. The folder inside has the same name.

    It is not compressed: weights hardly shrink.

    Raises:
        RunBusy: the run is queued or running.
        RunStateError: it has no model yet.
        InputError: the folder cannot be written.
    """
    run = store.get(run_id)
    if run.state in AT_WORK:
        raise RunBusy(f"run {run_id} is {run.state}; export it when it has ended, or stop it")
    if not run.has_model:
        raise RunStateError(f"run {run_id} has no model: it ended before its first evaluation; resume it")
    name = slug(run.name) or run.id
    target = folder / f"{name}.zip"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with replace_file(target) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
            for file in sorted(run.folder.joinpath("model").rglob("*")):
                if file.is_file():
                    archive.write(file, f"{name}/{file.relative_to(run.folder / 'model')}")
            archive.writestr(f"{name}/run.json", _settings_and_figures(run, store))
    except OSError as error:
        raise unwritable(target, error) from error
    return target


def _settings_and_figures(run: Run, store: RunStore) -> str:
    evaluations = [event for event in store.events(run.id) if event["kind"] == "eval"]
    values = {"id": run.id, "name": run.name, "config": run.config.to_dict(), "evaluations": evaluations}
    return json.dumps(values, indent=1, ensure_ascii=False) + "\n"
