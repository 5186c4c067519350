"""Models over the real huggingface_hub client: the Hub, its cache, and places without a Hub."""

import os
import signal
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from hub_server import HubServer
from hypothesis import given
from hypothesis import strategies as st
from remote import model, visible, write

from training.sources import hub


def test_a_model_comes_from_the_hub_and_then_from_its_cache(client, tmp_path):
    with HubServer(models={"org/tiny": model(tmp_path / "repo")}) as server:
        client.use(server)
        first = client.call("model_folder", "org/tiny")
    assert first["source"] == f"Hub {server.url}"
    folder = Path(first["path"])
    assert visible(folder) == [
        "1_Pooling/config.json",
        "config.json",
        "model.safetensors",
        "modules.json",
        "tokenizer.json",
        "vocab.txt",
    ]
    assert (folder / "1_Pooling/config.json").read_text() == "x 1_Pooling/config.json"
    assert not [asked for asked in server.requests if "pytorch_model" in asked or ".py" in asked]

    again = client.call("model_folder", "org/tiny")
    assert (again["path"], again["source"]) == (first["path"], "Hub cache")


def test_a_model_with_pickled_weights_alone_is_refused_before_the_download(client, tmp_path):
    repo = write(tmp_path / "repo", "config.json", "pytorch_model.bin")
    with HubServer(models={"org/pickled": repo}) as server:
        client.use(server)
        answer = client.call("model_folder", "org/pickled")
    assert answer["error"].startswith("model org/pickled has no safetensors weights on the Hub")
    assert not [asked for asked in server.requests if "/resolve/" in asked]


def test_a_misspelt_id_names_every_place(client):
    with HubServer() as server:
        client.use(server)
        error = client.call("model_folder", "org/no-such")["error"]
    assert "home folder: not there; Hub cache: not there" in error
    assert f"Hub {server.url}: it has no model of this name" in error
    assert f"put the model's files into {client.home / 'models/org/no-such'}" in error
    assert "\n" not in error


def test_offline_asks_nobody(client, tmp_path):
    with HubServer(models={"org/tiny": model(tmp_path / "repo")}) as server:
        client.use(server)
        client.environment["HF_HUB_OFFLINE"] = "1"
        assert (
            f"Hub {server.url}: not asked, because offline"
            in client.call("model_folder", "org/tiny")["error"]
        )
        assert "package index: not asked, because offline" in client.call("stsb_folder")["error"]
        assert server.requests == []


def test_a_download_that_broke_off_is_not_taken_for_a_model(client, tmp_path):
    with HubServer(models={"org/tiny": model(tmp_path / "repo")}) as server:
        client.use(server)
        server.stalls.add("model.safetensors")
        process = client.start("model_folder", "org/tiny")
        assert server.stalled.wait(60)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert "Hub cache: incomplete" in client.call("model_folder", "org/tiny")["error"]
    with HubServer(models={"org/tiny": tmp_path / "repo"}) as server:
        client.use(server)
        found = client.call("model_folder", "org/tiny")
    assert (Path(found["path"]) / "model.safetensors").read_text() == "x model.safetensors"


def test_a_model_in_the_cache_of_the_hub_opens_without_the_hub(client):
    """transformers alone loads no pooling and no listing, so such a cache comes after the Hub."""
    repo = client.cache / "hub/models--org--tiny"
    write(repo / "snapshots/abc", "config.json", "model.safetensors")
    (repo / "refs").mkdir()
    (repo / "refs/main").write_text("abc")
    found = client.call("model_folder", "org/tiny")
    assert found["path"] == str(repo / "snapshots/abc")
    assert found["log"].index("not from Hub http") < found["log"].index("from Hub cache in part:")


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (200, "", "what answers there is not a Hub"),  # the log-in page of a hotel
        (403, "GatedRepo", "the model is gated: accept its terms on the Hub and set HF_TOKEN"),
        (503, "", "it answered with status 503"),
    ],
)
def test_an_odd_answer_is_put_in_words(client, status, code, words):
    class Odd(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.end_headers()
            self.wfile.write(b"<html>Welcome! Your room number, please.")

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Odd) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        client.environment["HF_ENDPOINT"] = f"http://127.0.0.1:{server.server_port}"
        assert words in client.call("model_folder", "org/tiny")["error"]
        server.shutdown()


@given(
    st.lists(st.text("ab/._-", max_size=6).map(lambda stem: stem + ".json") | st.text(max_size=12))
)
def test_no_script_and_no_pickle_is_ever_picked(listing):
    own = {
        "model.safetensors",
        "adapter_model.safetensors",
        "chat_template.jinja",
        "artifact.metadata",
    }
    listing += ["load.py", "data.pkl", "model.pt", "pytorch_model.bin", *own]
    picked = hub.pick_model("x", listing)
    assert own <= set(picked)
    assert set(picked) <= set(listing)
    assert not [name for name in picked if name.endswith((".py", ".pkl", ".pt", ".bin"))]
