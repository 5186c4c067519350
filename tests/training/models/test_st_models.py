"""The models that sentence-transformers opens: what is checked before and after, and what they have like all others."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from test_modules import word_folder
from test_reference import BERT, TEXTS, TOLERANCE, change, dense, make, pairs, written
from tiny_models import make_model

from training.errors import InputError
from training.models.cross_encoder import CrossEncoder
from training.models.encoder import Encoder
from training.models.model import VectorModel, open_model, required
from training.models.st_models import STCrossEncoder, STEncoder
from training.models.texts import ReadReport

CALL = {"processing_kwargs": {"text": {"max_length": 8, "truncation": True}}}


def opened(folder: Path, **options: str) -> STEncoder:
    model = open_model(folder, dtype="float32", device="cpu", **options)
    assert isinstance(model, STEncoder)
    return model


def test_a_module_that_no_line_here_names_is_opened_by_the_library(tmp_path: Path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import CNN, Pooling

    plain = make_model(tmp_path / "plain")
    first = Transformer(str(plain))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        theirs = SentenceTransformer(modules=[first, CNN(32, 16), Pooling(48)], device="cpu")
    theirs.save(str(tmp_path / "model"))
    # Its convolution reads padding, so that the same texts have to be in a batch.
    np.testing.assert_allclose(
        opened(tmp_path / "model").encode(TEXTS, None), theirs.encode(TEXTS), **TOLERANCE
    )


def test_code_that_lies_in_a_folder_is_never_run(tmp_path: Path):
    folder = make()(tmp_path)
    trace = tmp_path / "it-was-run"
    (folder / "planted.py").write_text(f"open({str(trace)!r}, 'w').close()\nclass Pooling: pass\n")
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["type"] = "planted.Pooling"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(
        InputError, match=r"has the module planted\.Pooling, code that comes with the model"
    ):
        open_model(folder)
    assert not trace.exists()


@pytest.mark.parametrize(
    "name",
    [
        "sentence_transformers.util.http_get",
        "sentence_transformers.SentenceTransformer",
        "sentence_transformers.sentence_transformer.losses.CosineSimilarityLoss",
        "sentence_transformers.zork.Pooling",
        "sentence_transformers.sentence_transformer.modules.Zork",
    ],
)
def test_a_class_of_the_library_that_is_not_a_module_is_refused(tmp_path: Path, name: str):
    folder = make()(tmp_path)
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(
        json.dumps([*modules, {"idx": 2, "name": "2", "path": "2_X", "type": name}])
    )
    with pytest.raises(InputError, match=r"which is (no module of a model|not installed)"):
        open_model(folder)


def test_pickled_weights_of_any_module_are_refused(tmp_path: Path):
    folder = written(tmp_path / "model", make_model(tmp_path / "plain"), "mean", dense())
    change(folder / BERT, **CALL)
    (folder / "2_Dense/model.safetensors").rename(folder / "2_Dense/pytorch_model.bin")
    with pytest.raises(InputError, match="pickled weights"):
        open_model(folder)


def test_weights_or_embeddings_that_are_missing_or_nan_are_refused(tmp_path: Path):
    folder = make(BERT, **CALL)(tmp_path)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    name = "encoder.layer.1.output.dense.weight"
    save_file({**tensors, name: torch.full_like(tensors[name], torch.nan)}, file, {"format": "pt"})
    with pytest.raises(InputError, match="are not all numbers"):
        open_model(folder)
    save_file({key: value for key, value in tensors.items() if key != name}, file, {"format": "pt"})
    with pytest.raises(InputError, match="lacks weights"):
        open_model(folder)
    save_file({**tensors, name: torch.ones(3, 3)}, file, {"format": "pt"})
    with pytest.raises(InputError, match=r"do not fit its config\.json"):
        open_model(folder)
    save_file(tensors, file, {"format": "pt"})
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["okapi"] = 10**6
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(InputError, match="a token number 1,000,000, but its model knows"):
        open_model(folder)


def test_texts_are_read_as_tokenizer_json_says(tmp_path: Path):
    folder = make(BERT, **CALL)(tmp_path)
    expected = opened(folder).encode(TEXTS)
    change(folder / "tokenizer_config.json", tokenizer_class="GPT2Tokenizer")
    np.testing.assert_allclose(opened(folder).encode(TEXTS), expected, **TOLERANCE)


def test_texts_that_are_truncated_or_unknown_are_told(tmp_path: Path):
    model = opened(make(BERT, **CALL)(tmp_path))
    report = ReadReport(cut=set())
    model.encode(TEXTS, report=report)
    assert model.max_length == 8
    assert report.cut >= {TEXTS[-1]}
    assert TEXTS[1] not in report.cut
    assert model.read_tokens(["the cat", TEXTS[-1]]) == (4 + 8, [1])
    assert model.is_unknown(["the cat", "\U0001f600"]) == [False, True]
    # Halves of characters cannot be encoded.
    assert np.isfinite(model.encode(["\ud800 half"])).all()


def test_prompts_and_dimensions_of_a_name_are_those_of_the_reference(tmp_path: Path):
    prompts = {"query": "the question: ", "document": "was "}
    folder = written(tmp_path / "model", make_model(tmp_path / "plain"), prompts=prompts)
    change(folder / BERT, **CALL)
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(folder), device="cpu")
    model = opened(folder)
    np.testing.assert_allclose(
        model.encode_query(TEXTS, None), theirs.encode_query(TEXTS), **TOLERANCE
    )
    np.testing.assert_allclose(
        model.encode_document(TEXTS, None), theirs.encode_document(TEXTS), **TOLERANCE
    )
    named = required(open_model(f"{folder}?dim=8&prompt_name=query", dtype="float32"), VectorModel)
    expected = theirs.encode(TEXTS, prompt_name="query", truncate_dim=8)
    np.testing.assert_allclose(named.encode(TEXTS, None), expected, **TOLERANCE)
    assert named.dimension == 8
    assert "its folder names query" in model.prompt_advice
    assert named.prompt_advice == ""
    for setting, reason in {
        ":cls": "leave the pooling out",
        "?dim=99": "keep 1 to 32",
        "?dtype=int8": "has no int8",
    }.items():
        with pytest.raises(InputError, match=reason):
            open_model(f"{folder}{setting}")


def test_a_model_that_the_library_computes_is_not_an_encoder_here(tmp_path: Path):
    folder = make(BERT, **CALL)(tmp_path)
    with pytest.raises(InputError, match="open_model opens it"):
        Encoder.load(str(folder))
    with pytest.raises(InputError, match="is not a cross-encoder"):
        CrossEncoder.load(str(folder))


def test_a_cross_encoder_that_the_library_opens_is_compared_as_any_other(tmp_path: Path):
    from sbert_app.services.compare.comparison import compare

    model = open_model(pairs(BERT, **CALL)(tmp_path), dtype="float32", device="cpu")
    assert isinstance(model, STCrossEncoder)
    encoder = Encoder(make_model(tmp_path / "encoder"), dtype="float32", device="cpu")
    compared = compare(encoder, model, "the cat", "a dog")
    assert compared.cross_score == pytest.approx(float(model.predict([("the cat", "a dog")])[0]))
    assert compared.card is None


def test_a_static_model_is_the_mean_of_its_tokens(tmp_path: Path):
    folder = word_folder("static", tmp_path / "static")
    model = opened(folder)
    vectors = model.encode(["the cat", "cat the", ""], normalize=None)
    np.testing.assert_allclose(vectors[0], vectors[1], **TOLERANCE)
    assert not vectors[2].any()
    save_file({"embedding.weight": torch.ones(5, 12)}, folder / "model.safetensors")
    with pytest.raises(InputError, match="tokens, but vectors for 5 only"):
        open_model(folder)


def test_the_library_is_imported_only_where_a_folder_needs_it(home: Path):
    """In a fresh process: models that are opened here never wait for it."""
    code = (
        "import sys\n"
        "from training.models.model import open_model\n"
        "from training.trainer import train\n"
        "model = open_model('all-MiniLM-L6-v2')\n"
        "model.score([('a cat', 'a dog')])\n"
        "open_model('minilm-stsb').score([('a cat', 'a dog')])\n"
        "sys.exit('sentence_transformers' in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
