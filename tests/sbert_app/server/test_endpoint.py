"""Arguments of endpoints: by their types, within stated limits, each mistake one sentence that names the argument."""

import errno
import os
from pathlib import Path
from typing import Any, Literal

import gradio as gr
import pytest

from sbert_app.server.endpoint import LONGEST_NAME, MOST_CHARACTERS, MOST_SENTENCES, Between, endpoint
from training.errors import unwritable


@endpoint(sentences=("query",), k=Between(1, 100), share=Between(0, 1))
def search(
    query: str,
    model: str = "m",
    sentences: list[str] | None = None,
    k: int = 10,
    share: float = 0.5,
    flag: bool = True,
    options: dict[str, Any] | None = None,
    format: Literal["csv", "parquet"] = "csv",
) -> dict[str, Any]:
    """What is passed to it."""
    return {"query": query, "sentences": sentences, "k": k, "share": share, "flag": flag, "options": options}


def refusal(*arguments, **named) -> str:
    with pytest.raises(gr.Error) as error:
        search(*arguments, **named)
    return str(error.value.message)


def test_a_full_disk_is_told_without_the_folders_of_the_machine():
    @endpoint()
    def save(name: str) -> str:
        raise unwritable(Path("/srv/lab/home/tmp") / name, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))

    with pytest.raises(gr.Error) as error:
        save("out.csv")
    assert error.value.message == "out.csv cannot be written: No space left on device"


def test_arguments_are_passed_on_as_declared_within_stated_types_and_lengths():
    assert search("q", "m", ["a"], 5.0, 1, "true", {"a": 1})["k"] == 5
    assert search("q")["sentences"] is None
    assert search("q", None, None, k=None, share=None, flag=None, options=None) == search("q")
    assert refusal("x" * (MOST_CHARACTERS + 1)) == "query has 100,001 characters; at most 100,000 are taken"
    assert refusal("q", "x" * 1_000_000) == f"model has 1,000,000 characters; at most {LONGEST_NAME:,} are taken"
    too_many = ["a"] * (MOST_SENTENCES + 1)
    assert refusal("q", sentences=too_many) == "sentences holds 10,001 texts; at most 10,000 are taken"
    assert refusal("q", sentences=["a", "x" * 200_000]).startswith("sentences, number 2, has 200,000 characters")
    assert refusal(None) == "query is 'None', but must be text"
    assert refusal("q", sentences="abc") == "sentences is 'abc', but must be a list of texts"
    assert refusal("q", sentences=["a", 5]) == "sentences, number 2, is '5', but must be text"
    assert refusal("q", flag="maybe") == "flag is 'maybe', but must be true or false"
    assert refusal("q", options=[1]).startswith("options is '[1]', but must be an object")
    assert refusal("q", format="exe") == "format is 'exe', but must be 'csv' or 'parquet'"


def test_numbers_have_a_stated_range():
    for k in (10**9, 0, 1e308, "NaN", "5; drop", [1], float("inf"), float("nan"), 1.5):
        assert refusal("q", k=k).startswith("k is ")
        assert refusal("q", k=k).endswith("must be a whole number from 1 to 100")
    for share in (float("nan"), float("inf"), -0.1, "x", "1" * 100_000):
        assert refusal("q", share=share).endswith("must be a number from 0 to 1")
        assert len(refusal("q", share=share)) < 200


def test_a_fault_of_the_app_is_not_shown(caplog):
    @endpoint()
    def broken(name: str = "") -> dict[str, Any]:
        raise RuntimeError("the password is 1234")

    with pytest.raises(gr.Error) as error:
        broken()
    assert "1234" not in error.value.message
    assert "1234" in caplog.text
