"""The recipes of CONTRIBUTING, carried out in one copy of the project: what they name is enough."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

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
POOLING = '''

def median(hidden: Tensor, mask: Tensor | None) -> Tensor:
    """The median of each dimension over the real tokens. (B, T, D) -> (B, D) float32."""
    hidden = hidden.float()
    return (hidden if mask is None else hidden.masked_fill(~mask.unsqueeze(-1), float("nan"))).nanmedian(dim=1).values


POOLINGS["median"] = Pooling(median, "median")
'''
MODULE = '''class Dropout(SentenceModule):
    """Sets numbers to zero in training, and leaves them alone otherwise."""

    def __init__(self, share):
        super().__init__()
        self.dropout = nn.Dropout(share)

    @classmethod
    def from_config(cls, config, folder):
        return cls(config["dropout"])

    def config(self):
        return {"dropout": self.dropout.p}

    def forward(self, x):
        return self.dropout(x)


'''
PAGE = """
import gradio as gr

from sbert_app.pages.components.messages import heading


def build(services):
    gr.HTML(heading("Quote", "Which sentence says it best?"))
"""
TAB = """
import gradio as gr
from markupsafe import escape

from sbert_app.pages.components.measure_tab import MeasureTab
from sbert_app.pages.evaluate.pickers import DATA, ModelAndData


def build(services):
    pickers = ModelAndData(services, "rows", DATA, "stsb:dev")
    tab = MeasureTab.build(services, "rows", "Count", ("count-rows", "stop-rows", "rows-status"))

    def count(watch, *values):
        model, data = pickers.loaded(*values)
        return {tab.status: f"<p>{escape(model.label)} can score {len(data):,} rows.</p>"}

    tab.wire(count, pickers.inputs, {})
"""
COMMAND = '''

@options.grouped
def tokens(
    source: options.Sentences, *, model: options.ModelOptions, file: options.FileOptions, computing: options.Computing
) -> None:
    """Count the tokens of sentences."""
    place = computing.prepare()
    with options.input_file(source, lines=True) as path, clean_stdout():
        corpus = options.open_corpus(path, file, place)
        count, _ = options.load_encoder(model, computing).read_tokens(corpus.sentences)
    print_result({"tokens": count}, computing.as_json, f"{count:,} tokens")
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
DATA_SET = (
    '    "quora": DataSet("Quora", LABELLED, {"train": Split(2, "train")}, "org/quora", "pairs",'
    ' ("no", "yes")),\n'
)
# What the copy answers about all of them.
PROGRAM = """
import io, json, sys
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import gradio as gr
import numpy as np
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules

from sbert_app.cli import main
from sbert_app.commands import files, options
from sbert_app.pages.components.pickers import OFFERS, data_choices
from sbert_app.pages.learn.lesson import Context, lessons
from sbert_app.pages.train import form
from sbert_app.server.pages import build_page
from sbert_app.services.background.watch import UNWATCHED
from sbert_app.services.compare.comparison import compare_by_name
from sbert_app.services.container import Services
from sbert_app.services.experiments.ablations import ABLATIONS
from sbert_app.services.files.blocks import find_files
from sbert_app.services.results.grid import evaluate_one
from sbert_app.services.results.results import Metric
from sbert_app.settings import Settings
from training import Encoder, InputError, RunConfig, load_data, open_model, similarity, train
from training.data.tables.table import open_table
from training.models.model import opener_of
from training.names import ModelName
from training.similarities import SIMILARITIES
from training.trainer.config import CHOICES

home = sys.argv[1]
services = Services.start(Settings(home=Path(home)))


def printed(*arguments):
    with redirect_stdout(io.StringIO()) as output:
        assert main([*arguments]) == 0
    return output.getvalue()


def refusal(function, name):
    try:
        function(name)
    except InputError as error:
        return str(error)


def run(config):
    return train(config, on_event=lambda event: None, folder=None, home=home)


lesson, app = lessons()[-1], build_page("learn", services)
with gr.Blocks():
    demo, fields = lesson.build(), form.build(services)
context = Context(services.models, services.jobs.store)
measurement = demo.measure(context, *(control.value for control in demo.controls))
error = run(RunConfig(
    "absolute-error", base="scratch:1x32", train_data="pairs.csv", eval_data="pairs.csv", max_steps=20, batch_size=4,
    learning_rate=3e-3, dtype="float32",
))
median = ModelName.parse("scratch:1x32:median")
Encoder.load(median, home=home).save("saved")
result = evaluate_one(median, load_data("pairs.csv"), services.models, UNWATCHED)
plain = Encoder.load("scratch:1x32", home=home)
plain.save("plain")
judge = SentenceTransformer(modules=[*SentenceTransformer("plain", device="cpu"), modules.Dropout(0.5)], device="cpu")
judge.save("dropped")
dropped = Encoder("dropped", dtype="float32", device="cpu")
texts = ["a cat sleeps", "a dog"]
difference = dropped.encode(texts, normalize=None) - judge.encode(texts)
quote, evaluation = build_page("quote", services), build_page("evaluate", services)
start = next(block._id for block in evaluation.blocks.values() if getattr(block, "elem_id", None) == "count-rows")
press = next(event for event in evaluation.fns.values() if (start, "click") in event.targets)
values = [getattr(field, "value", None) for field in press.inputs]
*_, counted = press.fn(SimpleNamespace(session_hash="visitor"), *values)
letters = ModelName.parse("letters")
labelled = load_data("quora:train", home=".")
tokens_of = ("--columns", "sentence1", "--model", "scratch:1x32", "--json", "--home", home)
at = ("--model", "letters", "--json", "--home", home)
print(json.dumps({
    "lesson": {
        "buttons": [id for block in app.blocks.values() if (id := getattr(block, "elem_id", None)) == "go-13"],
        "title": f"{len(lessons())} {lesson.title}", "html": measurement.html,
    },
    "objective": {
        "help": printed("train", "--help"), "form": fields["objective"].choices,
        "ablation": list(ABLATIONS["objective"].variants), "status": error.status,
        "losses": [error.baseline["loss"], error.final["loss"]],
    },
    "pooling": {
        "labels": [median.label, SIMILARITIES["chebyshev"].label], "again": Encoder.load("saved").pooling,
        "config": RunConfig("regression", base="scratch:1x32", pooling="median").pooling,
        "rho": result.estimate(Metric("chebyshev")).value,
        "matrix": similarity([[0, 1], [1, 1]], [[0, 4]], "chebyshev").tolist(),
        "choices": [name for name, choices in CHOICES.items() if "chebyshev" in choices],
        "run": run(RunConfig(
            "triplet", base="scratch:1x32", train_data="pairs.csv", triplet_metric="chebyshev", max_steps=1,
            eval_data=None,
        )).status,
    },
    "module": {
        "head": [type(module).__name__ for module in dropped.head], "difference": float(np.abs(difference).max()),
    },
    "page": [block.value for block in quote.blocks.values() if isinstance(block, gr.HTML)],
    "tab": {
        "titles": [block.label for block in evaluation.blocks.values() if isinstance(block, gr.Tab)],
        "result": [update for update in counted.values() if "rows" in str(update)],
    },
    "command": {
        "help": printed("--help"), "counted": json.loads(printed("tokens", "anagrams.csv", *tokens_of)),
        "wrong": main(["tokens", "missing.csv", "--home", home]),
    },
    "format": {
        "columns": load_data("pairs.moses").columns, "ragged": open_table("pairs.moses").preview().notes,
        "upload": fields["train_upload"].button.file_types, "help": options.TABLES, "file": list(files.FILE_SUFFIXES),
        "folder": [Path(file).name for file in find_files("folder")], "refusal": refusal(open_table, "bytes.csv"),
    },
    "data": {
        "labels": [labelled.label_names[label] for label in labelled.labels], "listed": printed("data"),
        "offered": {picker: [label for label, name in data_choices(picker) if name == "quora"] for picker in OFFERS},
    },
    "model": {
        "group": opener_of(letters).group,
        "page": compare_by_name(services.models, "cat", "act", letters).cosine,
        "refused": refusal(open_model, "letters:max"),
        "evaluated": json.loads(printed("evaluate", "--data", "anagrams.csv", *at)),
        "ranked": json.loads(printed("search", "anagrams.csv", "a cow", *at)),
    },
}))
"""


def run_in(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What Python answers in the copy, whose packages come before the installed ones."""
    environment = {**os.environ, "PYTHONPATH": str(project)}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def answers(home: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a copy of the project says about each recipe, once all are carried out."""
    project = tmp_path_factory.mktemp("copy") / "project"
    for folder in ("training", "sbert_app", "assets"):
        shutil.copytree(ROOT / folder, project / folder)
    lesson = json.loads((project / "assets/lessons/4.json").read_text(encoding="utf-8"))
    lesson |= {"number": 18, "key": "gold_scores", "short": "Gold", "title": "What people say"}
    scored = [f"a cat and {i} mice,a dog and {i * i} hares,{i % 6}" for i in range(12)]
    anagrams = [f"a cat,a c{'o' * i}w,{5 - i}" for i in range(6)]
    moses = "A man. ||| Ein Mann.\nA dog. ||| Ein Hund.\nA cat.\n"
    contents = {
        "assets/lessons/18.json": json.dumps(lesson),
        "sbert_app/pages/learn/lessons/gold_scores.py": LESSON,
        "training/objectives/absolute.py": OBJECTIVE,
        "training/data/tables/moses.py": FORMAT,
        "training/models/letters.py": MODEL,
        "sbert_app/pages/quote/__init__.py": "",
        "sbert_app/pages/quote/page.py": PAGE,
        "sbert_app/pages/evaluate/rows.py": TAB,
        "pairs.csv": "\n".join(["sentence1,sentence2,score", *scored]),
        "anagrams.csv": "\n".join(["sentence1,sentence2,score", *anagrams]),
        "pairs.moses": moses,
        "folder/pairs.moses": moses,
        "data/org/quora/train.csv": "sentence1,sentence2,label\na,b,1\nc,d,0\n",
    }
    for name, content in contents.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(content, encoding="utf-8")
    (project / "bytes.csv").write_bytes(bytes(range(256)) * 40)
    table = "training/data/tables/table.py"
    rows = "from training.data.tables.rows"
    module_table = "SENTENCE_MODULES: dict[str, type[SentenceModule]] = {"
    layer_norm = '    "LayerNorm": {"dimension": None},\n'
    evaluation = "sbert_app/pages/evaluate/page.py"
    lines = [
        ("training/similarities.py", "SIMILARITIES = {\n", f"SIMILARITIES = {{\n{SIMILARITY}"),
        (table, ")\nSUFFIXES", '    Format("Moses", (".moses",), open_moses),\n)\nSUFFIXES'),
        (table, rows, f"from training.data.tables.moses import open_moses\n{rows}"),
        ("training/catalogue.py", "DATA_SETS = {\n", f"DATA_SETS = {{\n{DATA_SET}"),
        ("training/models/model.py", "OPENERS = [\n", OPENERS),
        ("training/models/modules.py", module_table, f'{MODULE}{module_table}"Dropout": Dropout, '),
        (
            "training/models/folder.py",
            layer_norm,
            f'{layer_norm}    "Dropout": {{"dropout": None}},\n',
        ),
        ("sbert_app/pages/__init__.py", '"learn")', '"learn", "quote")'),
        (evaluation, "    labels,\n", "    labels,\n    rows,\n"),
        (evaluation, "TABS = (\n", 'TABS = (\n    (rows.build, "Rows", "rows"),\n'),
        ("sbert_app/cli.py", "compare, export, search", "compare, export, search, tokens"),
        ("sbert_app/cli.py", "    doctor: ", '    tokens: "tokens sentences.txt",\n    doctor: '),
    ]
    for name, place, line in lines:
        text = (project / name).read_text(encoding="utf-8")
        assert text.count(place) == 1
        (project / name).write_text(text.replace(place, line), encoding="utf-8")
    for name, addition in (
        ("training/pooling.py", POOLING),
        ("sbert_app/commands/sentences.py", COMMAND),
    ):
        with (project / name).open("a", encoding="utf-8") as file:
            file.write(addition)
    tests = project / "tests"
    tests.mkdir()
    shutil.copy(ROOT / "tests/training/test_pooling.py", tests)
    tested = run_in(
        project, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "no:randomly", str(tests)
    )
    program = run_in(project, "-c", PROGRAM, str(home))
    assert program.returncode == 0, program.stderr
    return {**json.loads(program.stdout.splitlines()[-1]), "pooling tests": tested.stdout}


def test_a_lesson_is_a_text_and_a_module(answers):
    lesson = answers["lesson"]
    assert lesson["buttons"]
    assert lesson["title"] == "18 What people say"
    assert "Measured on this machine: 20 gold scores &lt;here&gt;." in lesson["html"]


def test_an_objective_is_one_file(answers):
    objective = answers["objective"]
    assert "|mlm|absolute-error" in objective["help"].replace("\n", "")
    assert ["absolute-error", "absolute-error"] in objective["form"]
    # Beside those of gold scores.
    assert objective["ablation"][2:5] == ["angle", "absolute-error", "classification"]
    assert objective["status"] == "finished"
    assert objective["losses"][1] < objective["losses"][0]


def test_a_pooling_and_a_similarity_are_a_file_each(answers):
    pooling = answers["pooling"]
    assert pooling["labels"] == ["scratch:1x32, median pooling", "negative Chebyshev"]
    assert (pooling["config"], pooling["again"]) == ("median", "median")
    assert -100 <= pooling["rho"] <= 100
    assert pooling["matrix"] == [[-3], [-3]]
    assert pooling["choices"] == ["triplet_metric", "margin_similarity"]
    assert pooling["run"] == "finished"


def test_the_tests_of_poolings_take_one_that_sentence_transformers_lacks(answers):
    report = answers["pooling tests"]
    assert "[median] PASSED" in report
    assert "FAILED" not in report and "ERROR" not in report, report


def test_a_module_is_a_class_and_two_lines(answers):
    module = answers["module"]
    assert module["head"] == ["Dropout"]
    assert module["difference"] < 1e-5


def test_a_page_is_a_folder_and_a_name(answers):
    navigation, *rest = answers["page"]
    assert 'href="./quote" aria-current="page">Quote</a>' in navigation
    assert any("Which sentence says it best?" in html for html in rest)


def test_a_tab_is_a_file_and_a_line(answers):
    tab = answers["tab"]
    assert "Rows" in tab["titles"]
    assert tab["result"] == ["<p>all-MiniLM-L6-v2 can score 1,500 rows.</p>"]


def test_a_command_is_a_function_and_its_place(answers):
    command = answers["command"]
    assert "tokens" in command["help"]
    assert command["counted"]["tokens"] > 12, "each of six sentences has two words and more"
    assert command["wrong"] == 2


def test_a_format_of_files_is_a_reader_and_a_line(answers):
    moses = answers["format"]
    assert moses["columns"] == [["A man.", "A dog."], ["Ein Mann.", "Ein Hund."]]
    assert moses["ragged"] == {"2": "1 field where the header has 2"}
    assert ".moses" in moses["upload"] and ".moses" in moses["file"]
    assert moses["folder"] == ["pairs.moses"]
    assert moses["help"].endswith(".xlsx or .moses")
    assert moses["refusal"].endswith("Excel or Moses file.")


def test_a_data_set_is_a_line(answers):
    data = answers["data"]
    assert data["labels"] == ["yes", "no"]
    assert "quora          labelled pairs   train              org/quora" in data["listed"]
    offered = {picker: labels for picker, labels in data["offered"].items() if labels}
    assert offered == {"train": ["Quora (Hub): 2 labelled pairs"], "ablation": ["Quora (Hub)"]}


def test_a_model_is_a_module_and_a_line(answers):
    model = answers["model"]
    assert model["group"] == "baseline"
    assert model["page"] == pytest.approx(1), "cat and act have the same letters"
    assert (
        model["refused"]
        == "letters is a count of letters, which pools nothing; leave the pooling out"
    )
    assert model["evaluated"]["spearman"]["cosine"] == pytest.approx(1)
    assert model["ranked"]["hits"][0]["sentence"] == "a cow"
