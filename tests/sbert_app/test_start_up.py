"""Nobody waits for a model that a command will not use; the public names are there all the same."""

import subprocess
import sys
from pathlib import Path

from paths import ROOT

import training


def test_the_public_names_are_those_of_the_core():
    assert training.Encoder.__name__ == "Encoder"
    names = {"Encoder", "CrossEncoder", "RunConfig", "load_data", "evaluate", "train", "attribute", "InputError"}
    assert set(training.__all__) >= names and set(dir(training)) >= names


def test_wrong_files_are_named_and_the_pages_are_built_before_torch_is_imported(tmp_path: Path):
    code = """
import sys
from pathlib import Path
from sbert_app.cli import main
slow = {"torch", "transformers", "scipy", "datasets", "umap"}
print(main(["encode", "no-such-file.csv", "out.npy"]), slow & set(sys.modules))
from sbert_app.server.app import create_app
from sbert_app.services.container import Services
from sbert_app.settings import Settings
create_app(Services.start(Settings(home=Path(sys.argv[1]))))
print(slow & set(sys.modules))"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "2 set()\nset()\n", done.stderr
