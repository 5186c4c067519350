"""An endpoint: its body by types and stated limits, each mistake one sentence that names the field; its answer."""

import asyncio
import errno
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import gradio as gr
import pytest
from fastapi import APIRouter, FastAPI
from pydantic import BaseModel, Field
from starlette.testclient import TestClient

from sbert_app.server.api import Mistake, add_endpoint
from sbert_app.server.endpoint import (
    LONGEST_NAME,
    MOST_CHARACTERS,
    MOST_SENTENCES,
    Body,
    Call,
    Endpoint,
    Name,
    Sentence,
    Sentences,
    register,
)
from sbert_app.server.errors import HANDLERS
from sbert_app.server.workarounds import WholeSteps
from training.errors import InputError, StoppedError, unwritable

SERVICES: Any = SimpleNamespace(settings=SimpleNamespace(root_path=""))


class SearchBody(Body):
    query: Sentence = Field(description="A question.")
    model: Name = "m"
    sentences: Sentences | None = None
    k: int = Field(10, ge=1, le=100)
    share: float = Field(0.5, ge=0, le=1)
    flag: bool = True
    options: dict[str, Any] | None = None
    format: Literal["csv", "parquet"] = "csv"


class Found(BaseModel):
    body: dict[str, Any]
    visitor: str


def search(call: Call, body: SearchBody) -> Found:
    """Find.

    It says what it was asked.
    """
    return Found(body=body.model_dump(), visitor=call.visitor)


def asked(**values: Any) -> dict[str, Any]:
    return asyncio.run(Endpoint(search).run(Call(SERVICES), SearchBody.parse(values)))["body"]


def refusal(**values: Any) -> str:
    with pytest.raises(InputError) as error:
        SearchBody.parse(values)
    return str(error.value)


def served(function: Any, **limits: Any) -> TestClient:
    app = FastAPI(exception_handlers=HANDLERS)
    routes = APIRouter()
    add_endpoint(routes, "/api/search", Endpoint(function, **limits), SERVICES, Mistake)
    app.include_router(routes)
    return TestClient(app, client=("10.0.0.7", 1))


def test_fields_are_passed_on_as_declared_within_stated_types_and_lengths():
    assert (
        asked(query="q", sentences=["a"], k=5.0, share=1, flag="true", options={"a": 1})["k"] == 5
    )
    assert asked(query="q", model=None, k=None, share=None, flag=None, options=None) == asked(
        query="q"
    )
    assert (
        refusal(query="x" * (MOST_CHARACTERS + 1))
        == "query has 100,001 characters; at most 100,000 are taken"
    )
    assert (
        refusal(query="q", model="x" * 1_000_000)
        == f"model has 1,000,000 characters; at most {LONGEST_NAME:,} are taken"
    )
    too_many = ["a"] * (MOST_SENTENCES + 1)
    assert (
        refusal(query="q", sentences=too_many)
        == "sentences has 10,001 items; at most 10,000 are taken"
    )
    assert refusal(query="q", sentences=["a", "x" * 200_000]).startswith(
        "sentences, number 2, has 200,000 characters"
    )
    assert refusal(query=5) == "query is '5': input should be a valid string"
    assert refusal() == "query is missing; /docs describes the arguments"
    assert refusal(query="q", top=3) == "'top' is not known here; /docs describes the arguments"
    assert refusal(query="q", sentences="abc") == "sentences is 'abc': input should be a valid list"
    assert (
        refusal(query="q", sentences=["a", 5])
        == "sentences, number 2, is '5': input should be a valid string"
    )
    assert refusal(query="q", flag="maybe").startswith(
        "flag is 'maybe': input should be a valid boolean"
    )
    assert refusal(query="q", options=[1]) == "options is '[1]': input should be a valid dictionary"
    assert refusal(query="q", format="exe") == "format is 'exe': input should be 'csv' or 'parquet'"


def test_numbers_have_a_stated_range():
    for k in (10**9, 0, 1e308, "NaN", "5; drop", [1], float("inf"), float("nan"), 1.5):
        assert refusal(query="q", k=k).startswith("k is ")
    assert refusal(query="q", k=101) == "k is '101': input should be less than or equal to 100"
    for share in (float("nan"), float("inf"), -0.1, "x", "1" * 100_000):
        assert refusal(query="q", share=share).startswith("share is ")
        assert len(refusal(query="q", share=share)) < 250


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"{", "the request is not valid JSON"),
        (b"\xff", "the request is not valid JSON"),
        (b"9" * 5_000, "the request is not valid JSON"),
        (b"[" * 200_000, "the request is not valid JSON"),
        (b"", "the request must be a JSON object, sent as application/json"),
        (b"[1]", "the request must be a JSON object, sent as application/json"),
        (b'{"query": "q", "k": 0}', "k is '0': input should be greater than or equal to 1"),
    ],
)
def test_a_body_that_does_not_fit_is_a_400_with_one_sentence(body, sentence):
    answer = served(search).post(
        "/api/search", content=body, headers={"Content-Type": "application/json"}
    )
    assert (answer.status_code, answer.json()) == (400, {"error": sentence})


def test_a_form_is_no_request():
    answer = served(search).post(
        "/api/search", content=b'{"query": "q"}', headers={"Content-Type": "text/plain"}
    )
    assert (answer.status_code, answer.json()["error"]) == (
        400,
        "the request must be a JSON object, sent as application/json",
    )


def test_a_route_is_described_by_the_docstring_and_the_fields_of_its_body():
    described = served(search).get("/openapi.json").json()
    operation = described["paths"]["/api/search"]["post"]
    assert (operation["operationId"], operation["summary"]) == ("search", "Find.")
    schema = described["components"]["schemas"]["SearchBody"]
    assert schema["required"] == ["query"]
    assert schema["properties"]["query"]["description"] == "A question."
    assert (schema["properties"]["k"]["minimum"], schema["properties"]["k"]["maximum"]) == (1, 100)


def test_gradios_client_has_the_fields_as_arguments():
    with WholeSteps() as app:
        register(Endpoint(search), SERVICES)
    [function] = app.fns.values()
    assert (function.api_name, function.queue) == ("search", False)
    [described] = app.get_api_info()["named_endpoints"].values()
    names = [parameter["parameter_name"] for parameter in described["parameters"]]
    assert names == list(SearchBody.model_fields)
    values = ["q", "m", None, 3, 0.5, True, None, "csv"]
    answer = asyncio.run(app.process_api(function, values, request=gr.Request()))["data"][0]
    assert answer["body"] == asked(query="q", k=3)
    with pytest.raises(gr.Error, match="k is '0'"):
        asyncio.run(app.process_api(function, [*values[:3], 0, *values[4:]], request=gr.Request()))


def test_a_full_disk_is_told_without_the_folders_of_the_machine():
    def save(call: Call, body: SearchBody) -> Found:
        raise unwritable(
            Path("/srv/lab/home/tmp/out.csv"), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        )

    answer = served(save).post("/api/search", json={"query": "q"})
    assert answer.json() == {"error": "out.csv cannot be written: No space left on device"}


def test_a_fault_of_the_app_is_logged_and_not_told(caplog):
    def broken(call: Call, body: SearchBody) -> Found:
        raise RuntimeError("the password is 1234")

    answer = served(broken).post("/api/search", json={"query": "q"})
    assert answer.status_code == 500
    assert "1234" not in answer.text
    assert "1234" in caplog.text


def test_a_visitor_has_so_many_requests_at_once_and_may_ask_again():
    entered = threading.Event()
    release = threading.Event()

    def slow(call: Call, body: SearchBody) -> Found:
        entered.set()
        assert release.wait(30)
        return search(call, body)

    answers: list[Any] = []
    with served(slow, at_once=1) as client:
        first = threading.Thread(
            target=lambda: answers.append(client.post("/api/search", json={"query": "q"}))
        )
        first.start()
        assert entered.wait(30)
        refused = client.post("/api/search", json={"query": "q"})
        release.set()
        first.join(30)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert "1 such requests from your address" in refused.json()["error"]
        assert answers[0].json()["visitor"] == "10.0.0.7"
        assert client.post("/api/search", json={"query": "q"}).status_code == 200


def test_where_one_request_is_computed_at_a_time_each_visitor_has_a_turn():
    order: list[str] = []
    entered = threading.Event()
    release = threading.Event()

    def slow(call: Call, body: SearchBody) -> Found:
        entered.set()
        assert release.wait(30)
        order.append(call.visitor)
        return search(call, body)

    endpoint = Endpoint(slow, threads=1)

    async def ask(visitor: str) -> None:
        await endpoint.run(Call(SERVICES, visitor), SearchBody(query="q"))

    async def everybody() -> None:
        asked = []
        for visitor in ("many", "many", "many", "one"):
            asked.append(asyncio.create_task(ask(visitor)))
            await asyncio.sleep(0.01)
        assert await asyncio.to_thread(entered.wait, 30)
        release.set()
        await asyncio.gather(*asked)

    asyncio.run(everybody())
    assert order == ["many", "one", "many", "many"]


def test_a_request_that_is_stopped_as_the_app_ends_is_a_503():
    def stopped(call: Call, body: SearchBody) -> Found:
        raise StoppedError

    assert served(stopped).post("/api/search", json={"query": "q"}).status_code == 503
