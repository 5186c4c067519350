"""Plain HTTP may name the arguments of an endpoint, or give the first of them: the rest have their defaults."""

import pytest

from sbert_app.pages.api import endpoint as arguments
from sbert_app.pages.api.endpoint import with_all_arguments
from training.errors import InputError


@pytest.fixture(autouse=True)
def _search(monkeypatch):
    def search(query: str, data: str = "stsb:dev", k: int = 10) -> None: ...

    monkeypatch.setattr(arguments, "_signatures", {})
    monkeypatch.setattr(arguments.gr, "api", lambda *_, **__: None)
    arguments.register(search)


@pytest.mark.parametrize(
    "body",
    [
        {"query": "cooking", "k": 3},
        {"query": "cooking", "data": "stsb:dev", "k": 3},  # an argument that is called data
        {"data": ["cooking", "stsb:dev", 3]},
    ],
)
def test_named_and_listed_arguments_are_the_same(body):
    assert with_all_arguments("search", body) == {"data": ["cooking", "stsb:dev", 3]}


def test_what_is_left_out_has_its_default_and_the_rest_of_the_body_stays():
    assert with_all_arguments("search", {"data": ["cooking"]}) == {"data": ["cooking", "stsb:dev", 10]}
    body = {"data": ["cooking"], "event_data": None, "trigger_id": 4}
    assert with_all_arguments("search", body) == {**body, "data": ["cooking", "stsb:dev", 10]}
    assert with_all_arguments("not_ours", {"data": [1]}) == {"data": [1]}
    with pytest.raises(InputError, match="the arguments as a list"):
        with_all_arguments("not_ours", {"x": 1})


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({}, "search needs query; it takes query, data, k"),
        ({"data": []}, "search needs query"),
        ({"query": "a", "top": 3}, "search has no argument 'top'"),
        ({"data": ["a", "b", 1, 2]}, "search takes at most 3 arguments"),
    ],
)
def test_wrong_arguments_are_said_in_a_sentence(body, sentence):
    with pytest.raises(InputError, match=sentence):
        with_all_arguments("search", body)
