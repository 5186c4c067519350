"""/v1 serves OpenAI's own client, unmodified: embeddings, models, errors; re-ranking; what Prometheus reads."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import openai
import pytest
from fastapi import FastAPI
from running_app import served
from starlette.middleware import Middleware
from starlette.testclient import TestClient
from waiting import wait_until

from sbert_app.server import api, v1
from sbert_app.server.calls import CountRequests
from sbert_app.server.login import Account, LoginRequired
from sbert_app.services.access import REGISTRY
from sbert_app.services.container import Services
from sbert_app.services.openai import EmbeddingsRequest, RerankRequest, embeddings, rerank
from sbert_app.settings import Settings
from training.data.load import load_data
from training.errors import Stopped
from training.evaluation.mteb_tasks import find_task, give_data
from training.evaluation.scoring import evaluate
from training.models.encoder import Encoder

MODEL = "all-MiniLM-L6-v2"


@pytest.fixture(scope="module")
def services(home):
    return Services.start(Settings(home=home))


@pytest.fixture(scope="module")
def http(services):
    with TestClient(app_of(services, Middleware(CountRequests))) as client:
        yield client


def app_of(services: Services, *middleware: Middleware) -> FastAPI:
    app = FastAPI(middleware=[*middleware], openapi_url=None)
    app.include_router(v1.router(services))
    app.include_router(api.document_router(services))
    return app


@pytest.fixture(scope="module")
def client(http):
    """The client as its users make it; its requests go to the app in this process."""

    def send(request: httpx.Request) -> httpx.Response:
        answer = http.request(request.method, str(request.url), content=request.content, headers=dict(request.headers))
        return httpx.Response(answer.status_code, headers=dict(answer.headers), content=answer.content)

    transport = httpx.Client(transport=httpx.MockTransport(send))
    return openai.OpenAI(base_url="http://testserver/v1", api_key="any", http_client=transport, max_retries=0)


def test_vectors_are_those_of_encode_in_both_encodings(client, home):
    texts = ["A cat sleeps.", "", "Prices rose in March."]
    expected = Encoder.load(MODEL, home=home).encode(texts)
    as_base64 = client.embeddings.create(model=MODEL, input=texts)  # what the client asks for by default
    as_floats = client.embeddings.create(model=MODEL, input=texts, encoding_format="float")
    for answer in (as_base64, as_floats):
        assert [each.index for each in answer.data] == [0, 1, 2]
        assert np.allclose([each.embedding for each in answer.data], expected, atol=2e-3)
    assert as_base64.data[0].embedding == pytest.approx(as_floats.data[0].embedding)
    assert as_base64.usage.prompt_tokens == as_base64.usage.total_tokens == 6 + 2 + 7


def test_token_ids_fewer_dimensions_and_a_pooling_of_choice(client, home):
    encoder = Encoder.load(MODEL, home=home)
    texts = ["A cat sleeps.", "Prices rose in March."]
    ids = encoder.tokenize(texts)
    several = client.embeddings.create(model=MODEL, input=ids)
    [one] = client.embeddings.create(model=MODEL, input=ids[0], dimensions=64).data
    assert np.allclose([each.embedding for each in several.data], encoder.encode(texts), atol=2e-3)
    assert several.usage.prompt_tokens == 6 + 7
    first = np.array(several.data[0].embedding[:64])
    assert np.allclose(one.embedding, first / np.linalg.norm(first), atol=2e-3)
    [cls] = client.embeddings.create(model=f"{MODEL}:cls", input=texts[0]).data
    assert np.linalg.norm(cls.embedding) == pytest.approx(1, abs=1e-5)
    assert cls.embedding != several.data[0].embedding


def test_models_are_listed_and_found(client):
    assert {MODEL, "minilm-stsb"} <= {model.id for model in client.models.list()}
    assert client.models.retrieve(MODEL).owned_by == "sbert-lab"
    with pytest.raises(openai.NotFoundError, match="there is no model 'nothing'"):
        client.models.retrieve("nothing")


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        ({"model": "/etc/passwd", "input": "x"}, "cannot be used here"),
        ({"model": MODEL, "input": "x", "dimensions": 4_000}, "dimensions is 4000; all-MiniLM-L6-v2 has 384"),
        ({"model": MODEL, "input": [[101, 40_000, 102]]}, "token id 40000 of input 1 is not in the vocabulary"),
        ({"model": MODEL, "input": [101] * 599 + [102]}, "input 1 has 600 tokens; all-MiniLM-L6-v2 reads 1 to"),
        ({"model": MODEL, "input": [[32, 8415], [101, 102]]}, "ids of input 1 do not begin with .101. and end with"),
        ({"model": MODEL, "input": ["a", None, "b"]}, "^Error code: 400.*input 2 is null; each must be a text"),
        ({"model": "minilm-stsb", "input": "x"}, "is a cross-encoder, .* has no vectors; ask /v1/rerank"),
        ({"model": MODEL, "input": []}, "input must be a text, or a list of 1 to 2,048 texts"),
        ({"model": MODEL, "input": "x", "dimensions": True}, "dimensions: input should be a valid integer"),
    ],
)
def test_what_is_wrong_is_said_in_openais_form(client, request_, sentence):
    with pytest.raises(openai.BadRequestError, match=sentence) as refused:
        client.embeddings.create(**request_)
    assert refused.value.type == "invalid_request_error"


@pytest.mark.parametrize("model", ["minilm-stsb", MODEL])
def test_documents_are_ranked_by_either_kind_of_model(http, model):
    documents = ["The stock market fell.", "A kitten is asleep.", {"text": "A cat sleeps on the sofa."}]
    body = {"model": model, "query": "a sleeping cat", "documents": documents, "top_n": 2, "return_documents": True}
    results = http.post("/v1/rerank", json=body).json()["results"]
    assert {result["index"] for result in results} == {1, 2}
    assert results[0]["relevance_score"] >= results[1]["relevance_score"]
    assert results[0]["document"]["text"] in ("A kitten is asleep.", "A cat sleeps on the sofa.")
    named_texts = http.post("/v1/rerank", json={"model": model, "query": "a", "texts": ["b", "c"]}).json()
    assert "document" not in named_texts["results"][0]
    assert http.post("/v1/rerank", json={"model": model, "query": "a"}).status_code == 400


def test_an_address_has_so_many_requests_at_once_and_may_ask_again(services, monkeypatch):
    """429, which OpenAI's client takes as a request to try again; the pages have threads of their own."""
    monkeypatch.setattr(v1, "AT_ONCE", 2)
    entered, release = threading.Semaphore(0), threading.Event()

    def slow(models, request, should_stop):
        entered.release()
        assert release.wait(30)
        return {"object": "list"}

    monkeypatch.setattr(v1.openai, "embeddings", slow)
    body = {"model": MODEL, "input": "x"}
    with TestClient(app_of(services)) as http, ThreadPoolExecutor(2) as threads:
        answers = [threads.submit(http.post, "/v1/embeddings", json=body) for _ in range(2)]
        for _ in answers:
            assert entered.acquire(timeout=30)
        refused = http.post("/v1/rerank", json={"model": MODEL, "query": "a", "documents": ["b"]})
        release.set()
        assert [answer.result().status_code for answer in answers] == [200, 200]
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "1"
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert "2 such requests from your address" in refused.json()["error"]["message"]
        assert http.post("/v1/embeddings", json=body).status_code == 200


def value(name, **labels):
    return REGISTRY.get_sample_value(name, labels) or 0.0


def test_requests_of_several_clients_are_computed_in_one_batch(client, services):
    client.embeddings.create(model=MODEL, input="warm")
    processing = services.models.get(MODEL, Encoder).inference._batcher._processing
    batches, requests = value("sbert_lab_batch_requests_count"), value("sbert_lab_batch_requests_sum")
    with ThreadPoolExecutor(6) as threads:
        with processing:  # a batch is being computed
            texts = [f"Sentence number {i}." for i in range(6)]
            answers = [threads.submit(client.embeddings.create, model=MODEL, input=text) for text in texts]
            wait_until(lambda: value("sbert_lab_waiting_requests") >= 6)
        vectors = np.array([answer.result().data[0].embedding for answer in answers])
    assert value("sbert_lab_batch_requests_count") - batches == 1
    assert value("sbert_lab_batch_requests_sum") - requests == 6
    alone = [client.embeddings.create(model=MODEL, input=text).data[0].embedding for text in texts]
    assert np.allclose(vectors, alone, atol=2e-3)


def test_prometheus_reads_requests_latency_and_tokens(http, client):
    before = value("sbert_lab_tokens_total", model=MODEL)
    client.embeddings.create(model=MODEL, input="A cat sleeps.")
    assert value("sbert_lab_tokens_total", model=MODEL) - before == 6
    answer = http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert 'sbert_lab_requests_total{endpoint="/v1/embeddings",status="200"}' in answer.text
    assert 'sbert_lab_request_seconds_count{endpoint="/v1/embeddings"}' in answer.text
    http.get("/v1/models/some-name")
    assert "some-name" not in http.get("/metrics").text, "labels are known names alone"


def test_behind_a_login_the_api_key_of_the_client_is_the_token(services):
    login = Middleware(LoginRequired, account=Account("teacher", "right", "the-token"))
    with TestClient(app_of(services, login)) as http:
        headers = {"Authorization": "Bearer the-token"}
        answer = http.post("/v1/embeddings", headers=headers, json={"model": MODEL, "input": "A cat sleeps."})
        assert answer.status_code == 200 and len(answer.json()["data"][0]["embedding"]) == 384
        assert http.get("/v1/models", headers=headers).status_code == 200


@pytest.fixture
def address(services) -> Iterator[str]:
    with served(app_of(services)) as url:
        yield url


@pytest.mark.parametrize(
    "request_",
    [
        EmbeddingsRequest(model=MODEL, input=["A cat sleeps."]),
        EmbeddingsRequest(model=MODEL, input=[[101, 102]]),
        RerankRequest(model=MODEL, query="a", documents=["b"]),
        RerankRequest(model="minilm-stsb", query="a", documents=["b"]),
    ],
    ids=["texts", "token ids", "encoder", "cross-encoder"],
)
def test_what_nobody_waits_for_is_not_computed(services, request_):
    compute = rerank if isinstance(request_, RerankRequest) else embeddings
    with pytest.raises(Stopped):
        compute(services.models, request_, lambda: True)


def test_a_client_that_goes_ends_its_computation_within_a_second(request, monkeypatch):
    begun, stopped = threading.Event(), threading.Event()

    def slow(models, request, should_stop):
        begun.set()
        wait_until(should_stop)
        stopped.set()
        raise Stopped

    monkeypatch.setattr(v1.openai, "embeddings", slow)
    body = b'{"model": "m", "input": "x"}'
    address = request.getfixturevalue("address")
    with socket.create_connection(address.removeprefix("http://").split(":")) as client:
        client.sendall(b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        assert begun.wait(30)
        assert not stopped.wait(0.3), "while the client waits it goes on"
    assert stopped.wait(1)


@pytest.mark.slow
def test_mtebs_own_openai_wrapper_scores_the_sts_benchmark(address, home):
    mteb = pytest.importorskip("mteb")
    from mteb.models.openai_wrappers import OpenAIAPIEncodeWrapper

    task, data = find_task("STSBenchmark"), load_data("stsb:test", home).select(range(0, 1_379, 10))
    give_data(task, data)
    model = OpenAIAPIEncodeWrapper(address, MODEL, "any", max_length=256, modalities=["text"], use_chat_template=False)
    result = mteb.evaluate(model, [task], cache=None, co2_tracker=False, show_progress_bar=False)
    expected = evaluate(Encoder.load(MODEL, home=home), data)["spearman"]["cosine"]
    assert result.task_results[0].get_score() == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/rerank"])
@pytest.mark.parametrize("body", [b"{", b"[" * 200_000, b"9" * 5_000, b"\xff", b""])
def test_what_is_no_json_is_a_400_whatever_its_type(http, path, body):
    answer = http.post(path, content=body, headers={"Content-Type": "text/plain"})
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "the request is not valid JSON")
