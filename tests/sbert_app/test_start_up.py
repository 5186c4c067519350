"""Start-up: nobody waits for a library that is not needed yet. Asked of sys.modules, not of a clock."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

HEAVY = {
    *("torch", "transformers", "tokenizers", "safetensors", "peft", "accelerate", "datasets", "huggingface_hub"),
    *("gradio", "fastapi", "uvicorn", "mcp", "plotly", "huey", "umap", "faiss", "sklearn"),
    *("numpy", "scipy", "pandas", "pyarrow", "openpyxl", "rich"),
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


@pytest.mark.parametrize("mcp", [False, True])
def test_the_pages_are_laid_out_without_torch_and_the_sdk_of_mcp_is_loaded_where_it_is_asked_for(
    tmp_path: Path, mcp: bool
):
    create = f"""
from pathlib import Path
from sbert_app.server.app import create_app
from sbert_app.services.container import Services
from sbert_app.settings import Settings
create_app(Services.start(Settings(home=Path({str(tmp_path)!r}), mcp={mcp})))
assert ("sbert_app.server.mcp" in sys.modules) == {mcp}
"""
    assert not {"torch", "transformers", "datasets", "sklearn", "umap", "faiss"} & loaded_by(create)
