"""Long texts: cut before they are tokenised, with the same tokens as if they had not been."""

import random

import pytest

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
        "words of many lengths": " ".join("".join(rng.choices(letters, k=rng.randint(1, 150))) for _ in range(3_000)),
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
    assert [vectors.offsets for vectors in encoder.token_vectors([text])] == [tokenizer.encode(whole).offsets]


def test_little_of_a_long_text_is_tokenised(tokenizer):
    assert len(read_part("word " * 10_000_000, tokenizer)) <= 20_000
    assert len(read_part("w" * 50_000_000, tokenizer)) == LONGEST_TEXT


def test_a_long_text_counts_as_truncated(encoder):
    from training.models.encoder import EncodeReport

    report = EncodeReport()
    encoder.tokenize(["word " * 100_000, "short"], report)
    assert report.truncated == 1
