"""What the check of the lint calls a use of a library's inside."""

import ast

from scripts.outside import ALLOWED, faults

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


def test_each_use_of_the_inside_is_found():
    lines = [line for line, _ in faults(ast.parse(INSIDE))]
    assert sorted(set(lines)) == [4, 5, *range(9, 17)]


def test_the_exceptions_are_few_and_say_why():
    assert len(ALLOWED) <= 3 and all(len(reason) > 20 for reason in ALLOWED.values())
