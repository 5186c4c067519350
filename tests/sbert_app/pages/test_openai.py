"""/v1 serves OpenAI's own client, unmodified: embeddings, models, errors; re-ranking; what Prometheus reads."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import openai
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.testclient import TestClient

from sbert_app.pages.api import metrics
from sbert_app.pages.api import openai as v1
from sbert_app.pages.api.metrics import CountRequests
from sbert_app.services.container import Services
from sbert_app.services.metrics import REGISTRY
from sbert_app.settings import Settings
from training.data.load import load_data
from training.evaluation.metrics import spearman
from training.models.encoder import Encoder

MODEL = "all-MiniLM-L6-v2"


@pytest.fixture(scope="module")
def services(home):
    return Services.start(Settings(home=home))


@pytest.fixture(scope="module")
def http(services):
    routes = [*v1.routes(services), *metrics.routes()]
    with TestClient(Starlette(routes=routes, middleware=[Middleware(CountRequests)])) as client:
        yield client


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


def test_one_text_fewer_dimensions_and_a_pooling_of_choice(client):
    [whole] = client.embeddings.create(model=MODEL, input="A cat sleeps.").data
    [part] = client.embeddings.create(model=MODEL, input="A cat sleeps.", dimensions=64).data
    [cls] = client.embeddings.create(model=f"{MODEL}:cls", input="A cat sleeps.").data
    first = np.array(whole.embedding[:64])
    assert np.allclose(part.embedding, first / np.linalg.norm(first), atol=1e-5)
    assert np.linalg.norm(cls.embedding) == pytest.approx(1, abs=1e-5)
    assert cls.embedding != whole.embedding


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
        ({"model": MODEL, "input": [[1, 2, 3]]}, "lists of token ids are not supported"),
        ({"model": MODEL, "input": []}, "input must be a text, or a list of 1 to 2,048 texts"),
        ({"model": MODEL, "input": "x", "encoding_format": "hex"}, "encoding_format: input should be"),
        ({"model": "", "input": "x"}, "model: string should have at least 1 character"),
    ],
)
def test_what_is_wrong_is_said_in_openais_form(client, request_, sentence):
    with pytest.raises(openai.BadRequestError, match=sentence) as refused:
        client.embeddings.create(**request_)
    assert refused.value.type == "invalid_request_error"


@pytest.mark.parametrize("body", [b"{", b"[1]", b"\xff"])
def test_what_is_no_request_is_refused(http, body):
    answer = http.post("/v1/embeddings", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


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


def value(name, **labels):
    return REGISTRY.get_sample_value(name, labels) or 0.0


def test_requests_of_several_clients_are_computed_in_one_batch(client, services):
    client.embeddings.create(model=MODEL, input="warm")
    processing = services.models.encoder(MODEL).inference._batcher._processing
    batches, requests = value("sbert_lab_batch_requests_count"), value("sbert_lab_batch_requests_sum")
    with ThreadPoolExecutor(6) as threads:
        with processing:  # a batch is being computed
            texts = [f"Sentence number {i}." for i in range(6)]
            answers = [threads.submit(client.embeddings.create, model=MODEL, input=text) for text in texts]
            deadline = time.monotonic() + 30
            while value("sbert_lab_waiting_requests") < 6 and time.monotonic() < deadline:
                threading.Event().wait(0.01)
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


def test_stsb_through_the_client_scores_what_it_scores_here(client):
    data = load_data("stsb:test")
    vectors = []
    for column in data.columns:
        for start in range(0, len(column), 512):
            answer = client.embeddings.create(model=MODEL, input=list(column[start : start + 512]))
            vectors += [each.embedding for each in answer.data]
    u, v = np.split(np.array(vectors), 2)
    assert 100 * spearman((u * v).sum(axis=1), np.array(data.scores)) == pytest.approx(82.03, abs=0.02)
