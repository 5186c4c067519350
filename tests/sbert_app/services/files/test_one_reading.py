"""Pages, commands, services and Python: the columns of one file have the same roles everywhere."""

import json

import gradio as gr
import openpyxl
import pytest
from bag_encoder import BagEncoder
from typer.testing import CliRunner

from sbert_app.cli import app
from sbert_app.pages.components.file_panel import FilePanel, chosen_name
from sbert_app.services.container import Services
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.files.score import score_file
from sbert_app.settings import Settings
from training.data.load import load_data
from training.data.tables.table import open_table

PAIRS = [
    (f"How do I change the name of account {n}?", f"Where can I rename my account {n}?")
    for n in range(40)
]
TOPICS = ["a wrong invoice", "late shipping", "some other return"]


def table(path, header, rows, separator=","):
    path.write_text(
        "\n".join(separator.join(map(str, row)) for row in [header, *rows]) + "\n",
        encoding="utf-8-sig",
    )


def questions(folder):
    path = folder / "questions.csv"
    rows = [
        (f"T-{n:04}", ["mail", "chat"][n % 2], TOPICS[n % 3], one)
        for n, (one, _) in enumerate(PAIRS)
    ]
    table(path, ("Ticket-Nr", "channel", "topic", "Frage"), rows, ";")
    return path, ("Frage",), None


def pairs_with_maybe(folder):
    path = folder / "pairs.csv"
    words = ["yes", "no", "yes", "no", "maybe"] * 8
    rows = [(n, *pair, word) for n, (pair, word) in enumerate(zip(PAIRS, words, strict=True))]
    table(path, ("Ticket-Nr", "Frage A", "Frage B", "gleich?"), rows, ";")
    return path, ("Frage A", "Frage B"), "gleich?"


def workbook(folder):
    book = openpyxl.Workbook()
    path = folder / "book.xlsx"
    book.active.title = "Notes"
    book.active.append(["exported on Monday by me", "2026-11-01"])
    book.active.append(["do not pass this on", "2026-11-02"])
    sheet = book.create_sheet("Fragen")
    for row in [("Frage A", "Frage B"), *PAIRS]:
        sheet.append(row)
    book.save(path)
    return path, ("Frage A", "Frage B"), None


def three_workers(folder):
    path = folder / "batch.csv"
    rows = [
        (
            f"H{n}",
            f"W{worker}",
            "Rejected" if worker == 2 and n % 2 else "Approved",
            *pair,
            (n + worker) % 6,
        )
        for n, pair in enumerate(PAIRS)
        for worker in range(3)
    ]
    table(
        path,
        ("HITId", "WorkerId", "AssignmentStatus", "Input.text1", "Input.text2", "Answer.score"),
        rows,
    )
    return path, ("Input.text1", "Input.text2"), "Answer.score"


def own_pairs(folder):
    path = folder / "ownpairs.csv"
    table(path, ("question", "paraphrase"), PAIRS)
    return path, ("question", "paraphrase"), None


@pytest.fixture(scope="module")
def services(tmp_path_factory):
    return Services.start(Settings(home=tmp_path_factory.mktemp("home")))


@pytest.mark.parametrize("make", [questions, pairs_with_maybe, workbook, three_workers, own_pairs])
def test_the_roles_of_a_file_are_the_same_everywhere(services, make, tmp_path):
    folder = services.settings.temp_folder / make.__name__
    folder.mkdir(parents=True)
    path, sentences, target = make(folder)
    reading = open_table(path).reading
    assert (reading.sentences, reading.target, reading.doubts) == (sentences, target, ())

    with gr.Blocks():
        panel = FilePanel(services, gr.File(), "mine")
    shown = panel.describe(str(path))
    values = [
        shown[part] if part in panel.columns else shown[part]["value"] for part in panel.inputs[1:]
    ]
    assert [value or None for value in values[1:4]] == [*[*sentences, None][:2], target]

    data = load_data(str(path))
    chosen = load_data(chosen_name(services, str(path), "", *values))
    assert (chosen.columns, chosen.scores, chosen.labels) == (
        data.columns,
        data.scores,
        data.labels,
    )

    corpus = Corpus.from_file(path)
    assert set(corpus.sentences) == {text for column in data.columns for text in column}

    printed = CliRunner().invoke(
        app, ["data", str(path), "--json", "--home", str(services.settings.home)]
    )
    assert (json.loads(printed.stdout)["form"], json.loads(printed.stdout)["rows"]) == (
        data.kind,
        len(data),
    )

    if len(sentences) == 2:
        summary = score_file(path, [tmp_path / "scored.csv"], BagEncoder())
        assert (summary.columns.sentence1, summary.columns.sentence2) == sentences
        assert (summary.columns.score or summary.columns.label) == target
        if data.scores:
            assert summary.report.cosine_gold.n == len(data)
