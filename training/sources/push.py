"""A model's folder pushed to the Hugging Face Hub."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from training.errors import InputError
from training.names import is_repo_id
from training.sources.home import is_offline
from training.sources.hub import check_reachable, endpoint


def push_folder(write: Callable[[Path], object], repo: str, token: str | None, private: bool, message: str) -> str:
    """Upload what ``write`` puts into a folder to ``repo`` (org/name), made if it does not exist. Returns its address.

    Args:
        write: makes the folder that it is given, in a temporary place, and fills it.
        repo: org/name.
        token: of the Hub, with the right to write; it is in no message and no file. None = the one of HF_TOKEN or
            ``hf auth login``.
        private: of a new repository.
        message: of the commit.

    Raises:
        InputError: the name or the token cannot be used, or the Hub cannot be reached.
    """
    from huggingface_hub import HfApi, errors, get_token

    repo, token = repo.strip(), (token if token is not None else get_token() or "").strip()
    if not is_repo_id(repo) or "/" not in repo:
        raise InputError(f"{repo[:80]!r} is no repository; give org/name, such as my-name/my-model")
    if not token.isascii() or not token.isprintable() or not token:
        raise InputError("a token with the right to write is needed; make one at huggingface.co/settings/tokens")
    if is_offline():
        raise InputError("the Hub is switched off (--offline or HF_HUB_OFFLINE=1); start without that to push a model")
    api = HfApi(endpoint=endpoint(), token=token)
    try:
        check_reachable()
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder) / "model")
            api.create_repo(repo, private=private, exist_ok=True)
            api.upload_folder(repo_id=repo, folder_path=Path(folder) / "model", commit_message=message)
    except errors.HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else 0
        raise InputError(_refusal(status, repo, _message(error, token))) from None
    except (errors.HTTPError, OSError, ValueError) as error:  # no connection, the disk; an answer that is not the Hub's
        raise InputError(f"the model could not be pushed to {repo}: {_message(error, token)}") from None
    return f"{endpoint()}/{repo}"


def _refusal(status: int, repo: str, message: str) -> str:
    if status == 401:
        return "the Hub does not know this token; make one with the right to write at huggingface.co/settings/tokens"
    if status == 403:
        return f"this token may not write to {repo}; give it that right, or choose a repository of your own"
    return f"the Hub refused {repo}: {message}"


def _message(error: BaseException, token: str) -> str:
    return (" ".join(str(error).split()) or type(error).__name__).replace(token, "…")
