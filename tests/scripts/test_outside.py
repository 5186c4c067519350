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
OUTSIDE = """
import os, sys
from collections import namedtuple
import gradio as gr
from training import names

class Page(gr.Blocks):
    def __init__(self) -> None:
        super().__init__()
        self._cache = {}
        self.fields = vars(self)

def merge(page: Page, other: Page) -> None:
    page._cache = other._cache
    page.title = "a title"
    names._grammar
    namedtuple("Point", "x y")(1, 2)._replace(x=2)
    sys._getframe()
    os._exit(0)
"""


def test_each_use_of_the_inside_is_found():
    lines = [line for line, _ in faults(ast.parse(INSIDE))]
    assert sorted(set(lines)) == [4, 5, *range(9, 17)]


def test_what_is_public_and_what_is_the_products_own_is_not():
    assert list(faults(ast.parse(OUTSIDE))) == []


def test_the_exceptions_are_few_and_say_why():
    assert len(ALLOWED) <= 3 and all(len(reason) > 20 for reason in ALLOWED.values())
