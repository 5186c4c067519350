"""Long texts: cut before they are tokenised, with the same tokens as if they had not been."""

import json
import random

import pytest
from tiny_models import make_model

from training.errors import InputError
from training.models.encoder import Encoder
from training.models.tokenization import LONGEST_TEXT, SHORT_TEXT, read_part


@pytest.fixture(scope="module")
def encoder(home):
    return Encoder.load("all-MiniLM-L6-v2", home=home)


@pytest.fixture(scope="module")
def tokenizer(encoder):
    return encoder._text_tokenizer._rust


def texts():
    rng = random.Random(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    return {
        "words": "word " * 20_000,
        "one word": "w" * 50_000 + " and its neighbour",
        "a space before": " " * 60_000 + "then text",
        "Chinese": "".join(chr(rng.randrange(0x4E00, 0x9000)) for _ in range(20_000)),
        "words of many lengths": " ".join(
            "".join(rng.choices(letters, k=rng.randint(1, 150))) for _ in range(3_000)
        ),
        "words too long for the vocabulary": ("x" * 120 + " ") * 1_000 + "end",
        "punctuation": "a,b;c." * 10_000,
        "combining marks": "e\u0301 " * 20_000,
        "halves of characters": "\ud800 half " * 5_000,
    }


@pytest.mark.parametrize("name", texts())
def test_the_tokens_are_those_of_the_whole_text(encoder, tokenizer, name):
    text = texts()[name]
    whole = text.encode("utf-8", "replace").decode()
    assert len(text) > SHORT_TEXT
    assert encoder.tokenize([text]) == [tokenizer.encode(whole).ids]
    assert [vectors.offsets for vectors in encoder.token_vectors([text])] == [
        tokenizer.encode(whole).offsets
    ]


def test_little_of_a_long_text_is_tokenised_and_it_counts_as_truncated(tokenizer, encoder):
    assert len(read_part("word " * 10_000_000, tokenizer)) <= 20_000
    assert len(read_part("w" * 50_000_000, tokenizer)) == LONGEST_TEXT
    tokens, cut = encoder.read_tokens(["word " * 100_000, "short"])
    assert tokens == encoder.max_length + 3
    assert cut == [0]


PADDING = {
    "strategy": {"Fixed": 1_000_000_000},
    "direction": "Right",
    "pad_to_multiple_of": None,
    "pad_id": 0,
    "pad_type_id": 0,
    "pad_token": "[PAD]",
}
# A regular expression that takes exponential time, which the library gives up on.
GIVES_UP = {
    "type": "Split",
    "pattern": {"Regex": "(a+)+$"},
    "behavior": "Isolated",
    "invert": False,
}


def test_padding_and_endless_steps_of_tokenizer_json_are_not_applied(tmp_path):
    file = make_model(tmp_path) / "tokenizer.json"
    settings = json.loads(file.read_text())
    sentences = ["the cat", ""]
    expected = Encoder.load(str(tmp_path)).tokenize(sentences)
    file.write_text(json.dumps({**settings, "padding": PADDING}))
    assert Encoder.load(str(tmp_path)).tokenize(sentences) == expected
    file.write_text(json.dumps({**settings, "pre_tokenizer": GIVES_UP}))
    encoder = Encoder.load(str(tmp_path))
    for read in (encoder.encode, encoder.is_unknown, encoder.token_vectors):
        with pytest.raises(
            InputError, match=r"the model's tokenizer gives up on a text .* tokenizer\.json"
        ):
            read(["a" * 20_000 + "!"])
    grows = [
        {"type": "Replace", "pattern": {"String": "a"}, "content": "b" * 99},
        {"type": "Prepend", "prepend": "ab"},
    ]
    file.write_text(
        json.dumps({**settings, "normalizer": {"type": "Sequence", "normalizers": grows}})
    )
    with pytest.raises(InputError, match="makes texts 198 times as long"):
        Encoder.load(str(tmp_path))
