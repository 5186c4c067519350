"""A run's model on the Hub: the real client against a Hub on loopback, the token in no file and no message."""

import json
import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from hub_server import HubServer
from huggingface_hub import ModelCard

from sbert_app.services.runs.archives import push
from sbert_app.services.runs.store import RunStore
from training.errors import InputError, UserFacingError
from training.models.encoder import Encoder
from training.trainer.config import RunConfig

TOKEN = "hf_" + "s3cret" * 5
EVENT = {"kind": "eval", "step": 4, "spearman": 0.75, "best": True}


@pytest.fixture
def store(home, tmp_path):
    """A finished run with a small model."""
    store = RunStore(tmp_path / "home")
    run = store.create(RunConfig("regression", base="scratch:1x32", name="my run"), queue=False)
    Encoder.load("scratch:1x32", home=home).save(run.folder / "model")
    (run.folder / "model/README.md").write_text("---\nlibrary_name: sentence-transformers\n---\n# my run\n")
    (run.folder / "events.jsonl").write_text(json.dumps(EVENT) + "\n")
    return store


def pushed(hub: HubServer, store: RunStore, folder: Path, token: str, *options: str) -> subprocess.CompletedProcess:
    [run] = store.list()
    command = [sys.executable, "-m", "sbert_app", "runs", "push", run.id, "me/my-model", *options]
    environment = {**os.environ, **hub.environment(folder / "hf"), "SBERT_HOME": str(store.home), "HF_TOKEN": token}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)


def test_the_model_arrives_with_its_metrics_and_the_token_stays_nowhere(store, tmp_path):
    with HubServer() as hub:
        hub.token = TOKEN
        done = pushed(hub, store, tmp_path, TOKEN, "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["url"] == f"{hub.url}/me/my-model"
        files = hub.pushed["me/my-model"]
        assert hub.private["me/my-model"]
    [run] = store.list()
    expected = {
        path.relative_to(run.folder / "model").as_posix()
        for path in (run.folder / "model").rglob("*")
        if path.is_file()
    }
    assert set(files) - {".gitattributes"} == expected
    assert files["model.safetensors"] == (run.folder / "model/model.safetensors").read_bytes()
    card = ModelCard(files["README.md"].decode())
    assert card.data.eval_results[0].metric_value == 0.75 and card.data.model_name == "me/my-model"
    written = [path for path in tmp_path.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]
    assert written == [] and TOKEN not in done.stdout + done.stderr


@pytest.mark.slow
def test_a_token_that_the_hub_does_not_know_is_one_sentence(store, tmp_path):
    with HubServer() as hub:
        hub.token = "hf_other"
        done = pushed(hub, store, tmp_path, TOKEN)
    assert done.returncode == 2
    assert "the Hub does not know this token" in done.stderr
    assert TOKEN not in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_connection_that_breaks_off_is_one_sentence(store, tmp_path):
    with BrokenHub() as hub:
        done = pushed(hub, store, tmp_path, TOKEN)
    assert done.returncode == 2
    assert "error: the model could not be pushed to me/my-model: " in done.stderr
    assert TOKEN not in done.stderr and "Traceback" not in done.stderr


class BrokenHub:
    """Takes connections, and closes them without an answer."""

    def __enter__(self) -> "BrokenHub":
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._refuse, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _refuse(self) -> None:
        with suppress(OSError):  # the server has been closed
            while True:
                connection, _ = self._socket.accept()
                connection.close()

    def environment(self, hf_home: Path) -> dict[str, str]:
        address = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        return {"HF_ENDPOINT": address, "HF_HOME": str(hf_home), "HF_HUB_OFFLINE": "0"}


@pytest.mark.parametrize(
    ("repo", "token", "message"),
    [
        ("my-model", TOKEN, "give org/name"),
        ("../x/y", TOKEN, "give org/name"),
        ("me/my-model", "", "a token with the right to write"),
        ("me/my-model", "two\nlines", "a token with the right to write"),
    ],
)
def test_what_cannot_be_used_is_said_before_anything_is_sent(store, repo, token, message):
    [run] = store.list()
    with pytest.raises(InputError, match=message):
        push(store, run.id, repo, token)


def test_a_run_without_a_model_is_not_pushed(tmp_path):
    store = RunStore(tmp_path)
    run = store.create(RunConfig("regression"), queue=False)
    with pytest.raises(UserFacingError, match="has no model"):
        push(store, run.id, "me/my-model", TOKEN)
