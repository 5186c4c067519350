"""Commands in this process; one running app for all tests that ask its HTTP API and change nothing others rely on."""

import json
import logging
import os
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import PAIRS, SENTENCES, Answer, Run
from paths import linked_home
from running_app import RunningApp, running_app
from tiny_models import make_model

from sbert_app import cli
from sbert_app.terminal import ProgressBar

TOKEN = "a-token-for-machines"
STSB_ROWS = 130


@pytest.fixture(scope="session")
def shared_app(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApp]:
    """With MCP, a login, whose token is in each request, uploads of at most 1 MB, and a part of the STS benchmark."""
    own = linked_home(home, tmp_path_factory.mktemp("http"), STSB_ROWS)
    options = (
        "--auth",
        "teacher:correct horse",
        "--mcp",
        "--upload-limit-mb",
        "1",
        "--allow-origin",
        "app://obsidian.md",
    )
    with running_app(home, own, *options, SBERT_TOKEN=TOKEN) as app:
        yield replace(app, headers={"Authorization": f"Bearer {TOKEN}"})


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Run a command in this process, and leave no trace in it."""
    # A fresh process reads it from the environment.
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    ours = logging.getLogger("sbert_lab")
    before = ours.handlers, ours.level

    def run(*arguments: object) -> Answer:
        code = cli.main([str(argument) for argument in arguments])
        return Answer(code, *capsys.readouterr())

    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_VERBOSITY", "HF_HUB_DISABLE_PROGRESS_BARS"):
            patch.setenv(name, os.environ.get(name, ""))  # whatever it becomes, it is put back
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield run
    ours.handlers, ours.level = before
    ProgressBar.is_wanted = True


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a file of pairs and one of sentences."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.csv").write_text(PAIRS, encoding="utf-8")
    rows = "".join(
        json.dumps({"id": i, "sentence": text}) + "\n" for i, text in enumerate(SENTENCES)
    )
    (tmp_path / "sentences.jsonl").write_text(rows, encoding="utf-8")
    return tmp_path
