"""Plug-ins: the example of the docs, installed beside a broken one, adds a model, a pooling, an objective, a lesson."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT, linked_home

PROGRAM = """
import json, sys

import training

before = sorted(name for name in sys.modules if name.startswith("sbert_lab_example"))
from sbert_app.pages.learn.lesson import Context, lessons
from training import InputError, RunConfig, open_model, train
from training.trainer.config import CHOICES

home = sys.argv[1]
def refusal(name):
    try:
        open_model(name, home=home)
    except InputError as error:
        return str(error)


built_in = training.Encoder.load("scratch:1x32", home=home)
answers = {
    "before": before,
    "letters": open_model("letters").encode(["a cab"], normalize=False)[0, :3].tolist(),
    "refused": refusal("scratch:1x32:mode"),
    "median": open_model("scratch:1x32:median", home=home).encode(["a cat sleeps"]).shape,
    "choices": ["absolute-error" in CHOICES["objective"], "median" in CHOICES["pooling"]],
    "lessons": [(lesson.number, lesson.short) for lesson in lessons()[17:]],
}
demo = lessons()[17].build()
try:
    demo.measure(None)
except InputError as error:
    answers["lesson"] = str(error)
rows = [(f"a cat and {n} mice", f"a dog and {n * n} hares", n % 6) for n in range(12)]
config = RunConfig("absolute-error", base="scratch:1x32", pooling="median", max_steps=1)
answers["run"] = train(config, folder="run:plugged", home=home, train_data=rows, eval_data=None).status
answers["trained"] = open_model("run:plugged", home=home).pooling
print(json.dumps(answers))
"""

BROKEN = """
import sbert_app.pages.learn.lesson as learn
from training.models.model import Opener


def claims(name, folder):
    raise KeyError("none")


def build():
    raise ZeroDivisionError("by design")


OPENER = Opener("baseline", "nowhere:Nothing", claims)
TEXTS = dict.fromkeys(("try_it", "section", "paper_note", "question", "answer", "opens", "href"), "")
LESSON = learn.Lesson(1, "sbert_lab_broken:build", "Plug-ins", "Broken", "It is broken", "", (), paper=(), **TEXTS)
"""
ENTRY_POINTS = """[sbert_lab]
broken-opener = sbert_lab_broken:OPENER
broken-lesson = sbert_lab_broken:LESSON
nobody = sbert_lab_nobody:OPENER
"""


@pytest.fixture(scope="module")
def done(home: Path, tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """The program where the example is installed, and a package of which everything is broken."""
    packages = tmp_path_factory.mktemp("packages")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--target",
    ]
    subprocess.run([*pip, str(packages), str(ROOT / "docs/examples/plugin")], check=True)
    (packages / "sbert_lab_broken.py").write_text(BROKEN)
    facts = packages / "sbert_lab_broken-1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: sbert-lab-broken\nVersion: 1\n")
    (facts / "entry_points.txt").write_text(ENTRY_POINTS)
    own = linked_home(home, tmp_path_factory.mktemp("home"))
    environment = {"PYTHONPATH": f"{packages}:{ROOT}", "PATH": "", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", PROGRAM, str(own)]
    return subprocess.run(
        command, cwd=packages, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def answers(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_model_a_pooling_and_an_objective_of_a_package_are_used_by_name(answers):
    assert answers["letters"] == [2, 1, 1]
    assert answers["median"] == [1, 32]
    assert answers["choices"] == [True, True]
    assert (answers["run"], answers["trained"]) == ("finished", "median")


def test_importing_the_core_imports_no_plugin(answers):
    assert answers["before"] == []


def test_a_broken_plugin_is_one_sentence_and_hides_nothing(done, answers):
    for sentence in (
        "the plug-in nobody is left out: ModuleNotFoundError: No module named 'sbert_lab_nobody'",
        "the plug-in broken-opener is left out: KeyError: 'none'",
        "the plug-in Broken is left out: ZeroDivisionError: by design",
    ):
        assert sentence in done.stderr
    assert answers["refused"] is not None
    assert answers["lessons"] == [[18, "Broken"]]
    assert answers["lesson"] == "the plug-in of the lesson Broken cannot be used; the log says why"


def test_the_example_is_short():
    source = Path(ROOT / "docs/examples/plugin/sbert_lab_example.py").read_text(encoding="utf-8")
    assert len([line for line in source.splitlines() if line.strip()]) <= 40
