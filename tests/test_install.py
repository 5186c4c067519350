"""The wheel, installed into an environment of its own and used from a folder that has nothing to do with the clone."""

import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from command_line import read_csv
from paths import ROOT

from hatch_build import for_pypi
from sbert_app import __version__

pytestmark = pytest.mark.slow

SCRIPT = """
import subprocess, sys
import sbert_app, training
from sbert_app.process import child_environment
from training.catalogue import asset

print(training.__file__, sbert_app.__file__, asset("examples/corpus.csv").is_file(), sep="\\n")
# As the queue starts a worker and the maps start their compiler.
command = [sys.executable, "-P", "-m", "sbert_app", "worker", "--help"]
print(subprocess.run(command, env=child_environment(), capture_output=True, text=True, check=True).stdout)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        ROOT,
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        folder,
    ]
    subprocess.run(build, check=True, env={**os.environ, "PROJECT_URL": "https://example.org/lab"})
    [file] = folder.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel; its dependencies are those of the environment that runs the tests."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    variables = {"base": str(folder), "platbase": str(folder)}
    packages = Path(sysconfig.get_path("purelib", "venv", variables))
    # A plain .pth line: .pth files in the folder that it names, such as an editable install's, are
    # not followed.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python"]
    subprocess.run(
        [*pip, "install", "--quiet", "--no-deps", "--ignore-installed", wheel], check=True
    )
    return folder


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A working directory whose ``training`` is somebody else's."""
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "notes.txt").write_text("not a package of ours")
    return tmp_path


def run(command: list[object], cwd: Path, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["SBERT_HOME"] = str(home)
    return subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_the_wheel_holds_the_packages_and_every_asset_but_the_screenshots(wheel: Path):
    packages = {
        path.relative_to(ROOT).as_posix()
        for package in ("sbert_lab", "training", "sbert_app")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assets = {
        "training/_assets/" + path.relative_to(ROOT / "assets").as_posix()
        for path in (ROOT / "assets").rglob("*")
        if path.is_file() and "screenshots" not in path.parts
    }
    assert {"sbert_lab/py.typed", "training/py.typed", "sbert_app/py.typed"} <= packages
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in names if ".dist-info/" not in name} == packages | assets


def test_every_link_of_the_readme_on_pypi_is_absolute(wheel: Path):
    archive = zipfile.ZipFile(wheel)
    [metadata] = (
        archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA")
    )
    head, _, readme = metadata.partition("\n\n")
    links = re.findall(r"\]\(([^)]+)\)", readme)
    assert len(links) > 20 and all(link.startswith("https://") for link in links)
    assert f"https://example.org/lab/raw/v{__version__}/assets/screenshots/compare.png" in links
    assert 'pip install --constraint requirements.lock ".[app]"' in readme, (
        "nothing is installed by a name on PyPI"
    )
    assert "Project-URL: Repository, https://example.org/lab" in head


def test_without_an_address_links_of_the_readme_are_text():
    text = "A [page](docs/a.md), ![a picture](a.png)and [PyPI](https://pypi.org)."
    assert for_pypi(text, "", "v1") == "A page, and [PyPI](https://pypi.org).", (
        "without an address links are text"
    )


def test_a_script_in_another_folder_imports_the_installed_package(
    installed: Path, elsewhere: Path, home: Path
):
    script = elsewhere / "script.py"
    script.write_text(SCRIPT)
    done = run([installed / "bin" / "python", "-P", script], elsewhere, home)
    assert done.returncode == 0, done.stderr
    training_file, app_file, has_asset, *child = done.stdout.splitlines()
    assert Path(training_file).is_relative_to(installed)
    assert Path(app_file).is_relative_to(installed)
    assert has_asset == "True"
    assert "Execute queued runs" in "".join(child)


IN_A_PROJECT = """
import sbert_lab
from sbert_lab import Encoder

assert Encoder.__module__ == "training.models.encoder" and "Encoder" in dir(sbert_lab)
print(sbert_lab.__version__)
"""


def test_a_package_of_the_user_called_training_does_not_hide_the_core(
    installed: Path, tmp_path: Path, home: Path
):
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "__init__.py").write_text(
        "raise RuntimeError('the package of the project')"
    )
    (tmp_path / "script.py").write_text(IN_A_PROJECT)
    done = run([installed / "bin" / "python", tmp_path / "script.py"], tmp_path, home)
    assert (done.returncode, done.stdout.strip()) == (0, __version__), done.stderr


def test_a_package_called_training_that_was_imported_first_is_named(
    installed: Path, tmp_path: Path, home: Path
):
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "__init__.py").touch()
    (tmp_path / "script.py").write_text("import training, sbert_lab")
    done = run([installed / "bin" / "python", tmp_path / "script.py"], tmp_path, home)
    assert done.returncode == 1
    assert (
        "another package called training was imported before" in done.stderr
        and "import sbert_lab first" in done.stderr
    )


def test_the_command_scores_a_file(installed: Path, elsewhere: Path, home: Path):
    pairs = elsewhere / "pairs.csv"
    scored = elsewhere / "scored.csv"
    pairs.write_text(
        "sentence1,sentence2\nA cat sleeps.,A kitten is asleep.\nA cat sleeps.,Stocks fell on Monday.\n"
    )
    done = run([installed / "bin" / "sbert-lab", "score", pairs, scored], elsewhere, home)
    assert done.returncode == 0, done.stderr
    first, second = (float(row["cosine"]) for row in read_csv(scored))
    assert first > 0.7 > 0.2 > second
