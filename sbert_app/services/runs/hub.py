"""Push a run's model to the Hugging Face Hub. The access token is used for the requests and kept nowhere."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

from sbert_app.services.runs.errors import RunBusy, RunStateError
from sbert_app.services.runs.record import AT_WORK, one_line
from sbert_app.services.runs.store import RunStore
from training.atomic import write_text
from training.errors import InputError
from training.sources.connection import check_reachable, endpoint
from training.sources.home import is_offline

REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)


def push(store: RunStore, run_id: str, repo: str, token: str, private: bool = True) -> str:
    """Upload the model with its card to ``repo`` (org/name), made if it does not exist. Returns its address.

    Args:
        token: of the Hub, with the right to write. It appears in no message and no file.
        private: of a new repository.

    Raises:
        RunBusy: the run is queued or running.
        RunStateError: it has no model.
        InputError: the name or the token cannot be used, or the Hub cannot be reached.
    """
    from huggingface_hub import HfApi, errors

    repo, token = repo.strip(), token.strip()
    if not REPO.fullmatch(repo):
        raise InputError(f"{repo[:80]!r} is no repository; give org/name, such as my-name/my-model")
    if not token.isascii() or not token.isprintable() or not token:
        raise InputError("a token with the right to write is needed; make one at huggingface.co/settings/tokens")
    run = store.get(run_id)
    if run.state in AT_WORK:
        raise RunBusy(f"run {run_id} is {run.state}; push it when it has ended, or stop it")
    if not run.has_model:
        raise RunStateError(f"run {run_id} has no model: it ended before its first evaluation; resume it")
    if is_offline():
        raise InputError("the app is offline; start it without --offline to push a model")
    from training.trainer.model_card import with_model_index  # which imports torch

    api = HfApi(token=token)
    try:
        check_reachable()
        with tempfile.TemporaryDirectory() as folder:
            model = Path(folder) / "model"
            shutil.copytree(run.folder / "model", model)
            card = model / "README.md"
            text = card.read_text(encoding="utf-8") if card.exists() else ""
            write_text(card, with_model_index(text, run.config, run.progress.best or {}, repo))
            api.create_repo(repo, private=private, exist_ok=True)
            api.upload_folder(repo_id=repo, folder_path=model, commit_message=f"{run.name}, trained with SBERT Lab")
    except errors.HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else 0
        raise InputError(_refusal(status, repo, one_line(error), token)) from None
    except (errors.HTTPError, OSError, ValueError) as error:  # no connection, the disk; an answer that is not the Hub's
        raise InputError(f"the model could not be pushed to {repo}: {_without(one_line(error), token)}") from None
    return f"{endpoint()}/{repo}"


def _refusal(status: int, repo: str, message: str, token: str) -> str:
    if status == 401:
        return "the Hub does not know this token; make one with the right to write at huggingface.co/settings/tokens"
    if status == 403:
        return f"this token may not write to {repo}; give it that right, or choose a repository of your own"
    return f"the Hub refused {repo}: {_without(message, token)}"


def _without(message: str, token: str) -> str:
    return message.replace(token, "…")
