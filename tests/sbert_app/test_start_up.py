"""Start-up: nobody waits for a library that is not needed yet. Asked of sys.modules, not of a clock."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from paths import ROOT

import sbert_app.pages  # noqa: F401 - so that the test can replace `serve`
from sbert_app.commands import serve as command

HEAVY = {
    *("torch", "transformers", "tokenizers", "safetensors", "peft", "accelerate", "datasets", "huggingface_hub"),
    *("gradio", "fastapi", "plotly", "huey", "umap", "faiss", "sklearn"),
    *("numpy", "scipy", "pandas", "pyarrow", "openpyxl", "rich"),
    "mcp",
}


def loaded_by(code: str) -> set[str]:
    """The heavy packages that a fresh Python has loaded after ``code``."""
    tell = f"import json, sys\n{code}\nprint('\\n' + json.dumps(sorted(set(sys.modules))))"
    asked = subprocess.run([sys.executable, "-c", tell], cwd=ROOT, capture_output=True, text=True, check=True)
    return HEAVY & set(json.loads(asked.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "module",
    ["training", "training.errors", "training.catalogue", "training.trainer.config", "training.sources.resolve"],
)
def test_the_core_costs_nothing_until_it_is_used(module: str):
    assert loaded_by(f"import {module}") == set()


def test_the_public_names_are_there_all_the_same():
    import training

    assert training.Encoder.__name__ == "Encoder"
    assert set(training.__all__) >= {
        "Encoder",
        "CrossEncoder",
        "RunConfig",
        "load_data",
        "evaluate",
        "train",
        "attribute",
    }
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = training.nothing


def test_the_command_line_costs_nothing_until_a_command_runs():
    assert loaded_by("import sbert_app.cli") == set()


@pytest.mark.parametrize(
    "arguments", [[], ["--help"], ["train", "--help"], ["runs", "--help"], ["serve", "--nonsense"]]
)
def test_help_and_wrong_options_are_answered_without_them(arguments: list[str]):
    assert loaded_by(f"from sbert_app.cli import main; main({arguments!r})") == set()


def test_wrong_files_are_found_before_the_model_is_loaded():
    wrong = ["encode", "no-such-file.csv", "out.npy"]
    assert "torch" not in loaded_by(f"from sbert_app.cli import main; assert main({wrong!r}) == 2")


def test_the_pages_are_laid_out_without_torch(tmp_path: Path):
    build = f"""
from pathlib import Path
from sbert_app.pages import build_app
from sbert_app.services.container import Services
from sbert_app.settings import Settings
app = build_app(Services.start(Settings(home=Path({str(tmp_path)!r}))))
assert app.app is None, "the routes are made at the launch, once"
"""
    assert not {"torch", "transformers", "datasets", "sklearn", "umap", "faiss"} & loaded_by(build)


QUICK = """
import inspect, sys
from sbert_app.process import quick_gradio
opened, file_of = [], inspect.getfile
sys.addaudithook(lambda event, values: event == "open" and opened.append(str(values[0])))
with quick_gradio(mcp={mcp}):
    import gradio
"""


@pytest.mark.slow
@pytest.mark.parametrize(("mcp", "loaded"), [(False, {"gradio"}), (True, {"gradio", "mcp"})])
def test_what_gradio_can_do_without_is_not_loaded_unless_it_is_asked_for(mcp: bool, loaded: set[str]):
    hidden = QUICK.format(mcp=mcp)
    assert loaded_by(hidden) & {"gradio", "mcp"} == loaded
    assert "mcp" in loaded_by(f"{hidden}\nimport mcp"), "it is there afterwards"


def test_no_stubs_of_gradios_components_are_made_at_a_start():
    python = f"{QUICK.format(mcp=False)}\nstubs = [name for name in opened if name.endswith('.pyi')]"
    loaded_by(f"{python}\nassert not stubs, stubs\nassert inspect.getfile is file_of")


@pytest.mark.parametrize("mcp", [False, True])
def test_the_app_loads_the_sdk_of_mcp_where_it_is_asked_for(monkeypatch, tmp_path, mcp: bool):
    seen: list[bool] = []

    @contextmanager
    def record(mcp: bool) -> Iterator[None]:
        seen.append(mcp)
        yield

    monkeypatch.setattr(command, "quick_gradio", record)
    monkeypatch.setattr("sbert_app.pages.serve", lambda settings: None)
    command.serve(home=tmp_path, mcp=mcp)
    assert seen == [mcp]


def test_gradios_queue_knows_the_pauses_that_serve_sets():
    import gradio

    assert {"sleep_when_free", "progress_update_sleep_when_free"} <= vars(gradio.Blocks()._queue).keys()
