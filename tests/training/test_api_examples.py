"""`training/__init__.py`: each public name has an example in its docstring, and all examples run offline."""

import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import transformers
from tiny_models import make_model

import training

# The docstring of a function that is passed on belongs to its library.
OWN = [
    name for name in training.__all__ if getattr(training, name).__module__.startswith("training")
]
# An example with a model that is not built in runs with a tiny model in its place.
SPARSE_MODEL = "naver/splade-v3"
MOST_LINES = 8


def examples(name: str) -> Iterator[str]:
    """The code after "Example::" in the docstrings of a public name and of its methods."""
    value = getattr(training, name)
    members = vars(value).values() if inspect.isclass(value) else ()
    for member in (value, *members):
        for block in re.findall(r"Example::\n((?:\n| +.*)+)", inspect.getdoc(member) or ""):
            yield textwrap.dedent(block).strip()


@pytest.mark.parametrize("name", OWN)
def test_every_public_name_has_an_example_of_three_to_eight_lines(name):
    lengths = [len([line for line in code.splitlines() if line]) for code in examples(name)]
    assert lengths
    assert all(3 <= length <= MOST_LINES for length in lengths)


@pytest.mark.parametrize("name", OWN)
def test_the_examples_of_a_public_name_run_offline(name, home, tmp_path, monkeypatch):
    monkeypatch.setenv("SBERT_HOME", str(home))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    for code in examples(name):
        if SPARSE_MODEL in code:
            code = code.replace(SPARSE_MODEL, str(save_sparse_model(tmp_path)))
        exec(compile(code, f"the example of {name}", "exec"), {})  # noqa: S102 - code of this repository


def save_sparse_model(folder: Path) -> Path:
    from sentence_transformers import SparseEncoder
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    plain = make_model(folder / "plain")
    torch.manual_seed(0)
    config = transformers.AutoConfig.from_pretrained(plain)
    transformers.AutoModelForMaskedLM.from_config(config).save_pretrained(plain)
    modules = [Transformer(str(plain), transformer_task="fill-mask"), SpladePooling()]
    SparseEncoder(modules=modules, device="cpu").save_pretrained(str(folder / "sparse"))
    return folder / "sparse"


def test_the_public_names_are_those_of_sbert_lab():
    import sbert_lab

    assert Path(sbert_lab.__file__).is_file()
    assert all(getattr(sbert_lab, name) is getattr(training, name) for name in OWN)
