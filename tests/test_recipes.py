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
from sbert_app.server.app import build
from sbert_app.pages.learn.lesson import Context, lessons
from sbert_app.services.container import Services
from sbert_app.settings import Settings

services = Services.start(Settings(home=Path(sys.argv[1])))
app = build(services)
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
result = train(config, on_event=lambda event: None, folder=None, home=".")
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
    text |= {"number": 18, "key": "gold_scores", "short": "Gold", "title": "What people say"}
    (project / "assets/lessons/18.json").write_text(json.dumps(text), encoding="utf-8")
    (project / "sbert_app/pages/learn/lessons/gold_scores.py").write_text(LESSON, encoding="utf-8")
    said = python(project, MEASURED, home)
    assert said.startswith("18 What people say")
    assert "Measured on this machine: 20 gold scores &lt;here&gt;." in said


def test_an_objective_is_one_file(project):
    (project / "training/objectives/absolute.py").write_text(OBJECTIVE, encoding="utf-8")
    rows = [f"a cat and {i} mice,a dog and {i} hares,{i % 6}" for i in range(12)]
    (project / "pairs.csv").write_text("\n".join(["sentence1,sentence2,score", *rows]), encoding="utf-8")
    found = json.loads(python(project, ASK_FOR_OBJECTIVE).splitlines()[-1])
    assert "|mlm|absolute-error" in found["help"].replace("\n", "")
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
# A line of `SIMILARITIES`.
SIMILARITY = """    "chebyshev": Similarity(
        "negative Chebyshev",
        lambda u, v: -np.abs(u - v).max(axis=1),
        lambda u, v: -(u - v).abs().amax(dim=1),
        lambda u, v: -(u[:, None] - v).abs().amax(dim=2),
        of_equals=0,
    ),
"""
ASK_FOR_BOTH = """
import json, sys
from pathlib import Path
from sbert_app.services.results.results import Metric
from sbert_app.services.results.grid import EvalResultCache, evaluate_one
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.background.watch import UNWATCHED
from training import Encoder, RunConfig, load_data, similarity, train
from training.names import ModelName
from training.similarities import SIMILARITIES
from training.trainer.config import CHOICES

home = sys.argv[1]
name = ModelName.parse("scratch:1x32:median")
Encoder.load(name, home=home).save("saved")
result = evaluate_one(name, load_data("pairs.csv"), ModelCache(Path(home)), EvalResultCache(Path(".")), UNWATCHED)
config = RunConfig("triplet", base="scratch:1x32", train_data="pairs.csv", triplet_metric="chebyshev", max_steps=1)
print(json.dumps({
    "labels": [name.label, SIMILARITIES["chebyshev"].label],
    "config": RunConfig("regression", base="scratch:1x32", pooling="median").pooling,
    "again": Encoder.load("saved").pooling,
    "rho": result.estimate(Metric("chebyshev")).value,
    "matrix": similarity([[0, 1], [1, 1]], [[0, 4]], "chebyshev").tolist(),
    "choices": [name for name, choices in CHOICES.items() if "chebyshev" in choices],
    "run": train(config.replace(eval_data=None), on_event=lambda event: None, folder=None, home=home).status,
}))
"""
TESTS_OF_POOLINGS = """
import sys
import pytest

options = ["-q", "--noconftest", "--hypothesis-profile=ci"]
sys.exit(pytest.main([*options, "-k", "median or every_strategy", "test_pooling.py"]))
"""


def test_a_pooling_and_a_similarity_are_a_file_each(project, home):
    with (project / "training/pooling.py").open("a", encoding="utf-8") as file:
        file.write(POOLING)
    similarities = project / "training/similarities.py"
    table = similarities.read_text(encoding="utf-8")
    similarities.write_text(table.replace("SIMILARITIES = {\n", f"SIMILARITIES = {{\n{SIMILARITY}"), encoding="utf-8")
    rows = [f"a cat and {i} mice,a dog and {i * i} hares,{i % 6}" for i in range(12)]
    (project / "pairs.csv").write_text("\n".join(["sentence1,sentence2,score", *rows]), encoding="utf-8")
    found = json.loads(python(project, ASK_FOR_BOTH, home).splitlines()[-1])
    shutil.copyfile(ROOT / "tests/training/test_pooling.py", project / "test_pooling.py")
    assert " passed" in python(project, TESTS_OF_POOLINGS).splitlines()[-1]
    assert found["labels"] == ["scratch:1x32, median pooling", "negative Chebyshev"]
    assert (found["config"], found["again"]) == ("median", "median")
    assert -100 <= found["rho"] <= 100
    assert found["matrix"] == [[-3], [-3]]
    assert found["choices"] == ["triplet_metric", "margin_similarity"]
    assert found["run"] == "finished"


FORMAT = '''
"""Moses: a pair of sentences a line, parted by three bars."""

from dataclasses import dataclass

from training.data.tables.rows import gather
from training.data.tables.text import TextTable, scan


@dataclass(frozen=True)
class MosesTable(TextTable):
    description = "Moses"

    def _read(self, size):
        with self.text.open() as file:
            records = ((line.rstrip().split(" ||| "), None, len(line)) for line in file)
            yield from gather(records, self.columns, size)


def open_moses(path, encoding=None, sheet=None):
    text = scan(path, encoding)
    return MosesTable(path, ("sentence1", "sentence2"), text.lines, text.remarks, text)
'''
ASK_FOR_FORMAT = """
import json
import gradio as gr
from pathlib import Path
from sbert_app.commands import files, options
from sbert_app.pages.train import form
from sbert_app.services.container import Services
from sbert_app.services.files.blocks import find_files
from sbert_app.settings import Settings
from training import InputError, load_data
from training.data.tables.table import open_table

with gr.Blocks():
    fields = form.build(Services.start(Settings(home=Path("."))))
try:
    open_table("bytes.csv")
except InputError as error:
    refusal = str(error)
print(json.dumps({
    "columns": load_data("pairs.moses").columns, "ragged": open_table("pairs.moses").preview().notes,
    "upload": fields["train_upload"].button.file_types, "folder": [Path(file).name for file in find_files("folder")],
    "help": options.TABLES, "file": list(files.FILE_SUFFIXES), "refusal": refusal,
}))
"""


def test_a_format_of_files_is_a_reader_and_a_line(project):
    (project / "training/data/tables/moses.py").write_text(FORMAT, encoding="utf-8")
    table = project / "training/data/tables/table.py"
    text = table.read_text(encoding="utf-8").replace(
        ")\nSUFFIXES", '    Format("Moses", (".moses",), open_moses),\n)\nSUFFIXES'
    )
    importing = "from training.data.tables.moses import open_moses\nfrom training.data.tables.parquet"
    table.write_text(text.replace("from training.data.tables.parquet", importing), encoding="utf-8")
    for file in ("pairs.moses", "folder/pairs.moses"):
        (project / file).parent.mkdir(exist_ok=True)
        (project / file).write_text("A man. ||| Ein Mann.\nA dog. ||| Ein Hund.\nA cat.\n", encoding="utf-8")
    (project / "bytes.csv").write_bytes(bytes(range(256)) * 40)
    found = json.loads(python(project, ASK_FOR_FORMAT).splitlines()[-1])
    assert found["columns"] == [["A man.", "A dog."], ["Ein Mann.", "Ein Hund."]]
    assert found["ragged"] == {"2": "1 field where the header has 2"}
    assert ".moses" in found["upload"] and ".moses" in found["file"]
    assert found["folder"] == ["pairs.moses"]
    assert found["help"].endswith(".xlsx or .moses")
    assert found["refusal"].endswith("XLSX or Moses file.")


ASK_FOR_DATA = """
import io, json, sys
from contextlib import redirect_stdout
from sbert_app.cli import main
from sbert_app.pages.components.pickers import OFFERS, data_choices
from training import load_data

data = load_data("quora:train", home=".")
with redirect_stdout(io.StringIO()) as listed:
    main(["data"])
print(json.dumps({
    "labels": [data.label_names[label] for label in data.labels], "listed": listed.getvalue(),
    "offered": {picker: [label for label, name in data_choices(picker) if name == "quora"] for picker in OFFERS},
}))
"""


def test_a_data_set_is_a_line(project):
    catalogue = project / "training/catalogue.py"
    line = (
        '    "quora": DataSet("Quora", LABELLED, {"train": Split(2, "train")}, "org/quora", "pairs", ("no", "yes")),\n'
    )
    text = catalogue.read_text(encoding="utf-8").replace("DATA_SETS = {\n", "DATA_SETS = {\n" + line)
    catalogue.write_text(text, encoding="utf-8")
    (project / "data/org/quora").mkdir(parents=True)
    (project / "data/org/quora/train.csv").write_text("sentence1,sentence2,label\na,b,1\nc,d,0\n")
    found = json.loads(python(project, ASK_FOR_DATA).splitlines()[-1])
    assert found["labels"] == ["yes", "no"]
    assert "quora          labelled pairs   train              org/quora" in found["listed"]
    offered = {picker: labels for picker, labels in found["offered"].items() if labels}
    assert offered == {"train": ["Quora (Hub): 2 labelled pairs"], "ablation": ["Quora (Hub)"]}


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
