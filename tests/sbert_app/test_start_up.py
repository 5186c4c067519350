"""Start-up: nobody waits for a library that is not needed yet. Asked of sys.modules, not of a clock."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

from sbert_app.waiting import ASLEEP

HEAVY = {
    *("torch", "transformers", "tokenizers", "safetensors", "peft", "accelerate", "datasets", "huggingface_hub"),
    *("gradio", "fastapi", "plotly", "huey", "umap", "faiss", "sklearn"),
    *("numpy", "scipy", "pandas", "pyarrow", "openpyxl", "rich"),
}


def loaded_by(code: str) -> set[str]:
    """The heavy packages that a fresh Python has loaded after ``code``."""
    tell = f"import json, sys\n{code}\nprint('\\n' + json.dumps(sorted(set(sys.modules))))"
    asked = subprocess.run([sys.executable, "-c", tell], cwd=ROOT, capture_output=True, text=True, check=True)
    return HEAVY & set(json.loads(asked.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "module",
    ["training", "training.errors", "training.trainer.config", "training.sources.resolve", "training.data.load"],
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
build_app(Services.start(Settings(home=Path({str(tmp_path)!r}))))"""
    assert not {"torch", "transformers", "datasets", "sklearn", "umap", "faiss"} & loaded_by(build)


def test_threads_that_wait_sleep_and_the_user_has_the_last_word():
    tell = "import json, os\nfrom sbert_app.waiting import ASLEEP, wait_asleep\nwait_asleep()\n"
    tell += "print(json.dumps([os.environ[name] for name in ASLEEP]))"
    bare = {name: value for name, value in os.environ.items() if name not in ASLEEP}
    for own, expected in (({}, ["PASSIVE", "0"]), ({"OMP_WAIT_POLICY": "ACTIVE"}, ["ACTIVE", "0"])):
        asked = subprocess.run([sys.executable, "-c", tell], cwd=ROOT, capture_output=True, check=True, env=bare | own)
        assert json.loads(asked.stdout) == expected


def test_a_command_has_them_asleep_before_torch_is_loaded():
    tell = "import os, sys\nfrom sbert_app.cli import main\nmain(['--help'])\n"
    tell += "print(os.environ['GOMP_SPINCOUNT'], 'torch' in sys.modules)"
    bare = {name: value for name, value in os.environ.items() if name not in ASLEEP}
    asked = subprocess.run([sys.executable, "-c", tell], cwd=ROOT, capture_output=True, check=True, env=bare, text=True)
    assert asked.stdout.splitlines()[-1] == "0 False"
