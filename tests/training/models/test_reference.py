"""A model's name with settings is read back as it was written, and a wrong setting is named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.errors import InputError
from training.models.encoder import Encoder
from training.models.reference import BY_ROLE, ModelReference, bare_name, parse_reference

names = st.sampled_from(["all-MiniLM-L6-v2", "org/model", "run:20260101-x", "scratch:2x32", "/a/folder"])
dtypes = st.sampled_from([None, "float32", "bfloat16", "int8"])


@given(
    names, st.none() | st.integers(1, 4096), st.none() | st.text(max_size=30), st.none() | st.text(max_size=10), dtypes
)
def test_what_is_written_is_read_back(name, dimension, prompt, prompt_name, dtype):
    reference = ModelReference(name, dimension, prompt, prompt_name, dtype)
    assert parse_reference(str(reference)) == reference
    assert bare_name(str(reference)) == name


@pytest.mark.parametrize(
    ("text", "named"),
    [("m?zork=1", "'zork' is no setting"), ("m?dim=many", "must be a whole number"), ("m?dim=-1", "whole number")],
)
def test_a_wrong_setting_is_named(text, named):
    with pytest.raises(InputError, match=named):
        parse_reference(text)


def test_in_words():
    assert parse_reference("m?dim=64&prompt_name=query").label == "m, 64 dimensions, prompt query"
    assert parse_reference("m?dtype=int8").label == "m, int8"
    assert parse_reference("m?prompt=").label == "m, prompt none"
    assert parse_reference(str(ModelReference("m", prompt_name=BY_ROLE))).label == "m, query and document prompts"


def test_a_folder_with_a_question_mark_is_a_folder(tmp_path):
    folder = tmp_path / "what?dim=3"
    folder.mkdir()
    assert parse_reference(str(folder)).name == str(folder)


def test_an_encoder_takes_its_settings_from_its_name_and_states_them():
    encoder = Encoder.load("scratch:2x32?dim=8&prompt=the+", device="cpu", dtype="float32")
    assert (encoder.dimension, encoder.prompt) == (8, "the ")
    assert encoder.name == "scratch:2x32?dim=8&prompt=the+"
    assert encoder.with_dimension(4).name == "scratch:2x32?dim=4&prompt=the+"
    assert encoder.encode(["a"]).shape == (1, 8)
