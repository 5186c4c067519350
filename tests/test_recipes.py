"""The recipes of CONTRIBUTING, carried out in a copy of the project: what they name is enough."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

pytestmark = pytest.mark.slow

LESSON = """
import gradio as gr
import numpy as np
from sbert_app.pages.learn.lesson import Context, Demo, Measurement, cosine_histograms, measured
from sbert_app.pages.learn.samples import gold_sample

def build():
    pairs = gr.Slider(10, 100, 20, label="Pairs")

    def show(context: Context, pairs: float) -> Measurement:
        gold = gold_sample(context, int(pairs)).gold
        return Measurement(cosine_histograms(gold, gold), measured(f"{len(gold)} gold scores <here>"))

    return Demo([pairs], show)
"""
MEASURED = """
import sys
from pathlib import Path
import gradio as gr
from sbert_app.pages import build_app
from sbert_app.pages.learn.lesson import Context, lessons
from sbert_app.services.container import Services
from sbert_app.settings import Settings

services = Services.start(Settings(home=Path(sys.argv[1])))
app = build_app(services)
assert [block for block in app.blocks.values() if getattr(block, "elem_id", None) == "go-13"], "no button"
lesson = lessons()[-1]
with gr.Blocks():
    demo = lesson.build()
found = demo.measure(Context(services.models, services.jobs.store), *(control.value for control in demo.controls))
print(len(lessons()), lesson.title, found.html)
"""


OBJECTIVE = '''
from training.data.transforms import SCORED_ROWS
from training.objectives.base import SCORES, Objective, Vectors, required


class AbsoluteError(Objective):
    """The mean of |cos(u, v) - gold|."""

    name = "absolute-error"
    equation = "|cos(u, v) − gold|"
    help = "the distance of the cosine from the gold score"
    rows = SCORED_ROWS
    target = SCORES

    def __call__(self, vectors, target=None):
        import torch

        return (torch.cosine_similarity(*vectors) - required(target)).abs().mean()
'''

ASK_FOR_OBJECTIVE = """
import io, json
from contextlib import redirect_stdout
from pathlib import Path
import gradio as gr
from sbert_app.cli import main
from sbert_app.pages.train import form
from sbert_app.services.container import Services
from sbert_app.services.experiments.ablations import ABLATIONS
from sbert_app.settings import Settings
from training import RunConfig, train

with redirect_stdout(io.StringIO()) as help:
    main(["train", "--help"])
with gr.Blocks():
    fields = form.build(Services.start(Settings(home=Path("."))))
config = RunConfig(
    "absolute-error", base="scratch:1x32", train_data="pairs.csv", eval_data="pairs.csv", max_steps=20, batch_size=4,
    learning_rate=3e-3, dtype="float32",
)
result = train(config, on_event=lambda event: None, home=".")
print(json.dumps({
    "help": help.getvalue(), "form": fields["objective"].choices, "ablation": list(ABLATIONS["objective"].variants),
    "status": result.status, "losses": [result.baseline["loss"], result.final["loss"]],
}))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the project's code and data, to add to."""
    for folder in ("training", "sbert_app", "assets"):
        shutil.copytree(ROOT / folder, tmp_path / "project" / folder)
    return tmp_path / "project"


def python(project: Path, code: str, *arguments: object) -> str:
    """What a program prints that imports the copy."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(project)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_lesson_is_a_text_and_a_module(project, home):
    text = json.loads((project / "assets/lessons/4.json").read_text(encoding="utf-8"))
    text |= {"number": 17, "key": "gold_scores", "short": "Gold", "title": "What people say"}
    (project / "assets/lessons/17.json").write_text(json.dumps(text), encoding="utf-8")
    (project / "sbert_app/pages/learn/lessons/gold_scores.py").write_text(LESSON, encoding="utf-8")
    said = python(project, MEASURED, home)
    assert said.startswith("17 What people say")
    assert "Measured on this machine: 20 gold scores &lt;here&gt;." in said


def test_an_objective_is_one_file(project):
    (project / "training/objectives/absolute.py").write_text(OBJECTIVE, encoding="utf-8")
    rows = [f"a cat and {i} mice,a dog and {i} hares,{i % 6}" for i in range(12)]
    (project / "pairs.csv").write_text("\n".join(["sentence1,sentence2,score", *rows]), encoding="utf-8")
    found = json.loads(python(project, ASK_FOR_OBJECTIVE).splitlines()[-1])
    assert "|margin-mse|absolute-error" in found["help"].replace("\n", "")
    assert ["absolute-error", "absolute-error"] in found["form"]
    assert found["ablation"][2:5] == ["angle", "absolute-error", "classification"]  # beside those of gold scores
    assert found["status"] == "finished"
    assert found["losses"][1] < found["losses"][0]


POOLING = '''

def median(hidden: Tensor, mask: Tensor | None) -> Tensor:
    """The median of each dimension over the real tokens. (B, T, D) -> (B, D) float32."""
    hidden = hidden.float()
    return (hidden if mask is None else hidden.masked_fill(~mask.unsqueeze(-1), float("nan"))).nanmedian(dim=1).values


POOLINGS["median"] = Pooling(median, "median")
'''
SIMILARITY = '''

def chebyshev(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Row-wise negative Chebyshev distance. (N, D), (N, D) -> (N,)."""
    return -np.abs(u - v).max(axis=1)


SIMILARITIES["chebyshev"] = Similarity(chebyshev, "negative Chebyshev")
'''
ASK_FOR_BOTH = """
import json, sys
from pathlib import Path
from sbert_app.services.results.results import Metric
from sbert_app.services.results.grid import EvalResultCache, evaluate_one
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.background.watch import UNWATCHED
from training import Encoder, RunConfig, load_data
from training.evaluation.metrics import SIMILARITIES
from training.names import ModelName

home = sys.argv[1]
name = ModelName.parse("scratch:1x32:median")
Encoder.load(name, home=home).save("saved")
result = evaluate_one(name, load_data("pairs.csv"), ModelCache(Path(home)), EvalResultCache(Path(".")), UNWATCHED)
print(json.dumps({
    "labels": [name.label, SIMILARITIES["chebyshev"].label],
    "config": RunConfig("regression", base="scratch:1x32", pooling="median").pooling,
    "again": Encoder.load("saved").pooling,
    "rho": result.estimate(Metric("chebyshev")).value,
}))
"""


def test_a_pooling_and_a_similarity_are_a_function_and_a_line(project, home):
    for file, addition in (("training/pooling.py", POOLING), ("training/evaluation/metrics.py", SIMILARITY)):
        with (project / file).open("a", encoding="utf-8") as opened:
            opened.write(addition)
    rows = [f"a cat and {i} mice,a dog and {i * i} hares,{i % 6}" for i in range(12)]
    (project / "pairs.csv").write_text("\n".join(["sentence1,sentence2,score", *rows]), encoding="utf-8")
    found = json.loads(python(project, ASK_FOR_BOTH, home).splitlines()[-1])
    assert found["labels"] == ["scratch:1x32, median pooling", "negative Chebyshev"]
    assert (found["config"], found["again"]) == ("median", "median")
    assert -100 <= found["rho"] <= 100


MODEL = '''
"""Letters: a sentence as the numbers of its letters."""

import numpy as np

from training.models.model import VectorModel


class Letters(VectorModel):
    """Vectors with the number of each letter from a to z."""

    kind, name, dimension = "count of letters", "letters", 26

    def encode_batch(self, sentences):
        return np.array([[sentence.lower().count(chr(97 + letter)) for letter in range(26)] for sentence in sentences])
'''
OPENERS = """OPENERS = [
    Opener("baseline", "letters:Letters", lambda name, _: name.name == "letters", VectorModel),
"""
ASK_FOR_MODEL = """
import io, json, sys
from contextlib import redirect_stdout
from pathlib import Path
from sbert_app.cli import main
from sbert_app.services.background.watch import UNWATCHED
from sbert_app.services.compare.comparison import compare_by_name
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.results.grid import EvalResultCache, evaluate_one
from sbert_app.services.results.results import Metric
from training import InputError, load_data, open_model
from training.models.model import opener_of
from training.names import ModelName

def printed(*arguments):
    with redirect_stdout(io.StringIO()) as output:
        assert main([*arguments, "--json", "--home", sys.argv[1]]) == 0
    return json.loads(output.getvalue())

name, models = ModelName.parse("letters"), ModelCache(Path(sys.argv[1]))
result = evaluate_one(name, load_data("pairs.csv"), models, EvalResultCache(Path(".")), UNWATCHED)
try:
    open_model("letters:max")
except InputError as error:
    refused = str(error)
print(json.dumps({
    "rho": result.estimate(Metric()).value,
    "group": opener_of(name).group,
    "page": compare_by_name(models, "cat", "act", name).cosine,
    "refused": refused,
    "commands": [
        printed("evaluate", "pairs.csv", "--model", "letters"),
        printed("search", "pairs.csv", "a cow", "--model", "letters"),
    ],
}))
"""


def test_a_model_is_a_module_and_a_line(project, home):
    (project / "training/models/letters.py").write_text(MODEL, encoding="utf-8")
    file = project / "training/models/model.py"
    text = file.read_text(encoding="utf-8")
    assert text.count("OPENERS = [\n") == 1
    file.write_text(text.replace("OPENERS = [\n", OPENERS), encoding="utf-8")
    rows = [f"a cat,a c{'o' * i}w,{5 - i}" for i in range(6)]
    (project / "pairs.csv").write_text("\n".join(["sentence1,sentence2,score", *rows]), encoding="utf-8")
    found = json.loads(python(project, ASK_FOR_MODEL, home).splitlines()[-1])
    assert (found["rho"], found["group"]) == (pytest.approx(100), "baseline")
    assert found["page"] == pytest.approx(1), "cat and act have the same letters"
    assert found["refused"] == "letters is a count of letters, which pools nothing; leave the pooling out"
    evaluated, ranked = found["commands"]
    assert evaluated["spearman"]["cosine"] == pytest.approx(1)
    assert ranked["hits"][0]["sentence"] == "a cow"
