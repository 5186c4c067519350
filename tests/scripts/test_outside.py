"""What the check of the lint calls a use of a library's inside."""

import ast

import pytest

from scripts.outside import (
    ALLOWED,
    MOST_GRADIO_CLASSES,
    MOST_IMPORTANT,
    ROOT,
    faults,
    script_faults,
    style_faults,
)

INSIDE = """
import gradio as gr
from gradio.routes import App
from gradio.blocks import _private
import starlette._utils
import torch

def build(app: gr.Blocks) -> None:
    app._queue.sleep = 1
    gr.context._root = None
    gr.Blocks.launch = None
    App.create_app = lambda: None
    vars(gr.Blocks)["queue"] = None
    setattr(torch.nn, "Linear", None)
    torch._foreach_norm([])
    gr.Textbox()._id
"""


def lines(code: str) -> list[int]:
    return sorted({line for line, _ in faults(ast.parse(code))})


def test_each_use_of_a_private_name_and_each_change_of_a_library_is_found():
    assert lines(INSIDE) == [3, 4, 5, *range(9, 17)]


def test_a_private_name_of_the_files_own_is_no_fault():
    assert (
        lines(
            "class Own:\n    def _size(self): ...\n    def total(self, other): return other._size()"
        )
        == []
    )


@pytest.mark.parametrize(
    "code",
    [
        "kind.__mro__[2]",
        "getattr(kind, '__bases__')",
        "hasattr(model, '_backbone')",
        "question.__dataclass_fields__",
    ],
)
def test_names_with_underscores_in_attributes_and_in_strings_are_found(code: str):
    assert lines(code) == [1]


@pytest.mark.parametrize(
    "code", ["kind.__name__", "torch.__version__", "error.__cause__", "map(rows.__getitem__, [])"]
)
def test_what_python_documents_for_its_users_is_no_fault(code: str):
    assert lines(code) == []


def test_an_import_from_an_undocumented_module_is_found():
    assert lines("from transformers.models.bert.modeling_bert import BertModel") == [1]
    assert lines("import huggingface_hub.file_download") == [1]
    assert (
        lines(
            "from scipy.sparse.csgraph import connected_components\nfrom transformers import AutoModel"
        )
        == []
    )
    assert lines("from training.models.encoder import Encoder\nfrom . import names") == []


SUBCLASS = """
from starlette import responses

class Page(responses.HTMLResponse):
    def __init__(self): ...
    def own(self): ...
    def init_headers(self): ...
"""


def test_a_subclass_that_overrides_an_undocumented_method_is_found():
    assert [*faults(ast.parse(SUBCLASS))] == [(7, "Page.init_headers")]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("const width = figure._fullLayout.width;", ["_fullLayout"]),
        ("figure?._fullData", ["_fullData"]),
        ("entry.__data__[0]", ["__data__"]),
        ("const own = _own; names.map((_) => 1); // figure._fullData", []),
    ],
)
def test_private_properties_in_javascript_are_found(code: str, words: list[str]):
    assert [name for _, name in script_faults(code)] == words


def test_javascript_in_the_strings_of_python_is_read():
    assert lines('js = "() => plot._fullLayout"') == [1]
    assert lines('text = "plot._fullLayout"') == []


def test_style_sheets_have_a_limit_of_foreign_classes():
    assert [*style_faults(".own { color: red !important; } .wrap { color: red }")] == []
    many = ".wrap { margin: 0 } " * (MOST_GRADIO_CLASSES + 1) + ".own { color: red !important }" * (
        MOST_IMPORTANT + 1
    )
    assert len([*style_faults(many)]) == 2
    assert [*style_faults("/* .wrap */" * 100)] == []


def test_each_exception_still_exists_and_says_why_and_until_when():
    for licence in ALLOWED:
        files = [*ROOT.glob(licence.path)]
        words = licence.words.partition(".")[2] if licence.words[0].isupper() else licence.words
        assert any(words in file.read_text("utf-8") for file in files), licence
        assert len(licence.reason) > 20 and licence.until
        assert licence.cause.endswith(".")
