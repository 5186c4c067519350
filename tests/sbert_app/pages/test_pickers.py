"""`components/pickers.py`: the controls of dimensions and prompt write a model's name, and read it back."""

import gradio as gr
import pytest

from sbert_app.pages.components.pickers import (
    ALL_DIMENSIONS,
    AS_FOLDER,
    AUTO,
    NO_PROMPT,
    _prompt_value,
    _with_settings,
)
from training.names import BY_ROLE, ModelName


@pytest.mark.parametrize(
    ("dimension", "prompt", "name"),
    [
        (ALL_DIMENSIONS, AS_FOLDER, "m"),
        ("64", AS_FOLDER, "m?dim=64"),
        (ALL_DIMENSIONS, NO_PROMPT, "m?prompt="),
        ("8", "query: ", "m?dim=8&prompt=query%3A+"),
        (ALL_DIMENSIONS, f"name: {BY_ROLE}", "m?prompt_name=query%7Cdocument"),
    ],
)
def test_the_controls_write_the_name_and_read_it_back(dimension, prompt, name):
    assert _with_settings("m?dim=3&prompt=x", dimension, prompt, AUTO) == name
    stated = ModelName.parse(name)
    assert (str(stated.dimension or ALL_DIMENSIONS), _prompt_value(stated)) == (dimension, prompt)


def test_the_precision_is_part_of_the_name_unless_it_is_auto():
    assert (
        _with_settings("m?dim=3&dtype=int8", "3", AS_FOLDER, "bfloat16") == "m?dim=3&dtype=bfloat16"
    )
    assert _with_settings("m?dtype=int8", ALL_DIMENSIONS, AS_FOLDER, AUTO) == "m"


def test_dimensions_that_are_not_a_number_are_refused():
    with pytest.raises(gr.Error, match="must be a whole number"):
        _with_settings("m", "many", AS_FOLDER, AUTO)
