"""Nobody waits for a model that a command will not use; the public names are there all the same."""

import subprocess
import sys

import pytest
from paths import ROOT

import training


def test_the_public_names_are_those_of_the_core():
    assert training.Encoder.__name__ == "Encoder"
    names = {"Encoder", "CrossEncoder", "RunConfig", "load_data", "evaluate", "train", "attribute", "InputError"}
    assert set(training.__all__) >= names and set(dir(training)) >= names
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = training.nothing


def test_wrong_files_are_found_before_torch_is_imported():
    code = "import sys; from sbert_app.cli import main; code = main(sys.argv[1:]); print(code, 'torch' in sys.modules)"
    command = [sys.executable, "-c", code, "encode", "no-such-file.csv", "out.npy"]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout == "2 False\n"
