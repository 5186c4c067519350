"""One running app for all tests that ask its HTTP API and change nothing that others rely on."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from running_app import RunningApp, running_app


@pytest.fixture(scope="session")
def shared_app(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApp]:
    """With a home folder of its own. An upload may have 1 MB."""
    with running_app(home, tmp_path_factory.mktemp("http"), "--upload-limit-mb", "1") as app:
        yield app
