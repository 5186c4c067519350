"""`components/report.py`: a result as one HTML file, whole, escaped, and asking nobody for anything."""

import base64
import hashlib
import json
import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import gradio as gr
import plotly.graph_objects as go
import pytest
import typer
from markupsafe import Markup

from sbert_app import cli
from sbert_app.commands.train import train
from sbert_app.pages.ablation.page import experiment_report
from sbert_app.pages.components.report import Report, of_page, plot, report_button
from sbert_app.pages.train.runs import command_of, run_report
from sbert_app.services.container import Services
from sbert_app.services.experiments.experiment import (
    ExperimentRecord,
    Experiments,
    PlannedRun,
    new_sweep,
    records,
)
from sbert_app.services.jobs.queue import RunQueue
from sbert_app.services.runs.store import RunStore
from sbert_app.settings import Settings
from training.errors import InputError
from training.trainer.config import RunConfig

EVIL = "</script><img src=x onerror=alert(1)>"


@pytest.fixture
def store(tmp_path):
    (tmp_path / "models").mkdir()
    return RunStore(tmp_path)


def finished(store: RunStore, name: str):
    run = store.create(RunConfig("cosent", name=name, train_data="/secret/folder/pairs.csv"))
    events = [
        {
            "kind": "state",
            "step": 0,
            "state": "running",
            "steps": 2,
            "device": "cpu",
            "dtype": "float32",
        },
        {"kind": "eval", "step": 0, "spearman": 0.8, "random_cosine": 0.1},
        {"kind": "train", "step": 1, "loss": 0.5},
        {"kind": "eval", "step": 2, "spearman": 0.85, "random_cosine": 0.1, "best": True},
    ]
    (run.folder / "events.jsonl").write_text(
        "".join(json.dumps({"t": 1.0, **event}) + "\n" for event in events)
    )
    with store.lease(run.id) as work:
        work.state = "finished"
    return store.get(run.id)


def test_text_of_users_is_escaped_and_nothing_is_no_report():
    figure = go.Figure(go.Scatter(x=[1], y=[2], name=EVIL))
    html = Report(
        EVIL, {EVIL: EVIL}, {EVIL: [Markup("<p>fine</p>"), plot(figure)]}, command=EVIL
    ).html()
    assert "<img" not in html
    source = re.search(r'<script type="application/json" class="plot">(.*?)</script>', html)[1]
    assert json.loads(source)["data"][0]["name"] == EVIL
    with pytest.raises(InputError, match="no result to report"):
        Report("Nothing", {"a": 1}, {"Result": [Markup()]}).html()


@pytest.mark.parametrize("parts", [[Markup("<p>text</p>")], [plot(go.Figure(go.Bar(y=[1])))]])
def test_a_browser_asks_no_host_and_runs_no_other_script(parts):
    html = Report("A result", {}, {"Result": parts}).html()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html)[1]
    assert policy.startswith("default-src 'none'")
    scripts = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    hashes = [
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts
    ]
    assert re.findall(r"'sha256-([^']+)'", policy) == hashes
    assert ("Plotly" in scripts[0] and len(scripts) == 2) == ('class="plot"' in parts[0])
    assert not re.search(
        r"<(link|iframe|img)\b|\ssrc=", re.sub(r"<script>.*?</script>", "", html, flags=re.DOTALL)
    )


def test_a_report_is_no_key_to_the_file_or_the_corpus_that_it_is_about(tmp_path):
    """The address of a page may open both; who gets a report may not."""
    services = Services.start(Settings(home=tmp_path))
    with gr.Blocks() as app:
        report_button(
            services,
            lambda value: Report("Scores", {}, {"Scores": [Markup("<table></table>")]}),
            [],
            "x",
        )
    write = next(
        event.fn for event in app.fns.values() if event.fn and event.fn.__name__ == "write"
    )
    request = SimpleNamespace(headers={"referer": "http://lab:7860/bulk?job=c0ffee&x=1"})
    html = Path(write(request, None)).read_text()
    assert "http://lab:7860/bulk" in html
    assert "c0ffee" not in html and "<base" not in html


def test_what_a_page_shows_is_reported_with_the_words_of_its_controls():
    with gr.Blocks():
        table = gr.HTML(elem_id="t")
        figure = gr.Plot(elem_id="f")
        model = gr.Dropdown([("Mean", "mean"), ("Max", "max")], multiselect=True, label="Pooling")
        flag = gr.Checkbox(label="Normalised")
        empty = gr.Textbox(label="Prompt")
    make, inputs = of_page(
        "A page", {"One": [table, figure], "Two": [Markup("<p>said</p>")]}, [model, flag, empty]
    )
    assert inputs == [table, figure, model, flag, empty]
    shown = gr.Plot().postprocess(go.Figure(go.Bar(y=[1])))
    report = make("<p>found</p>", shown, ["max", "own"], True, "")
    assert report.settings == {"Pooling": "Max, own", "Normalised": "yes"}
    html = report.html()
    assert "<p>found</p>" in html and 'class="plot"' in html and "<p>said</p>" in html
    assert make(None, None, [], False, "").sections["One"] == ["", ""]  # what is hidden


def test_a_run_on_the_page_and_on_the_command_line(store, tmp_path, capsys):
    run = finished(store, "My <b>run</b>")
    page = run_report(store, run.id).html()
    assert "My &lt;b&gt;run" in page and "<b>run" not in page
    # A visitor does not see folders of the machine.
    assert "/secret" not in page and "pairs.csv" in page
    assert page.count('<script type="application/json" class="plot">') == 3 and "85.00" in page
    out = tmp_path / "out.html"
    assert cli.main(["report", f"run:{run.id}", str(out), "--home", str(tmp_path)]) == 0
    assert "/secret/folder/pairs.csv" in out.read_text(encoding="utf-8")
    assert cli.main(["report", "run:none", str(out), "--home", str(tmp_path)]) == 2
    assert "there is no run" in capsys.readouterr().err


def test_an_experiment_has_its_statistics_and_its_runs(store):
    experiments = Experiments(RunQueue(store))
    sweep = new_sweep("pooling", 1, {"max_steps": 2})
    runs = [plan.model_copy(update={"run": finished(store, plan.label).id}) for plan in sweep.runs]
    stored = records(store.home).create("a-sweep", sweep.model_copy(update={"runs": tuple(runs)}))
    report = experiment_report(experiments.get(stored))
    html = report.html()
    assert report.command == "sbert-lab ablate --preset pooling --seeds 1 --max-steps 2"
    assert 'class="plot"' in html and html.count("85.00") >= 2 * len(runs)
    seeds = ExperimentRecord(
        kind="seeds",
        name="mine",
        by="0-1",
        runs=(PlannedRun(label="mine", config=runs[0].config, run="gone"),),
    )
    html = experiment_report(experiments.get(records(store.home).create("seeds", seeds))).html()
    assert "deleted" in html and 'class="plot"' not in html


def test_the_command_names_a_learning_rate_that_is_not_the_default_of_its_objective():
    assert "--lr 2e-05" in command_of(RunConfig("mlm", learning_rate=2e-5))
    assert "--lr" not in command_of(RunConfig("mlm"))


def test_the_command_of_a_run_gives_its_config_again():
    settings = {
        "base": "scratch:bilstm",
        "train_data": "a b.csv+stsb:train",
        "eval_data": None,
        "name": "it's",
    }
    settings |= {"matryoshka_dims": (64, 32), "mnrl_symmetric": True, "max_steps": 5, "warmup": 0.2}
    config = RunConfig("mnrl", mine_negatives=False, **settings)
    values = {}
    words = shlex.split(command_of(config))
    assert words[:2] == ["sbert-lab", "train"]
    app = typer.Typer()
    command = lambda **options: values.update(options)  # noqa: E731
    command.__signature__ = train.__signature__
    app.command()(command)
    app(words[2:], standalone_mode=False)
    fields = {name: values[name] for name in RunConfig.model_fields if values[name] is not None}
    fields["train_data"] = "+".join(fields["train_data"])
    assert RunConfig(**fields) == config
