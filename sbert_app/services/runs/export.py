"""A run's model as a zip file, or pushed to the Hugging Face Hub.

The zip has a folder in the format of sentence-transformers, with model card and settings.

The card (README.md, written by `training.trainer.model_card`) states the data, the settings and the figures;
``run.json`` beside it has all settings and the figures of every evaluation in machine-readable form.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

from sbert_app.services.background.state import AT_WORK
from sbert_app.services.runs.record import Run, RunBusy, RunStateError, slug
from sbert_app.services.runs.store import RunStore
from training.atomic import replace_file, write_text
from training.errors import unwritable
from training.sources.hub import push_folder


def export(store: RunStore, run_id: str, folder: Path) -> Path:
    """Write ``folder``/<name of the run>.zip and return its path. The folder inside has the same name.

    It is not compressed: weights hardly shrink. InputError if it cannot be written; also as `_with_model`.
    """
    run = _with_model(store, run_id, "export")
    name = slug(run.name) or run.id
    target = folder / f"{name}.zip"
    evaluations = [event for event in run.events if event["kind"] == "eval"]
    values = {"id": run.id, "name": run.name, "config": run.config.to_dict(), "evaluations": evaluations}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with replace_file(target) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
            for file in sorted(run.folder.joinpath("model").rglob("*")):
                if file.is_file():
                    archive.write(file, f"{name}/{file.relative_to(run.folder / 'model')}")
            archive.writestr(f"{name}/run.json", json.dumps(values, indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        raise unwritable(target, error) from error
    return target


def _with_model(store: RunStore, run_id: str, verb: str) -> Run:
    """The run. RunBusy while it is queued or running, RunStateError if it has no model."""
    run = store.get(run_id)
    if run.state in AT_WORK:
        raise RunBusy(f"run {run_id} is {run.state}; {verb} it when it has ended, or stop it")
    if not run.has_model:
        raise RunStateError(f"run {run_id} has no model: it ended before its first evaluation; resume it")
    return run


def push(store: RunStore, run_id: str, repo: str, token: str, private: bool = True) -> str:
    """Upload the model with its card to ``repo`` (org/name), made if it does not exist. Returns its address.

    InputError as `push_folder` and `_with_model`.
    """
    run = _with_model(store, run_id, "push")
    repo = repo.strip()

    def write(model: Path) -> None:
        from training.trainer.model_card import with_model_index  # which imports torch

        shutil.copytree(run.folder / "model", model)
        card = model / "README.md"
        text = card.read_text(encoding="utf-8") if card.exists() else ""
        write_text(card, with_model_index(text, run.config, run.progress.best or {}, repo, run.progress.test))

    return push_folder(write, repo, token, private, f"{run.name}, trained with SBERT Lab")
