"""`server/endpoints.py` in a running app, as curl, Gradio's client and OpenAI's use them."""

import csv
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError
from running_app import RunningApp

from sbert_app import __version__
from sbert_app.server.endpoints import ENDPOINTS


@pytest.fixture(scope="module")
def http(shared_app: RunningApp) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=shared_app.url, headers=shared_app.headers, timeout=120) as http:
        yield http


@pytest.fixture(scope="module")
def client(shared_app: RunningApp) -> Client:
    return Client(shared_app.url, verbose=False, headers=dict(shared_app.headers))


def test_for_the_client_every_argument_but_the_text_has_a_default(client):
    found = client.predict("A cat.", "A kitten.", api_name="/compare")
    assert 0 <= found["cross_encoder"] <= 1
    without = client.predict("A cat.", "A kitten.", pooling="cls", words=True, api_name="/compare")[
        "words"
    ]
    assert [each["word"] for each in without] == ["A", "cat", ".", "A", "kitten", "."]
    assert set(without[0]) == {"side", "word", "cosine_change", "cross_change"}
    late = client.predict(
        "A cat.", "A kitten.", second="maxsim:all-MiniLM-L6-v2", api_name="/compare"
    )["second"]
    assert sum(each["share"] for each in late["tokens"]) == pytest.approx(late["score"], abs=1e-3)
    both = client.predict("A cat.", "A kitten.", second="scratch:1x32", api_name="/compare")
    assert (both["model"], both["second"]["model"]) == ("all-MiniLM-L6-v2", "scratch:1x32")
    encoded = client.predict(["A cat.", ""], api_name="/encode")
    assert [len(vector) for vector in encoded["embeddings"]] == [384, 384]
    with pytest.raises(AppError, match="the first sentence is empty"):
        client.predict(" ", "A kitten.", api_name="/compare")
    with pytest.raises(AppError, match="data 'nonsense' cannot be used here"):
        client.predict("nonsense", api_name="/evaluate")


LATER = {"start_run", "run_status", "stop_run", "score_file", "project"}  # have tests of their own


def test_each_example_of_the_reference_works(http):
    api = http.get("/openapi.json").json()
    assert api["info"]["version"] == __version__
    schemas = api["components"]["schemas"]

    def model_of(schema: dict[str, Any]) -> dict[str, Any]:
        return schemas[schema["$ref"].rpartition("/")[2]]

    for path, methods in api["paths"].items():
        if path.rpartition("/")[2] in LATER:
            continue
        for method, operation in methods.items():
            path = path.replace("{name}", "all-MiniLM-L6-v2")
            content = (
                operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            )
            example = model_of(content["schema"])["examples"][0] if content else None
            answer = http.request(method, path, json=example)
            assert answer.status_code == 200, (path, answer.text)
            schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
            if "items" in schema or "$ref" in schema:
                values = answer.json() if "items" in schema else [answer.json()]
                properties = model_of(schema.get("items", schema))["properties"]
                assert all(value.keys() <= properties.keys() for value in values), path
    described = schemas["CompareBody"]
    assert described["required"] == ["sentence_a", "sentence_b"]
    assert described["properties"]["words"]["default"] is False
    assert described["properties"]["sentence_a"]["description"] == "The first sentence."


def test_the_reference_asks_no_other_host(http):
    page = http.get("/docs").text
    files = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(files) == 3 and not any("//" in file for file in files)
    for file in files:
        assert http.get(f"/{file}").status_code == 200


def typed(http: httpx.Client, name: str, **arguments: object) -> Any:
    """What a route answers, which has the type that is declared."""
    answer = http.post(f"/api/{name}", json=arguments)
    assert answer.status_code == 200, answer.text
    return ENDPOINTS[name].answer.validate_python(answer.json())


def test_a_threshold_is_carried_over_to_another_model(http):
    answer = typed(
        http, "threshold", model="scratch:1x32", was="tfidf@0.5", data="stsb:dev", precision=0.6
    )
    assert answer.was == {"model": "tfidf", "threshold": 0.5}
    assert answer.carried is not None and 0 < answer.carried["accepted"] < 1
    assert "0.5 under" in answer.sentence and "the same share is" in answer.sentence


def test_files_are_scored_by_a_typed_route(shared_app, http):
    path = json.loads(
        shared_app.upload("pairs.csv", b"sentence1,sentence2\nA cat.,A kitten.\n").text
    )[0]
    scored = typed(
        http,
        "score_file",
        file={"path": path},
        model="scratch:1x32",
        threshold="0.5",
        format="jsonl",
    )
    assert (scored.scored, scored.matches["pairs"]) == (1, 1)
    assert list(json.loads(http.get(scored.file.url).text))[:2] == ["sentence1", "sentence2"]


@pytest.mark.parametrize(
    ("name", "body", "status", "said"),
    [
        (
            "compare",
            {"sentence_a": "A cat.", "sentence_b": " "},
            400,
            "the second sentence is empty",
        ),
        (
            "compare",
            {"sentence_a": "a", "sentence_b": "b", "model": "all-MiniLM-L6"},
            404,
            "did you mean all-MiniLM-L6-v2?",
        ),
        ("run_status", {"run_id": "nobody"}, 404, "there is no run"),
        ("search", {"query": "a cat", "data": "sstb:dev"}, 400, "did you mean stsb?"),
        ("compare", {"sentence": "A cat."}, 400, "'sentence' is not known here"),
        ("compare", ["A cat."], 400, "must be a JSON object"),
    ],
)
def test_a_mistake_is_no_fault_of_the_app(http, home, name, body, status, said):
    answer = http.post(f"/api/{name}", json=body)
    assert (answer.status_code, said in answer.json()["error"]) == (status, True), answer.text
    assert str(home.parent) not in answer.text, "where the app keeps its files"


def test_an_answer_tells_how_much_was_read_and_what_was_truncated(http, client):
    texts = ["word " * 1_000, "A cat."]
    body = {"model": "all-MiniLM-L6-v2", "input": texts}
    found = http.post("/v1/embeddings", json=body).json()
    assert (found["truncated"], found["usage"]["prompt_tokens"]) == ([0], 256 + 5)
    ranked = {"model": "all-MiniLM-L6-v2", "query": "cat", "documents": texts[::-1]}
    assert http.post("/v1/rerank", json=ranked).json()["truncated"] == [1]
    encoded = http.post("/api/encode", json={"sentences": texts}).json()
    assert (encoded["truncated"], encoded["usage"]) == ([0], found["usage"])
    measured = client.predict("stsb:dev", "scratch:1x32", api_name="/evaluate")
    assert (measured["usage"]["prompt_tokens"] > 2 * measured["n"], measured["truncated"]) == (
        True,
        [],
    )
    ranks = client.predict("beir:stsb:dev", "scratch:1x32", api_name="/evaluate")
    assert ranks["usage"]["prompt_tokens"] > ranks["queries"] + ranks["documents"]


def test_only_the_documented_endpoints_are_public(http):
    # If an event of a page had the name of an endpoint, Gradio would call the second one compare_1.
    names = set(http.get("/gradio_api/info").json()["named_endpoints"])
    documented = {
        "/compare", "/score_file", "/encode", "/evaluate", "/threshold", "/start_run", "/run_status", "/stop_run",
        "/list_runs", "/project", "/search",
    }  # fmt: skip
    assert names == documented


def test_errors_are_answered_in_the_form_that_clients_read(http):
    missing = http.post("/v1/embeddings", json={"model": "no/such", "input": "a"})
    assert (missing.status_code, missing.json()["error"]["type"]) == (404, "invalid_request_error")
    assert http.get("/nothing").json() == {
        "error": "there is no /nothing; /docs describes what there is"
    }


def test_the_api_starts_follows_and_stops_runs(client, http):
    run = client.predict(
        base="scratch:1x32", max_steps=1_000_000, name="by API", api_name="/start_run"
    )
    assert (run["state"], run["config"]["objective"]) == ("queued", "regression")
    seen = 0
    while not seen:
        time.sleep(0.2)
        status = client.predict(run["id"], seen, api_name="/run_status")
        seen = status["events_seen"]
    assert status["events"][0]["kind"] == "state"
    assert client.predict(run["id"], seen, api_name="/run_status")["events"] != status["events"]
    assert typed(http, "run_status", run_id=run["id"]).events_seen >= seen
    second = typed(http, "start_run", base="scratch:1x32", eval_data="none", lora_rank=4)
    assert second.config["lora_rank"] == 4
    client.predict(second.id, api_name="/stop_run")
    typed(http, "stop_run", run_id=run["id"])
    assert {run["id"], second.id} <= {
        other["id"] for other in client.predict(api_name="/list_runs")
    }
    assert {run["id"], second.id} <= {other.id for other in typed(http, "list_runs")}
    for refused in (
        {"train_data": "/etc/passwd"},
        {"objective": "regression", "train_data": "snli"},
        {"epochs": -1},
    ):
        with pytest.raises(AppError):
            client.predict(**refused, api_name="/start_run")


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "mine.csv"
    path.write_text(
        "left;right;rank;what\nA man sleeps.;A man is asleep.;5;x\nA dog barks.;;1;y\n<b>bold</b>;=1+1;2;z\n"
    )
    return path


def test_a_file_in_its_statistics_and_the_scored_file_out(client, pairs):
    options = {"columns": "left,right,rank", "read_as": "1-5"}
    summary = client.predict(handle_file(pairs), **options, api_name="/score_file")
    assert (summary["rows"], summary["scored"], summary["missing_text"]) == (3, 2, 1)
    assert summary["remarks"] == ["rank read as: scores from 1 to 5 stretched to 0–5."]
    assert summary["columns"]["score"] == "rank"
    json.dumps(summary, allow_nan=False)
    with Path(summary["file"]).open(newline="", encoding="utf-8") as file:
        assert list(csv.DictReader(file, delimiter=";"))[1]["note"] == "no text in right"


def test_a_file_that_can_be_read_in_two_ways_is_answered_by_the_question(shared_app, http):
    header = "frage_a,frage_b,eins,zwei"
    rows = [f"Where is room {n}?,How do I get to room {n}?,{n % 2},{n // 2 % 2}" for n in range(8)]
    path = json.loads(shared_app.upload("two.csv", "\n".join([header, *rows]).encode()).text)[0]
    body = {"file": {"path": path}, "model": "scratch:1x32"}
    answer = http.post("/api/score_file", json=body)
    assert answer.status_code == 422
    asked = answer.json()["error"]
    assert asked.startswith("two.csv: which column says how alike the two sentences are? eins (")
    assert "frage_a,frage_b,eins" in asked
    answered = http.post("/api/score_file", json={**body, "columns": "frage_a,frage_b,eins"})
    assert answered.json()["columns"]["score"] == "eins"


@pytest.mark.parametrize("meta", [{}, {"meta": {"_type": "gradio.FileData"}}])
def test_only_uploaded_files_are_read(http, pairs, meta):
    foreign = {"path": str(pairs), **meta}
    answer = http.post("/api/score_file", json={"file": foreign})
    assert (answer.status_code, "upload the file first" in answer.text) == (400, True)
    values = [foreign, "", "all-MiniLM-L6-v2", None, "none", "csv", "", "", False, ""]
    answer = http.post("/gradio_api/run/score_file", json={"data": values})
    assert answer.status_code >= 400
    assert "left" not in answer.text, "a column of the file"


def test_sentences_in_points_out(client, http):
    sentences = [
        f"Sentence number {i} is about {('cats', 'dogs', 'rain')[i % 3]}." for i in range(12)
    ]
    first = client.predict(sentences, neighbours=4, api_name="/project")
    again = typed(http, "project", sentences=sentences, neighbours=4)
    assert [len(point) for point in first["points"]] == [2] * 12
    assert first["points"] == again.points
    assert again.from_cache
