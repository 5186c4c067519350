"""Every module is loaded where what only POSIX has is missing, as on Windows; the recipes of a container are sound."""

import re
import subprocess
import sys

import pytest
from paths import ROOT

from sbert_app.process import child_environment

LOAD = """
import os, signal, sys
# Libraries know by themselves where they are: they are loaded before the names go.
import accelerate, anyio, datasets, filelock, gradio, mcp, multiprocessing.util, openpyxl, python_calamine
import plotly.graph_objects, prometheus_client, pyarrow.parquet, scipy.stats, torch, tqdm.auto, transformers, typer
import urllib.request, webbrowser

for module in ("fcntl", "grp", "pwd", "resource", "termios", "tty"):
    sys.modules[module] = None
for name in "fork forkpty getuid geteuid getpgid killpg mkfifo nice sched_getaffinity setsid wait4".split():
    delattr(os, name)
for name in ("SIGHUP", "SIGKILL", "SIGALRM"):
    delattr(signal, name)

from importlib import import_module
from pkgutil import walk_packages

import sbert_app, training

loaded = [import_module(found.name) for package in (training, sbert_app)
          for found in walk_packages(package.__path__, f"{package.__name__}.") if not found.name.endswith("__main__")]
from sbert_app.process import interrupt, on_ending_signal

with on_ending_signal(interrupt):
    pass
print(len(loaded))
"""


@pytest.mark.slow
def test_no_module_needs_what_only_posix_has():
    done = subprocess.run(
        [sys.executable, "-P", "-c", LOAD],
        env=child_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    modules = [
        path for package in ("training", "sbert_app") for path in (ROOT / package).rglob("*.py")
    ]
    packages = [path for path in modules if path.name in ("__init__.py", "__main__.py")]
    assert int(done.stdout) >= len(modules) - len(packages)


@pytest.mark.parametrize("file", ["Dockerfile", "deploy/space/Dockerfile"])
def test_a_container_runs_without_rights_and_installs_what_is_there(file: str):
    text = (ROOT / file).read_text()
    instructions = re.findall(r"^([A-Z]+)\b", text, re.MULTILINE)
    last = text[text.rindex("\nFROM") :]
    sent = {
        line[1:]
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    assert re.search(r"^USER (?!root)\w+$", last, re.MULTILINE)
    assert instructions[-1] in ("CMD", "ENTRYPOINT")
    for sources in re.findall(r"^COPY (?!--from)(?:--\S+ )?(.+) \S+$", text, re.MULTILINE):
        assert all((ROOT / source).exists() for source in sources.split()), sources
        assert file != "Dockerfile" or sent.issuperset(sources.split()), "left out by .dockerignore"


def test_a_space_is_assembled_whole(tmp_path):
    from scripts.make_space import make_space

    names = make_space(tmp_path / "space")
    assert {"README.md", "Dockerfile", "pyproject.toml", "training", "sbert_app", "assets"} <= set(
        names
    )
    front = (tmp_path / "space/README.md").read_text().split("---")[1]
    assert "sdk: docker" in front
    assert "app_port: 7860" in front
    assert not (tmp_path / "space/assets/screenshots").exists()
