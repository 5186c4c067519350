"""Opening a transformer: a damaged or incomplete folder is one clear line, never a model that answers nonsense."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tiny_models import OWN_CODE, make_model

from training.errors import InputError
from training.models import loading
from training.models.encoder import Encoder
from training.models.folder import ModelFolder
from training.models.loading import max_input_length
from training.models.random_weights import random_backbone


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_model(tmp_path / "tiny")


def open_tokenizer(folder: Path):
    return loading.open_tokenizer(ModelFolder.read(folder))


def open_backbone(folder: Path):
    return loading.open_backbone(ModelFolder.read(folder))


def without(folder: Path, part: str) -> None:
    """Take the weights whose name holds ``part`` out of the file."""
    file = folder / "model.safetensors"
    kept = {name: tensor for name, tensor in load_file(file).items() if part not in name}
    save_file(kept, file, metadata={"format": "pt"})


def configure(folder: Path, **changes: object) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def refusal(opener: Callable[[Path], object], folder: Path) -> str:
    with pytest.raises(InputError) as caught:
        opener(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (
            lambda folder: (folder / "model.safetensors").write_bytes(b"<html>log in</html>" * 40),
            "cannot be opened as a",
        ),
        (
            lambda folder: os.truncate(folder / "model.safetensors", 5_000),
            "cannot be opened as a transformer",
        ),
        (lambda folder: without(folder, "layer.1."), "lacks the weights encoder.layer.1"),
        (lambda folder: configure(folder, hidden_size=64), "do not fit its config.json"),
        (
            lambda folder: configure(folder, model_type="zork", architectures=["ZorkModel"]),
            "cannot be opened as a",
        ),
    ],
    ids=[
        "something else",
        "broken off",
        "missing weights",
        "another shape",
        "an unknown architecture",
    ],
)
def test_a_folder_without_a_whole_transformer_is_refused(
    folder: Path, damage: Callable[[Path], object], complaint: str
):
    damage(folder)
    assert complaint in refusal(open_backbone, folder)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "..\\x", 5])
def test_an_index_of_weights_names_files_of_the_folder_alone(folder: Path, name: object):
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": {"x": name}})
    )
    assert "outside of it" in refusal(lambda path: Encoder.load(str(path)), folder)


def test_the_files_that_macos_puts_beside_others_are_no_weights(folder: Path):
    (folder / "._model.safetensors").write_bytes(b"\0\5\26\7")
    assert Encoder.load(str(folder)).dimension == 32


def test_weights_of_a_head_that_nobody_reads_may_be_missing(folder: Path):
    without(folder, "pooler.")
    assert isinstance(open_backbone(folder), torch.nn.Module)


def test_a_folder_without_a_tokenizer_is_refused(folder: Path):
    (folder / "tokenizer.json").unlink()
    assert "tokenizer" in refusal(open_tokenizer, folder)


def test_a_lack_of_memory_is_called_that(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def load(*_: object, **__: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(transformers.AutoModel, "from_pretrained", load)
    assert refusal(open_backbone, folder).endswith("can't allocate memory")


def test_an_encoder_decoder_is_left_to_the_library(tmp_path: Path):
    from transformers import BartConfig, BartModel

    shape = {"vocab_size": 50, "d_model": 16, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    heads = {
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_layers": 1,
        "decoder_layers": 1,
    }
    BartModel(BartConfig(**shape, **heads)).save_pretrained(tmp_path)
    assert not ModelFolder.read(tmp_path).checked().is_own


def test_of_a_t5_the_encoder_alone_is_opened(tmp_path: Path):
    from transformers import T5Config, T5Model

    shape = {
        "vocab_size": 50,
        "d_model": 16,
        "d_kv": 8,
        "d_ff": 16,
        "num_layers": 1,
        "num_heads": 2,
    }
    T5Model(T5Config(**shape)).save_pretrained(tmp_path)
    opened = open_backbone(tmp_path)
    assert type(opened).__name__ == "T5EncoderModel"
    assert not [name for name, _ in opened.named_parameters() if "decoder" in name]


def test_random_weights_have_the_shape_asked_for():
    config = random_backbone(2, 64, vocabulary=100, seed=0).config
    assert (config.num_hidden_layers, config.hidden_size, config.vocab_size) == (2, 64, 100)


@pytest.mark.parametrize(("layers", "dimension"), [(0, 64), (25, 64), (2, 33), (2, 1056)])
def test_random_weights_of_a_shape_out_of_range_are_refused(layers: int, dimension: int):
    with pytest.raises(InputError, match="1 to 24 layers, 32 to 1024 dimensions in steps of 32"):
        random_backbone(layers, dimension, vocabulary=100, seed=0)


@pytest.mark.parametrize("architecture", ["bert", "roberta"])
def test_the_longest_input_leaves_room_for_the_positions_before_the_first(
    tmp_path: Path, architecture: str
):
    made = make_model(tmp_path / architecture, architecture)
    tokenizer = open_tokenizer(made)
    tokenizer.model_max_length = 10**30  # "no limit", as transformers says it
    assert max_input_length(tokenizer, open_backbone(made)) == 64
    tokenizer.model_max_length = 20
    assert max_input_length(tokenizer, open_backbone(made)) == 20


def test_transformers_shows_no_bars_or_warnings_and_keeps_its_settings(folder: Path, capfd):
    from transformers.utils import logging

    had_bars = logging.is_progress_bar_enabled()
    logging.enable_progress_bar()
    try:
        level = logging.get_verbosity()
        Encoder.load(str(folder)).save(folder.parent / "saved")
        assert capfd.readouterr() == ("", "")
        assert (logging.is_progress_bar_enabled(), logging.get_verbosity()) == (True, level)
    finally:
        if not had_bars:
            logging.disable_progress_bar()


def name_code(folder: Path, **changes: object) -> None:
    """As their authors publish them: config.json names code in the folder, which ends the process if it is run."""
    configure(folder, auto_map={"AutoConfig": "code.Config", "AutoModel": "code.Model"}, **changes)
    (folder / "code.py").write_text("import os\nos._exit(3)\n")


@pytest.mark.parametrize("architecture", OWN_CODE)
def test_a_model_that_names_code_opens_by_the_class_of_transformers(
    tmp_path: Path, architecture: str
):
    folder = make_model(tmp_path / "tiny", architecture)
    name_code(folder)
    sentences = ["the man is playing a guitar on the food", "a cat"]
    encoder = Encoder.load(str(folder), dtype="float32", device="cpu")
    theirs = (
        getattr(transformers, f"{OWN_CODE[architecture].prefix}Model")
        .from_pretrained(folder)
        .eval()
    )
    for sentence, vector in zip(sentences, encoder.encode(sentences), strict=True):
        with torch.no_grad():
            hidden = theirs(input_ids=torch.tensor(encoder.tokenize([sentence]))).last_hidden_state
        expected = torch.nn.functional.normalize(hidden.mean(dim=1), dim=1)[0]
        assert torch.allclose(torch.from_numpy(vector), expected, atol=1e-5)
    encoder.save(tmp_path / "saved")
    again = Encoder.load(str(tmp_path / "saved"), dtype="float32", device="cpu")
    assert (again.encode(sentences) == encoder.encode(sentences)).all()


def test_a_model_of_a_type_that_needs_its_own_code_is_refused(tmp_path: Path):
    for architecture, kind in (
        ("gte", "new"),
        ("jina_embeddings_v3", "xlm-roberta"),
        ("bert", "zork"),
    ):
        folder = make_model(tmp_path / kind, architecture)
        name_code(folder, model_type=kind)  # as Alibaba-NLP and jinaai publish them
        refusal(lambda path: Encoder.load(str(path)), folder)
