"""Encoder: any text in, float32 vectors out, in the caller's order, whatever the batches were."""

import copy
import json
import logging
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from depth import examples
from hub_server import HubServer
from hypothesis import given, settings
from hypothesis import strategies as st
from test_reference import BERT, make
from tiny_models import make_model

from training.errors import InputError, StoppedError
from training.models.encoder import Encoder, ReadReport
from training.models.model import VectorModel

SENTENCES = [
    "A man is playing a guitar.",
    "the cat",
    "",
    "Somebody is eating food in the rain, slowly.",
    "dog",
]
ANY_TEXT = st.text(st.characters(), max_size=60)  # lone surrogates too
SAME = {"rtol": 0, "atol": 1e-5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def encoder(folder: Path) -> Encoder:
    return Encoder.load(str(folder), dtype="float32", device="cpu")


def test_vectors_are_float32_of_n_by_d(encoder: Encoder):
    vectors = encoder.encode(SENTENCES)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(SENTENCES), encoder.dimension)
    assert vectors.flags["C_CONTIGUOUS"]


def test_encoding_again_gives_the_same_bits(encoder: Encoder):
    assert np.array_equal(encoder.encode(SENTENCES), encoder.encode(SENTENCES))


def test_no_sentences_have_no_vectors(encoder: Encoder):
    assert encoder.encode([]).shape == (0, encoder.dimension)
    assert list(encoder.encode_stream(iter(()))) == []
    assert encoder.tokenize([]) == []
    assert encoder.token_vectors([]) == []


def test_an_encoder_is_shown_with_its_settings(encoder: Encoder, folder: Path):
    assert repr(encoder) == f"Encoder('{folder}', mean, 32 dimensions, float32, cpu)"


@given(sentences=st.lists(ANY_TEXT, max_size=12))
@settings(max_examples=examples(40))
def test_each_row_is_its_own_sentence_whatever_stands_beside_it(
    encoder: Encoder, sentences: list[str]
):
    together = encoder.encode(sentences)
    for row, sentence in zip(together, sentences, strict=True):
        np.testing.assert_allclose(row, encoder.encode([sentence])[0], **SAME)


@pytest.mark.parametrize("chunk", [1, 7, 1_000])
def test_the_size_of_the_chunks_changes_nothing_and_progress_rises_to_all(
    encoder: Encoder, chunk: int
):
    sentences = [f"the dog is number {i % 9} {'and so on ' * (i % 5)}" for i in range(50)]
    steps: list[tuple[int, int | None]] = []
    report = ReadReport(inputs=5_000)  # of an earlier call
    streamed = list(
        encoder.encode_stream(
            iter(sentences), chunk, on_progress=lambda *step: steps.append(step), report=report
        )
    )
    assert [len(part) for part in streamed[:-1]] == [chunk] * (len(streamed) - 1)
    np.testing.assert_allclose(np.concatenate(streamed), encoder.encode(sentences), **SAME)
    done = [step for step, _ in steps]
    assert done == sorted(done)
    assert done[-1] == 50


def test_equal_sentences_of_a_call_are_encoded_once_however_far_apart(
    encoder: Encoder, monkeypatch
):
    monkeypatch.setattr("training.models.encoder.CHUNK", 2)
    sentences = [*SENTENCES, *SENTENCES[::-1], "dog"]
    report = ReadReport()
    vectors = encoder.encode(sentences, report=report)
    assert (report.inputs, report.unique) == (len(sentences), len(SENTENCES))
    np.testing.assert_array_equal(vectors, vectors[[sentences.index(each) for each in sentences]])
    np.testing.assert_allclose(
        vectors, np.stack([encoder.encode(each) for each in sentences]), **SAME
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_deterministic_vectors_do_not_depend_on_the_sentences_beside_them(folder: Path, dtype: str):
    encoder = Encoder.load(str(folder), dtype=dtype, device="cpu")
    whole = encoder.encode(SENTENCES, deterministic=True)
    np.testing.assert_allclose(whole, encoder.encode(SENTENCES), rtol=0, atol=0.02)
    for order in ([3], [4, 1], [2, 0, 1]):
        part = encoder.encode(
            [SENTENCES[i] for i in order] + ["another one"] * len(order), deterministic=True
        )
        np.testing.assert_array_equal(part[: len(order)], whole[order])


def test_threads_may_share_an_encoder(encoder: Encoder):
    lists = [[f"the cat {i} {j}" for j in range(12)] for i in range(16)]
    with ThreadPoolExecutor(8) as pool:
        for sentences, vectors in zip(lists, pool.map(encoder.encode, lists), strict=True):
            np.testing.assert_allclose(vectors, encoder.encode(sentences), **SAME)


@pytest.mark.parametrize("architecture", ["bert", "t5"])
def test_no_more_sentences_at_a_time_than_the_batch_size(
    tmp_path: Path, architecture: str, monkeypatch
):
    encoder = Encoder.load(
        str(make_model(tmp_path / architecture, architecture)), dtype="float32", device="cpu"
    )
    sizes = []
    runner = encoder.inference
    hidden = runner.hidden

    def spy(texts: list, rows: list[list[int]]):
        sizes.append(sum(map(len, rows)))
        return hidden(texts, rows)

    monkeypatch.setattr(runner, "hidden", spy)
    sentences = [f"the dog is number {i} {'on ' * (i % 5)}" for i in range(50)]
    expected = encoder.encode(sentences)
    assert max(sizes) > 3
    sizes.clear()
    np.testing.assert_allclose(encoder.encode(sentences, batch_size=3), expected, **SAME)
    assert max(sizes) == 3 and sum(sizes) == 50
    with pytest.raises(InputError, match="the batch size is 0; it must be at least 1"):
        encoder.encode(sentences, batch_size=0)


def test_a_progress_bar_and_a_callback_count_the_sentences(encoder: Encoder, capsys):
    steps: list[tuple[int, int | None]] = []
    encoder.encode(
        ["the cat"] * 3 + ["dog"],
        on_progress=lambda *step: steps.append(step),
        show_progress_bar=True,
    )
    assert "Encoding: 100%" in capsys.readouterr().err
    assert steps[-1] == (4, 4)
    assert {total for _, total in steps} == {4}
    encoder.encode(SENTENCES)
    assert capsys.readouterr().err == ""


def test_push_to_hub_uploads_a_model_that_opens_with_its_card(
    encoder: Encoder, tmp_path: Path, monkeypatch
):
    from sentence_transformers import SentenceTransformer

    with HubServer() as hub:
        hub.token = "hf_s3cret"
        for name, value in hub.environment(tmp_path).items():
            monkeypatch.setenv(name, value)
        assert encoder.push_to_hub("me/tiny", token=hub.token) == f"{hub.url}/me/tiny"
        for name, data in hub.pushed["me/tiny"].items():
            (tmp_path / "model" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "model" / name).write_bytes(data)
        assert hub.private["me/tiny"]
        with pytest.raises(InputError, match="the Hub does not know this token"):
            encoder.push_to_hub("me/tiny", token="hf_other")
    assert "library_name: sentence-transformers" in (tmp_path / "model/README.md").read_text()
    found = SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(SENTENCES)
    np.testing.assert_allclose(found, encoder.encode(SENTENCES, normalize=None), **SAME)
    with pytest.raises(InputError, match="'tiny' is no repository; give org/name"):
        encoder.push_to_hub("tiny", token="hf_s3cret")


AWKWARD = [
    "",
    " \t\r\n\u00a0\u2003",
    "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽",
    "שלום \u202eabc\u202c العربية",
    "".join(map(chr, range(32))) + "\x7f\x9b",
    "the \ud83d cat \ude00",
    "𝕊𝔹𝔼ℝ𝕋 𒀀𒁀 \U0010ffff",
    "Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L̠ͨͧͩ͘G̴̻͈͍͔̹̑͗̎̅͛́O",
    "[CLS] [SEP] [MASK] [PAD] </s>",
    "x" * 20_000,
]


def test_awkward_text_has_a_vector_like_any_other(encoder: Encoder):
    vectors = encoder.encode(["the cat", *AWKWARD])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, **SAME)
    np.testing.assert_allclose(
        vectors, np.stack([encoder.encode(text) for text in ["the cat", *AWKWARD]]), **SAME
    )


@pytest.mark.parametrize("bad", [None, float("nan"), b"bytes", np.str_], ids=str)
def test_a_value_that_is_not_text_is_named_by_its_row(encoder: Encoder, bad: object):
    with pytest.raises(InputError, match=r"^sentence 4 is \w+, not text$"):
        encoder.encode(["a", "a", "b", bad])  # type: ignore[list-item]
    with pytest.raises(InputError, match=r"^sentence 4 is"):
        list(encoder.encode_stream(["a", "a", "b", bad], chunk=2))  # type: ignore[list-item]


@pytest.mark.parametrize("one", ["the cat", {"text": "the cat"}], ids=str)
def test_a_text_or_a_dictionary_is_not_read_by_its_letters_or_keys(encoder: Encoder, one: Any):
    for encode in (VectorModel.encode, VectorModel.encode_stream):
        with pytest.raises(
            InputError, match=r"a list of sentences is needed, not a \w+; give one column"
        ):
            list(encode(encoder, one))
    with pytest.raises(
        InputError, match="normalize is 'query'; the name of a prompt is given by prompt_name="
    ):
        encoder.encode(["the cat"], "query")  # type: ignore[arg-type]


def test_an_empty_sentence_without_special_tokens_is_one_padding_token(tmp_path: Path):
    folder = make_model(tmp_path / "bare")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps({**tokenizer, "post_processor": None}))
    bare = Encoder.load(str(folder), dtype="float32")
    assert bare.tokenize(["", "the"])[0] == [bare.tokenizer.pad_token_id]
    assert np.isfinite(bare.encode(["", "the"])).all()
    assert bare.token_vectors([""])[0].hidden.shape == (0, bare.dimension)


def test_only_what_is_too_long_is_truncated_counted_and_logged(
    encoder: Encoder, caplog: pytest.LogCaptureFixture
):
    words = "the cat " * 5_000
    report = ReadReport()
    encoder.encode(["the " * (encoder.max_length - 2)], report=report)
    assert report.truncated == 0
    assert not caplog.records
    with caplog.at_level(logging.WARNING, logger="sbert_lab"):
        vectors = encoder.encode([words, "the cat", words + "dog"], report=report)
    assert report.truncated == 2
    assert "2 sentences were cut at 64 tokens" in caplog.text
    np.testing.assert_allclose(vectors[0], encoder.encode(["the cat " * 31])[0], **SAME)
    assert {len(ids) for ids in encoder.tokenize([words])} == {encoder.max_length}


def test_a_report_counts_sentences_distinct_ones_and_tokens(encoder: Encoder):
    report = ReadReport()
    encoder.encode(["the cat", "the cat", "dog"], report=report)
    assert (report.inputs, report.unique, report.tokens) == (3, 2, 4 + 3)
    encoder.encode(["dog"], report=report)
    assert (report.inputs, report.unique) == (4, 3)
    assert report.seconds > 0


def test_stop_is_asked_for_before_each_batch(encoder: Encoder):
    steps: list[int] = []
    answers = iter([False, True])
    with pytest.raises(StoppedError):
        encoder.encode(
            ["the cat " * 30 + str(i) for i in range(60)],
            on_progress=lambda done, _: steps.append(done),
            should_stop=lambda: next(answers),
        )
    assert len(steps) == 1


def test_a_stopped_stream_keeps_the_chunks_before(encoder: Encoder):
    questions = count()
    stream = encoder.encode_stream(
        iter(SENTENCES), chunk=2, should_stop=lambda: next(questions) >= 1
    )
    assert next(stream).shape == (2, encoder.dimension)
    with pytest.raises(StoppedError):
        next(stream)


def test_a_stream_is_read_chunk_by_chunk(encoder: Encoder):
    read: list[int] = []

    def endless() -> Iterator[str]:
        for i in count():
            read.append(i)
            yield f"the cat {i}"

    stream = encoder.encode_stream(endless(), chunk=4)
    assert read == []
    for chunks in (1, 2, 3):
        assert len(next(stream)) == 4
        assert len(read) == 4 * chunks


def test_normalize_is_the_choice_of_the_caller(encoder: Encoder):
    raw = encoder.encode(SENTENCES, normalize=False)
    unit = encoder.encode(SENTENCES, normalize=True)
    np.testing.assert_allclose(unit, raw / np.linalg.norm(raw, axis=1, keepdims=True), **SAME)
    # The folder has no Normalize.
    np.testing.assert_array_equal(encoder.encode(SENTENCES, normalize=None), raw)


def test_what_is_not_a_list_of_sentences_is_refused(encoder: Encoder):
    for wrong in (
        "the cat",
        {"the cat": 1},
        pd.DataFrame({"text": SENTENCES}),
        np.array("the cat"),
    ):
        with pytest.raises(
            InputError, match=f"list of sentences is needed, not a {type(wrong).__name__}"
        ):
            list(encoder.encode_stream(wrong))
    with pytest.raises(InputError, match="pair 1 is not two texts"):
        encoder.score(["ab"])


def test_one_string_is_one_sentence(encoder: Encoder):
    np.testing.assert_array_equal(encoder.encode("the cat"), encoder.encode(["the cat"])[0])


def test_an_encoder_that_has_encoded_can_be_copied_and_pickled(encoder: Encoder):
    expected = encoder.encode(SENTENCES)
    np.testing.assert_array_equal(copy.deepcopy(encoder).encode(SENTENCES), expected)
    assert len(pickle.dumps(encoder)) > 1_000


def test_lower_case_where_the_model_asks_for_it(tmp_path: Path):
    folder = make(BERT, "roberta", do_lower_case=True)(tmp_path)
    lower = Encoder.load(str(folder), dtype="float32")
    shout, speak, mask, word = lower.tokenize(["THE CAT", "the cat", "<mask>", "<MASK>"])
    assert shout == speak
    assert lower.tokenizer.mask_token_id in mask  # a special token keeps its meaning
    assert mask != word


def test_poolings_of_an_encoder_share_the_weights(folder: Path, encoder: Encoder):
    pooled = encoder.with_pooling("max")
    assert (pooled.pooling, encoder.pooling) == ("max", "mean")
    assert pooled.backbone is encoder.backbone
    expected = Encoder.load(str(folder), pooling="max", dtype="float32").encode(SENTENCES)
    np.testing.assert_allclose(pooled.encode(SENTENCES), expected, **SAME)
    assert encoder.with_pooling(None) is encoder
    assert encoder.with_pooling("mean") is encoder
    with pytest.raises(InputError, match="choose mean, max, cls"):
        encoder.with_pooling("sum")


def test_gradients_reach_every_layer(folder: Path):
    encoder = Encoder.load(str(folder), dtype="bfloat16", device="cpu")
    encoder.encode(SENTENCES)  # what encode prepares must not get in the way
    assert next(encoder.backbone.parameters()).dtype == torch.float32
    encoder.embed(encoder.tokenize(SENTENCES)).square().sum().backward()
    reached = {
        name for name, weight in encoder.backbone.named_parameters() if weight.grad is not None
    }
    missed = {name for name, _ in encoder.backbone.named_parameters()} - reached
    assert all(name.startswith("pooler.") for name in missed)


def test_tokens_know_their_words_and_their_place_in_the_text(encoder: Encoder):
    text = "The CAT ate guitars"
    found = encoder.token_vectors([text])[0]
    assert (found.tokens[0], found.words[0], found.tokens[-1], found.words[-1]) == (
        "[CLS]",
        None,
        "[SEP]",
        None,
    )
    words: dict[int, str] = {}
    for word, (start, end) in zip(found.words, found.offsets, strict=True):
        if word is not None:
            words[word] = words.get(word, "") + text[start:end]
    assert list(words.values()) == text.split()


def test_encoding_in_training_mode_is_refused(folder: Path):
    encoder = Encoder.load(str(folder), dtype="bfloat16", device="cpu")
    encoder.train()
    with pytest.raises(RuntimeError, match=r"call eval\(\)"):
        encoder.encode(SENTENCES)


def test_encoding_sees_the_weights_that_training_has_changed(folder: Path):
    encoder = Encoder.load(str(folder), dtype="bfloat16", device="cpu")
    before = encoder.encode(SENTENCES)
    encoder.train()
    with torch.no_grad():
        for weight in encoder.backbone.parameters():
            weight.mul_(1.5)
    after = encoder.eval().encode(SENTENCES)
    assert np.abs(after - before).max() > 1e-3


def test_random_weights_follow_their_seed_and_nothing_else(home: Path):
    def scratch(seed: int) -> np.ndarray:
        return Encoder.load("scratch:2x64", seed=seed, dtype="float32", home=home).encode(SENTENCES)

    torch.manual_seed(1)
    first = scratch(0)
    drawn = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(drawn, torch.rand(1))  # nobody else's random numbers are used up
    assert first.shape == (len(SENTENCES), 64)
    np.testing.assert_array_equal(first, scratch(0))
    assert np.abs(first - scratch(1)).max() > 1e-2


WRONG = [
    ({"name": "no-such-model-anywhere"}, "no-such-model-anywhere"),
    ({"name": "run:nobody"}, "nobody"),
    ({"name": ""}, "names no model"),
    ({"name": "a\0b"}, "neither"),
    ({"name": "/no/such/folder"}, "/no/such/folder"),
    ({"name": "scratch:2x65"}, "out of range"),
    ({"name": "scratch:2x64", "pooling": "sum"}, "choose mean, max, cls"),
    ({"name": "scratch:2x64", "dtype": "float8"}, "choose auto, float32, bfloat16"),
    ({"name": "scratch:2x64", "device": "abacus"}, "cannot be used on this machine"),
]


@pytest.mark.parametrize(("arguments", "complaint"), WRONG, ids=str)
def test_a_wrong_name_is_one_clear_line(
    alone: Path, home: Path, arguments: dict[str, str], complaint: str
):
    where = home if arguments["name"].startswith("scratch:") else alone
    with pytest.raises(InputError) as caught:
        Encoder.load(**arguments, home=where)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_saving_replaces_a_model_but_never_other_files(encoder: Encoder, tmp_path: Path):
    encoder.save(tmp_path / "model")
    encoder.save(tmp_path / "model")
    own = tmp_path / "own"
    own.mkdir()
    (own / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match="holds other files"):
        encoder.save(own)
    assert (own / "thesis.txt").read_text() == "years of work"
    assert {entry.name for entry in tmp_path.iterdir()} == {"model", "own"}
