"""The model of a run as a ZIP archive, or in a repository of the Hub.

An archive holds one folder in the format of sentence-transformers with its model card, and
``run.json``: all settings, and the metrics of every evaluation.
"""

import json
import shutil
import zipfile
from pathlib import Path

from sbert_app.services.background.watch import AT_WORK
from sbert_app.services.runs.record import Run, RunBusyError, RunStateError
from sbert_app.services.runs.store import RunStore
from training.atomic import replace_file, write_text
from training.errors import unwritable
from training.names import slug
from training.sources.hub import push_folder
from training.trainer.model_card import with_model_index


def export(store: RunStore, run_id: str, folder: Path) -> Path:
    """Writes ``folder``/<name of the run>.zip and returns its path. The folder inside has the same name.

    The archive is not compressed, as weights hardly shrink. Raises RunError if the run is at work
    or has no model; InputError if the archive cannot be written.
    """
    run = _with_model(store, run_id, "export")
    name = slug(run.name) or run.id
    target = folder / f"{name}.zip"
    values = {
        "id": run.id,
        "name": run.name,
        "config": run.config.to_dict(),
        "evaluations": [event for event in run.events if event["kind"] == "eval"],
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (
            replace_file(target) as temporary,
            zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive,
        ):
            model = run.folder / "model"
            for file in sorted(model.rglob("*")):
                if file.is_file():
                    archive.write(file, f"{name}/{file.relative_to(model)}")
            text = json.dumps(values, indent=1, ensure_ascii=False) + "\n"
            archive.writestr(f"{name}/run.json", text)
    except OSError as error:
        raise unwritable(target, error) from error
    return target


def _with_model(store: RunStore, run_id: str, verb: str) -> Run:
    """The run, if it has a model. Otherwise raises RunStateError, or RunBusyError while the run is at work."""
    run = store.get(run_id)
    if run.state in AT_WORK:
        raise RunBusyError(f"run {run_id} is {run.state}; {verb} it when it has ended, or stop it")
    if not run.has_model:
        raise RunStateError(
            f"run {run_id} has no model: it ended before its first evaluation; resume it"
        )
    return run


def push(store: RunStore, run_id: str, repo: str, token: str, private: bool = True) -> str:
    """Uploads the model with its card to ``repo`` (org/name), which is created if needed. Returns its address.

    Raises RunError if the run is at work or has no model; InputError if ``repo`` or ``token`` cannot
    be used, or the Hub cannot be reached.
    """
    run = _with_model(store, run_id, "push")
    repo = repo.strip()

    def write(model: Path) -> None:
        shutil.copytree(run.folder / "model", model)
        card = model / "README.md"
        text = card.read_text(encoding="utf-8") if card.exists() else ""
        best = run.progress.best or {}
        write_text(card, with_model_index(text, run.config, best, repo, run.progress.test))

    return push_folder(write, repo, token, private, f"{run.name}, trained with SBERT Lab")
