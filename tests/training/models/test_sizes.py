"""Model folders that are not what they say: each is one sentence, before anything of the announced size is built."""

import json
import os
import struct
import time
from pathlib import Path

import pytest
from depth import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_models import ARCHITECTURES, make_model

from training.errors import InputError
from training.models.encoder import Encoder
from training.models.files import read_object
from training.models.modules import Dense
from training.models.sizes import check_module_sizes, check_transformer, read_shapes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_model(tmp_path / "model")


def check(folder: Path) -> None:
    check_transformer(folder, read_object(folder / "config.json"))


def change(file: Path, **values) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def test_a_model_of_every_architecture_passes_the_check_of_sizes(tmp_path):
    for architecture in ARCHITECTURES:
        check(make_model(tmp_path / architecture, architecture))


def test_albert_may_repeat_its_one_layer(tmp_path):
    make_model(tmp_path / "bert", "bert")
    change(tmp_path / "bert" / "config.json", num_hidden_groups=1, num_hidden_layers=12)
    check(tmp_path / "bert")


BAD_CONFIGS = {
    "1e9 layers": {"num_hidden_layers": 10**9},
    "one layer too many": {"num_hidden_layers": 3},
    "a width of 1e6": {"hidden_size": 10**6, "num_attention_heads": 10},
    "a vocabulary of 1e9": {"vocab_size": 10**9},
    "an inner width of 1e9": {"intermediate_size": 10**9},
    "1e12 positions": {"max_position_embeddings": 10**12},
    "no heads": {"num_attention_heads": 0},
    "text for a number": {"hidden_size": "32"},
    "null for a number": {"num_hidden_layers": None},
    "a fraction": {"num_hidden_layers": 1.5},
    "below zero": {"hidden_size": -32},
    "a quantisation": {
        "quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}
    },
    "attention from the Hub": {"_attn_implementation": "kernels-community/flash-attn"},
    "kernels": {"use_kernels": True},
    "relative positions, also of ESM": {
        "model_type": "esm",
        "position_embedding_type": "relative_key",
    },
}


@pytest.mark.parametrize("name", BAD_CONFIGS)
def test_a_config_that_does_not_fit_is_named(folder, name):
    change(folder / "config.json", **BAD_CONFIGS[name])
    with pytest.raises(InputError, match=r"config\.json") as error:
        check(folder)
    assert "\n" not in str(error.value)
    with pytest.raises(InputError):
        Encoder.load(str(folder))


def test_heads_that_do_not_divide_the_width_are_one_sentence(folder):
    change(folder / "config.json", num_attention_heads=5)
    with pytest.raises(InputError, match=r"cannot be opened as a transformer: .*heads"):
        Encoder.load(str(folder))


def test_sizes_that_only_a_thin_weight_has_room_for(folder):
    """A weight of 4 MB with the shape (1,000,000, 1) is no leave to build a square of that width."""
    header = json.dumps(
        {"w": {"dtype": "F32", "shape": [1_000_000, 1], "data_offsets": [0, 4_000_000]}}
    ).encode()
    (folder / "more.safetensors").write_bytes(
        struct.pack("<Q", len(header)) + header + bytes(4_000_000)
    )
    change(folder / "config.json", hidden_size=1_000_000, num_attention_heads=1)
    with pytest.raises(InputError, match="layers of width 1,000,000"):
        check(folder)


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("text", ["[" * 100_000, "", "{", "\udcff", "null"])
def test_settings_that_are_none(folder, file, text):
    (folder / file).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError) as error:
        Encoder.load(str(folder))
    assert len(str(error.value)) < 2_000


@pytest.mark.parametrize("longest", [-1, 0, "512", True, {}])
def test_a_greatest_length_that_is_none(folder, longest):
    change(folder / "tokenizer_config.json", model_max_length=longest)
    with pytest.raises(InputError, match="model_max_length"):
        Encoder.load(str(folder))


@pytest.mark.parametrize("is_special", [False, True])
def test_tokens_that_the_model_does_not_know(folder, is_special):
    """As where a special one is misspelt in the tokenizer's settings: transformers gives it a new number."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    if is_special:
        tokenizer["post_processor"]["special_tokens"]["[SEP]"]["ids"] = [10**6]
    else:
        tokenizer["model"]["vocab"][next(iter(tokenizer["model"]["vocab"]))] = 10**6
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(InputError, match=r"a token number 1,000,000, but its model knows"):
        Encoder.load(str(folder))


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "other.json"])
@pytest.mark.parametrize("target", ["/dev/zero", "pipe", "folder"])
def test_devices_pipes_and_folders_in_place_of_files_are_refused_at_once(folder, file, target):
    (folder / file).unlink(missing_ok=True)
    if target == "pipe":
        os.mkfifo(folder / file)
    elif target == "folder":
        (folder / file).mkdir()
    else:
        (folder / file).symlink_to(target)
    started = time.perf_counter()
    with pytest.raises(InputError):
        Encoder.load(str(folder))
    assert time.perf_counter() - started < 5


def test_a_dense_layer_of_1e9_is_not_built(tmp_path):
    made = Dense(4, 3)
    (tmp_path / "2_Dense").mkdir()
    made.write(tmp_path / "2_Dense")
    check_module_sizes(tmp_path / "2_Dense")
    change(tmp_path / "2_Dense" / "config.json", in_features=10**9, out_features=10**9)
    with pytest.raises(InputError, match="its weights are only 15 numbers"):
        check_module_sizes(tmp_path / "2_Dense")
    (tmp_path / "2_Dense" / "model.safetensors").unlink()
    with pytest.raises(InputError, match="missing"):
        check_module_sizes(tmp_path / "2_Dense")


@pytest.mark.parametrize(
    "content",
    [b"", b"1234", b"\xff" * 8, struct.pack("<Q", 10) + b"{}", struct.pack("<Q", 3) + b"[1]"],
)
def test_a_damaged_header(folder, content):
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(InputError, match=r"model\.safetensors"):
        read_shapes(folder)


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-10, 10**12),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
    st.just({}),
)


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("fuzz") / "model")


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_config_is_accepted_or_refused_in_one_line(shared_folder, tmp_path_factory, data):
    config = json.loads((shared_folder / "config.json").read_text())
    changed = data.draw(
        st.dictionaries(st.sampled_from(sorted(config)), values, min_size=1, max_size=4)
    )
    folder = tmp_path_factory.mktemp("one")
    for file in shared_folder.iterdir():
        (folder / file.name).symlink_to(file)
    (folder / "config.json").unlink()
    (folder / "config.json").write_text(json.dumps({**config, **changed}))
    try:
        check(folder)
    except InputError as error:
        assert "\n" not in str(error)


@settings(max_examples=examples(60))
@given(content=st.binary(max_size=200), sized=st.booleans())
def test_any_header_is_read_or_refused_in_one_line(tmp_path_factory, content, sized):
    folder = tmp_path_factory.mktemp("header")
    (folder / "model.safetensors").write_bytes(
        (struct.pack("<Q", len(content)) if sized else b"") + content
    )
    try:
        read_shapes(folder)
    except InputError as error:
        assert "\n" not in str(error)
