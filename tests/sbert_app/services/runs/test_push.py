"""`runs/archives.py`: a run's model on a Hub on loopback, by the real client; the token stays nowhere."""

import json
import os
import subprocess
import sys

import pytest
from httpx import Request, Response
from hub_server import HubServer
from huggingface_hub import HfApi, ModelCard
from huggingface_hub.errors import HfHubHTTPError

from sbert_app.services.runs.archives import push
from sbert_app.services.runs.store import RunStore
from training.errors import InputError, UserFacingError
from training.models.encoder import Encoder
from training.sources import hub
from training.trainer.config import RunConfig

TOKEN = "hf_" + "s3cret" * 5
EVENT = {"kind": "eval", "step": 4, "spearman": 0.75, "best": True}


@pytest.fixture
def store(home, tmp_path):
    """A finished run with a small model."""
    store = RunStore(tmp_path / "home")
    run = store.create(RunConfig("regression", base="scratch:1x32", name="my run"), queue=False)
    Encoder.load("scratch:1x32", home=home).save(run.folder / "model")
    (run.folder / "model/README.md").write_text(
        "---\nlibrary_name: sentence-transformers\n---\n# my run\n"
    )
    (run.folder / "events.jsonl").write_text(json.dumps(EVENT) + "\n")
    return store


def test_the_model_arrives_with_its_metrics_and_the_token_stays_nowhere(store, tmp_path):
    with HubServer() as server:
        server.token = TOKEN
        environment = {
            **os.environ,
            **server.environment(tmp_path / "hf"),
            "SBERT_HOME": str(store.home),
        }
        [run] = store.list()
        command = [
            sys.executable,
            "-m",
            "sbert_app",
            "runs",
            "push",
            run.id,
            "me/my-model",
            "--json",
        ]
        done = subprocess.run(
            command,
            env={**environment, "HF_TOKEN": TOKEN},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["url"] == f"{server.url}/me/my-model"
        files = server.pushed["me/my-model"]
        assert server.private["me/my-model"]
    expected = {
        path.relative_to(run.folder / "model").as_posix()
        for path in (run.folder / "model").rglob("*")
        if path.is_file()
    }
    assert set(files) - {".gitattributes"} == expected
    assert files["model.safetensors"] == (run.folder / "model/model.safetensors").read_bytes()
    card = ModelCard(files["README.md"].decode())
    assert card.data.eval_results[0].metric_value == 0.75 and card.data.model_name == "me/my-model"
    written = [
        path
        for path in tmp_path.rglob("*")
        if path.is_file() and TOKEN.encode() in path.read_bytes()
    ]
    assert written == [] and TOKEN not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            HfHubHTTPError("401", response=Response(401, request=Request("POST", "/"))),
            "does not know this token",
        ),
        (
            ConnectionError(f"reset by {TOKEN}"),
            "the model could not be pushed to me/my-model: reset by …",
        ),
    ],
)
def test_a_refusal_of_the_hub_or_a_broken_connection_is_one_sentence(
    store, monkeypatch, error, message
):
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(HfApi, "create_repo", fail)
    monkeypatch.setattr(hub, "check_reachable", lambda: None)
    monkeypatch.setattr(hub, "is_offline", lambda: False)
    [run] = store.list()
    with pytest.raises(InputError, match=message):
        push(store, run.id, "me/my-model", TOKEN)


def test_a_wrong_name_token_or_run_is_refused_before_anything_is_sent(store):
    [run] = store.list()
    for repo, token, message in (
        ("my-model", TOKEN, "give org/name"),
        ("../x/y", TOKEN, "give org/name"),
        ("me/my-model", "", "a token with the right to write"),
        ("me/my-model", "two\nlines", "a token with the right to write"),
    ):
        with pytest.raises(InputError, match=message):
            push(store, run.id, repo, token)
    other = store.create(RunConfig("regression"), queue=False)
    with pytest.raises(UserFacingError, match="has no model"):
        push(store, other.id, "me/my-model", TOKEN)
