"""What every test may use: a home folder of its own with the embedded model and data in it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from training import sources


@pytest.fixture(scope="session", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A ready SBERT_HOME: models and data are links into the real home folder, what tests add stays here.

    Where the real one lacks the embedded model or data, they are fetched into it first, as `make setup` does.
    """
    real = sources.home_folder()
    sources.embed(real)
    own = tmp_path_factory.mktemp("home")
    for kind in ("models", "data"):
        (own / kind).mkdir()
        for folder in (real / kind).iterdir():
            (own / kind / folder.name).symlink_to(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "SBERT_HOME", str(own))
        yield own
