"""Shared by the tests of sources: a client in a process of its own, small repositories, small wheels."""

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

from hub_server import HubServer

from training.sources import hub, package_index

ROOT = Path(__file__).parents[1]
MINILM_ID = "sentence-transformers/all-MiniLM-L6-v2"
NO_INDEX = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}

CLIENT = """
import json, logging, sys
from training.sources import resolve as sources
from training.errors import InputError
logging.basicConfig(level=logging.INFO, format="%(message)s")
try:
    found = getattr(sources, sys.argv[1])(*json.loads(sys.argv[2]))
    print(json.dumps({"path": str(found.path), "source": found.source}))
except InputError as error:
    print(json.dumps({"error": str(error)}))
"""

LOADER = """
import dataclasses, json, sys
from training.data.load import load_data
from training.data.load import load_retrieval
from training.errors import InputError
from training.sources import hub_dataset
names, limits = json.loads(sys.argv[1])
for name, value in limits.items():
    setattr(hub_dataset, name, value)
for name, split in names:
    try:
        found = load_retrieval(name) if "beir:" in name else load_data(name, split=split)
        print(json.dumps(dataclasses.asdict(found), default=list))
    except InputError as error:
        print(json.dumps({"error": str(error)}))
"""


class Client:
    """Calls a function of training.sources.resolve in a fresh process, with its own home and Hub cache."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.cache = folder / "hf"
        self.environment = {
            **os.environ,
            **NO_INDEX,
            "SBERT_HOME": str(self.home),
            "HF_HOME": str(self.cache),
            "HF_ENDPOINT": closed_door(),
            "HF_HUB_OFFLINE": "0",
        }

    def use(self, server: HubServer) -> None:
        self.environment |= server.environment(self.cache)

    def start(self, function: str, *arguments: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", CLIENT, function, json.dumps(arguments)],
            env=self.environment,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # A background job ignores Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            text=True,
            start_new_session=True,
        )

    def load(self, *names: str, split: str = "train", **limits: int) -> list[dict]:
        """`load_data` of each name in one fresh process: the fields of the data sets, or {"error": …}.

        ``limits`` are constants of training.sources.hub_dataset: MOST_ROWS, LARGEST_DOWNLOAD.
        """
        arguments = json.dumps([[(name, split) for name in names], limits])
        command = [sys.executable, "-c", LOADER, arguments]
        done = subprocess.run(
            command, env=self.environment, cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def call(self, function: str, *arguments: object) -> dict:
        process = self.start(function, *arguments)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        return {**json.loads(out), "log": err}


def closed_door() -> str:
    """The address of a port where nobody listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{one.getsockname()[1]}"


def write(folder: Path, *names: str, content: str = "x") -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{content} {name}")
    return folder


def model(folder: Path) -> Path:
    """What the Hub holds for a model, with what must not be taken beside it."""
    good = (
        "config.json",
        "modules.json",
        "tokenizer.json",
        "vocab.txt",
        "model.safetensors",
        "1_Pooling/config.json",
    )
    return write(
        folder, *good, "pytorch_model.bin", "rust_model.ot", "modeling_own.py", "onnx/model.onnx"
    )


def visible(folder: Path) -> list[str]:
    """Everything under a folder but locks, which are empty files."""
    return [name for name in hub.names_in(folder) if not name.endswith(".lock")]


def make_wheel(
    folder: Path, name: str, files: dict[str, str | bytes], version: str = "1.0"
) -> package_index.Wheel:
    """A wheel that pip accepts, and its true pin."""
    folder.mkdir(parents=True, exist_ok=True)
    base = f"{name.replace('-', '_')}-{version}"
    with zipfile.ZipFile(folder / f"{base}-py3-none-any.whl", "w") as zipped:
        for path, content in files.items():
            zipped.writestr(path, content)
        zipped.writestr(
            f"{base}.dist-info/METADATA",
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        )
        zipped.writestr(
            f"{base}.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        zipped.writestr(f"{base}.dist-info/RECORD", "")
    pin = hashlib.sha256((folder / f"{base}-py3-none-any.whl").read_bytes()).hexdigest()
    return package_index.Wheel(name, version, pin)
