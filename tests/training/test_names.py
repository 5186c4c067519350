"""Names of models and data are read back as they were written, and a wrong setting is named."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.errors import InputError
from training.models.encoder import Encoder
from training.names import BY_ROLE, DataName, Endpoint, ModelName, absolute_names, names_file
from training.pooling import POOLINGS

names = st.sampled_from(
    ["all-MiniLM-L6-v2", "org/model", "run:20260101-x", "scratch:2x32", "/a/folder"]
)
dtypes = st.sampled_from([None, "float32", "bfloat16", "int8"])


@given(
    names,
    st.none() | st.integers(1, 4096),
    st.none() | st.text(max_size=30),
    st.none() | st.text(max_size=10),
    dtypes,
    st.sampled_from([None, *POOLINGS]),
)
def test_a_name_of_a_model_is_read_back_as_it_is_written(
    name, dimension, prompt, prompt_name, dtype, pooling
):
    model = ModelName(name, dimension, prompt, prompt_name, dtype, pooling)
    assert ModelName.parse(str(model)) == model
    assert model.weights == ModelName(name, dtype=dtype)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("m?zork=1", "'zork' is no setting"),
        ("m?dim=many", "must be a whole number"),
        ("m?dim=-1", "whole number"),
    ],
)
def test_a_wrong_setting_is_named(text, named):
    with pytest.raises(InputError, match=named):
        ModelName.parse(text)


def test_labels_tell_the_settings_of_a_name_in_words():
    assert ModelName.parse("m?dim=64&prompt_name=query").label == "m, 64 dimensions, prompt query"
    assert ModelName.parse("m?dtype=int8").label == "m, int8"
    assert ModelName.parse("run:20261126-090307-reg60:cls").label == "reg60, CLS pooling", (
        "without the time in its id"
    )
    assert (
        ModelName.parse(str(ModelName("m", prompt_name=BY_ROLE))).label
        == "m, query and document prompts"
    )


def test_an_encoder_takes_its_settings_from_its_name():
    encoder = Encoder.load("scratch:2x32?dim=8&prompt=the+", device="cpu", dtype="float32")
    assert (encoder.dimension, encoder.prompt) == (8, "the ")
    assert encoder.name == "scratch:2x32?dim=8&prompt=the+"
    assert encoder.with_dimension(4).name == "scratch:2x32?dim=4&prompt=the+"
    assert encoder.encode(["a"]).shape == (1, 8)


def test_a_pooling_stands_behind_the_name():
    assert ModelName.parse(" all-MiniLM-L6-v2:cls ") == ModelName("all-MiniLM-L6-v2", pooling="cls")
    assert ModelName.parse("run:20261121-x") == ModelName("run:20261121-x")
    assert ModelName.parse("m?dim=64:cls") == ModelName("m", 64, pooling="cls")
    for nothing in ("", ":mean"):
        with pytest.raises(InputError, match="names no model"):
            ModelName.parse(nothing)
    assert Encoder.load("scratch:2x32:max", device="cpu", dtype="float32").pooling == "max"


def test_the_kinds_of_names_of_models_and_data():
    assert ModelName.parse("run:a-b:max").run_id == "a-b"
    assert ModelName.of_run("a-b") == ModelName.parse("run:a-b")
    assert ModelName.parse("scratch:6x384:cls").scratch_shape == (6, 384)
    assert ModelName.parse("scratch:dan").scratch_shape is None
    assert ModelName.parse("m").run_id is None
    assert DataName.parse("hf:org/name:config:dev").hub_parts == ["org/name", "config", "dev"]
    assert DataName.parse("mteb:STSBenchmark").mteb_task == "STSBenchmark"
    assert [DataName.parse(name).is_set for name in ("stsb:dev", "hf:org/name", "stsb.csv")] == [
        True,
        True,
        False,
    ]
    names = ("stsb:test", "snli:dev", "sickr", "a/b.csv", "hf:org")
    assert [DataName.parse(name).label for name in names] == [
        "STSb",
        "SNLI dev",
        "SICK-R",
        "b.csv",
        "hf:org",
    ]


def test_an_endpoint_is_an_address_and_a_model():
    name = ModelName.parse("endpoint:http://LocalHost:11434/v1/#bge:cls?dim=64&prompt=query%3A+")
    assert name.endpoint == Endpoint("http://localhost:11434/v1", "localhost:11434", "bge:cls")
    assert (name.dimension, name.prompt, name.pooling) == (64, "query: ", None)
    assert ModelName.parse(str(name)) == name
    # The space at the end of a prompt is part of it.
    assert ModelName.parse("maxsim:m?dim=64&prompt=query: ") == ModelName.parse(
        "maxsim:m?dim=64&prompt=query%3A+"
    )
    assert (
        ModelName.parse("endpoint:https://api.example/v1#org/m").endpoint.url
        == "https://api.example:443/v1"
    )
    assert ModelName.parse("endpoint:http://[::1]:8080/v1#m").endpoint.address == "[::1]:8080"
    assert ModelName.parse("all-MiniLM-L6-v2").endpoint is None


@pytest.mark.parametrize(
    "text",
    [
        *(
            "localhost:11434/v1#m",
            "http://localhost/v1",
            "http://localhost/v1#",
            "file:///etc#m",
            "http:///v1#m",
        ),
        *(
            "http://user:key@localhost/v1#m",
            "http://a\\@b/v1#m",
            "http://a/v1\nX: y#m",
            "http://a/v1#m#n",
        ),
        *("http://a:1:2#m", "http://a//b#m", "http://a:123456/v1#m", "http://a/v1?key=secret#m"),
    ],
)
def test_an_address_that_is_not_an_endpoint_is_refused(text):
    with pytest.raises(
        InputError,
        match="is no endpoint; write endpoint:http://HOST:PORT/v1#MODEL, without a user or",
    ):
        ModelName.parse(f"endpoint:{text}")


def test_a_folder_with_a_question_mark_is_a_folder(tmp_path):
    folder = tmp_path / "what?dim=3"
    folder.mkdir()
    assert ModelName.parse(str(folder)).name == str(folder)


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ("a.csv", ("a.csv", None)),
        ("a.csv?encoding=koi8-r", ("a.csv", "koi8-r")),
        ("a?b.csv?encoding=big5", ("a?b.csv", "big5")),
        ("a.csv?x=1", ("a.csv?x=1", None)),
        ("a.csv=margin-mse", ("a.csv", None, "margin-mse")),
        ("a.csv?encoding=ascii=mnrl", ("a.csv", "ascii", "mnrl")),
    ],
)
def test_the_name_of_a_file_is_read_and_written(text, file):
    assert DataName.parse(text) == DataName(*file)
    assert DataName.parse(str(DataName(*file))) == DataName(*file)


def test_a_path_that_exists_is_taken_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("odd.csv?encoding=koi8-r").touch()
    assert DataName.parse("odd.csv?encoding=koi8-r") == DataName("odd.csv?encoding=koi8-r")
    Path("odd.csv=mnrl").touch()
    assert DataName.parse("odd.csv=mnrl") == DataName("odd.csv=mnrl")
    Path("c++.csv").touch()
    assert DataName.parse_joined("c++.csv=mnrl") == (DataName("c++.csv", None, "mnrl"),)
    assert DataName.parse_joined("c++.csv?encoding=koi8-r") == (DataName("c++.csv", "koi8-r"),)
    parts = DataName.parse_joined("a.csv?encoding=koi8-r+stsb:dev")
    assert parts == (DataName("a.csv", "koi8-r"), DataName("stsb:dev"))
    assert "+".join(map(str, parts)) == "a.csv?encoding=koi8-r+stsb:dev"


def test_names_for_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.csv").touch()
    Path("b.csv").touch()
    here = tmp_path.resolve()
    assert absolute_names("a.csv+b.csv?encoding=big5+stsb:dev", encoding="koi8-r") == (
        f"{here}/a.csv?encoding=koi8-r+{here}/b.csv?encoding=big5+stsb:dev"
    )
    assert absolute_names("a.csv") == f"{here}/a.csv"
    assert names_file("stsb:dev+a.csv")
    assert not names_file("stsb:dev+c.csv")
