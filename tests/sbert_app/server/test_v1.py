"""/v1 serves OpenAI's own client, unmodified: embeddings, models, errors; re-ranking; what Prometheus reads."""

import json
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
from sbert_app.server.endpoint import Body, Call
from sbert_app.server.errors import HANDLERS
from sbert_app.server.login import Account, LoginRequired
from sbert_app.server.metrics import CountRequests
from sbert_app.server.v1 import Embeddings, EmbeddingsBody, RerankBody, embeddings, rerank
from sbert_app.services.access import REGISTRY
from sbert_app.services.container import Services
from sbert_app.settings import Settings
from training.data.load import load_data
from training.errors import InputError, StoppedError
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
    app = FastAPI(middleware=[*middleware], exception_handlers=HANDLERS)
    app.include_router(v1.router(services))
    app.include_router(api.document_router(services))
    return app


@pytest.fixture(scope="module")
def client(http):
    """The client as its users make it; its requests go to the app in this process."""

    def send(request: httpx.Request) -> httpx.Response:
        answer = http.request(
            request.method, str(request.url), content=request.content, headers=dict(request.headers)
        )
        return httpx.Response(
            answer.status_code, headers=dict(answer.headers), content=answer.content
        )

    transport = httpx.Client(transport=httpx.MockTransport(send))
    return openai.OpenAI(
        base_url="http://testserver/v1", api_key="any", http_client=transport, max_retries=0
    )


def test_vectors_are_those_of_encode_in_both_encodings(client, home):
    texts = ["A cat sleeps.", "", "Prices rose in March."]
    expected = Encoder.load(MODEL, home=home).encode(texts)
    # What the client asks for by default.
    as_base64 = client.embeddings.create(model=MODEL, input=texts)
    as_floats = client.embeddings.create(model=MODEL, input=texts, encoding_format="float")
    for answer in (as_base64, as_floats):
        assert [each.index for each in answer.data] == [0, 1, 2]
        assert np.allclose([each.embedding for each in answer.data], expected, atol=2e-3)
    assert as_base64.data[0].embedding == pytest.approx(as_floats.data[0].embedding)
    assert as_base64.usage.prompt_tokens == as_base64.usage.total_tokens == 6 + 2 + 7


def test_fewer_dimensions_are_the_first_of_all_at_length_one(client):
    text = "A cat sleeps."
    [whole] = client.embeddings.create(model=MODEL, input=text).data
    [one] = client.embeddings.create(model=MODEL, input=text, dimensions=64).data
    first = np.array(whole.embedding[:64])
    assert np.allclose(one.embedding, first / np.linalg.norm(first), atol=2e-3)


def test_a_pooling_is_part_of_the_name_of_the_model(client):
    text = "A cat sleeps."
    [whole] = client.embeddings.create(model=MODEL, input=text).data
    [cls] = client.embeddings.create(model=f"{MODEL}:cls", input=text).data
    assert np.linalg.norm(cls.embedding) == pytest.approx(1, abs=1e-5)
    assert cls.embedding != whole.embedding


def test_null_is_the_default_of_a_field(http):
    nothing = dict.fromkeys(["encoding_format", "dimensions", "user", "input_type"])
    assert (
        http.post("/v1/embeddings", json={"model": MODEL, "input": "a", **nothing}).status_code
        == 200
    )
    nothing = dict.fromkeys(["top_n", "return_documents"])
    assert (
        http.post(
            "/v1/rerank", json={"model": MODEL, "query": "a", "documents": ["b"], **nothing}
        ).status_code
        == 200
    )


@pytest.fixture(scope="module")
def prompted(tmp_path_factory, services):
    """A model whose folder has prompts, which visitors may use."""
    folder = tmp_path_factory.mktemp("prompted") / "model"
    Encoder.load("scratch:1x32").save(folder)
    file = folder / "config_sentence_transformers.json"
    prompts = {"query": "query: ", "document": "passage: ", "clustering": "cluster: "}
    file.write_text(json.dumps(json.loads(file.read_text()) | {"prompts": prompts}))
    settings = services.settings.model_copy(update={"allow_paths": (folder.parent,)})
    with TestClient(app_of(Services.start(settings))) as http:
        yield http, str(folder)


@pytest.mark.parametrize(
    ("input_type", "prompt"),
    [("query", "query: "), ("document", "passage: "), ("clustering", "cluster: "), (None, "")],
)
def test_input_type_chooses_a_prompt_of_the_folder(prompted, input_type, prompt):
    http, folder = prompted
    body = {"model": folder, "input": "a cat", "input_type": input_type}
    [vector] = http.post("/v1/embeddings", json=body).json()["data"]
    assert np.allclose(
        vector["embedding"], Encoder.load(folder, prompt=prompt).encode(["a cat"])[0], atol=2e-2
    )


def test_input_type_chooses_a_prompt_beside_the_settings_in_the_model_name(prompted):
    http, folder = prompted
    body = {"model": f"{folder}?dim=8", "input": "a cat", "input_type": "clustering"}
    [vector] = http.post("/v1/embeddings", json=body).json()["data"]
    expected = Encoder.load(folder, dimension=8, prompt="cluster: ").encode(["a cat"])[0]
    assert np.allclose(vector["embedding"], expected, atol=2e-2)


def test_a_prompt_that_the_folder_does_not_have_is_named(prompted):
    http, folder = prompted
    answer = http.post(
        "/v1/embeddings", json={"model": folder, "input": "a", "input_type": "other"}
    )
    assert answer.status_code == 400
    assert "other" in answer.json()["error"]["message"]


def test_a_bi_encoder_ranks_with_the_prompts_of_its_folder(prompted):
    http, folder = prompted
    query = "a cat"
    documents = ["a dog", "a cat"]
    encoder = Encoder.load(folder)
    ranked = http.post(
        "/v1/rerank", json={"model": folder, "query": query, "documents": documents}
    ).json()
    expected = encoder.encode_document(documents) @ encoder.encode_query(query)
    assert [hit["relevance_score"] for hit in ranked["results"]] == pytest.approx(
        sorted(expected)[::-1], abs=2e-3
    )
    read = [f"query: {query}", *(f"passage: {document}" for document in documents)]
    assert ranked["usage"]["total_tokens"] == sum(map(len, encoder.tokenize(read)))


def test_models_are_listed_and_found(client):
    assert {MODEL, "minilm-stsb"} <= {model.id for model in client.models.list()}
    assert client.models.retrieve(MODEL).owned_by == "sbert-lab"
    with pytest.raises(openai.NotFoundError, match="there is no model 'nothing'"):
        client.models.retrieve("nothing")


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        ({"model": "/etc/passwd", "input": "x"}, "cannot be used here"),
        (
            {"model": MODEL, "input": "x", "dimensions": 4_000},
            "dimensions is 4000; all-MiniLM-L6-v2 has 384",
        ),
        (
            {"model": MODEL, "input": [[101, 102]]},
            "input holds token ids.*check_embedding_ctx_length=False",
        ),
        (
            {"model": MODEL, "input": [101, 102]},
            "input holds token ids.*check_embedding_ctx_length=False",
        ),
        (
            {"model": MODEL, "input": ["a", None, "b"]},
            "input, number 2, is 'None': input should be a valid string",
        ),
        (
            {"model": "minilm-stsb", "input": "x"},
            "is a cross-encoder, .* has no vectors; ask /v1/rerank",
        ),
        ({"model": MODEL, "input": []}, "input is '.*': list should have at least 1 item"),
        (
            {"model": MODEL, "input": ["x"] * 2_049},
            "input has 2,049 items; at most 2,048 are taken",
        ),
        (
            {"model": MODEL, "input": "x", "dimensions": "many"},
            "dimensions is 'many': input should be a valid integer",
        ),
        (
            {"model": MODEL, "input": "x", "dimensions": True},
            "dimensions is 'True': input should be a valid integer",
        ),
        (
            {"model": MODEL, "input": "x", "extra_body": {"truncate": "NONE"}},
            "'truncate' is not known here",
        ),
    ],
)
def test_a_wrong_request_is_refused_in_openais_form(client, request_, sentence):
    with pytest.raises(openai.BadRequestError, match=sentence) as refused:
        client.embeddings.create(**request_)
    assert refused.value.type == "invalid_request_error"


@pytest.mark.parametrize("model", ["minilm-stsb", MODEL])
def test_documents_are_ranked_by_either_kind_of_model(http, model):
    documents = [
        "The stock market fell.",
        "A kitten is asleep.",
        {"text": "A cat sleeps on the sofa."},
    ]
    body = {
        "model": model,
        "query": "a sleeping cat",
        "documents": documents,
        "top_n": 2,
        "return_documents": True,
    }
    results = http.post("/v1/rerank", json=body).json()["results"]
    assert {result["index"] for result in results} == {1, 2}
    assert results[0]["relevance_score"] >= results[1]["relevance_score"]
    assert results[0]["document"]["text"] in ("A kitten is asleep.", "A cat sleeps on the sofa.")
    same = http.post("/v1/rerank", json=body | {"return_documents": False}).json()["results"]
    assert [result["document"] for result in same] == [None, None]
    for path in ("/v2/rerank", "/rerank"):
        assert http.post(path, json=body).json()["results"] == results


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"documents": []}, "list should have at least 1 item"),
        ({"documents": ["a", {"image": "x"}]}, "documents, number 2, is"),
        ({"top_n": 0}, "top_n is '0': input should be greater than or equal to 1"),
        ({"rank_fields": ["title"]}, "'rank_fields' is not known here"),
    ],
)
def test_a_wrong_request_for_a_ranking_is_refused_in_one_sentence(http, fields, sentence):
    body = {"model": MODEL, "query": "a", "documents": ["b"], **fields}
    answer = http.post("/v1/rerank", json=body)
    assert (answer.status_code, sentence in answer.json()["error"]["message"]) == (400, True), (
        answer.text
    )


def test_other_addresses_and_methods_are_told_in_openais_form(http):
    for method, path in (
        ("POST", "/v1/embed"),
        ("GET", "/v1/embeddings"),
        ("POST", "/v2/chat"),
        ("GET", "/rerank"),
    ):
        answer = http.request(method, path)
        assert answer.status_code == 404
        assert (
            answer.json()["error"]["message"]
            == f"there is no {method} {path}; /docs describes what there is"
        )


def test_too_many_requests_of_an_address_are_a_429(services, monkeypatch):
    """OpenAI's client takes it as a request to try again."""
    monkeypatch.setattr(v1, "AT_ONCE", 1)
    entered = threading.Event()
    release = threading.Event()

    def slow(call: Call, body: EmbeddingsBody) -> Embeddings:
        entered.set()
        assert release.wait(30)
        return embeddings(call, body)

    monkeypatch.setattr(v1, "embeddings", slow)
    body = {"model": MODEL, "input": "x"}
    with TestClient(app_of(services)) as http, ThreadPoolExecutor(1) as threads:
        answer = threads.submit(http.post, "/v1/embeddings", json=body)
        assert entered.wait(30)
        refused = http.post("/v1/embeddings", json=body)
        release.set()
        assert answer.result().status_code == 200
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert refused.json()["error"]["type"] == "rate_limit_error"


def value(name, **labels):
    return REGISTRY.get_sample_value(name, labels) or 0.0


def test_requests_of_several_clients_are_computed_in_one_batch(client, services):
    client.embeddings.create(model=MODEL, input="warm")
    processing = services.models.get(MODEL, Encoder).inference._batcher._processing
    batches = value("sbert_lab_batch_requests_count")
    requests = value("sbert_lab_batch_requests_sum")
    with ThreadPoolExecutor(6) as threads:
        with processing:  # a batch is being computed
            texts = [f"Sentence number {i}." for i in range(6)]
            answers = [
                threads.submit(client.embeddings.create, model=MODEL, input=text) for text in texts
            ]
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
    for path in ("/v1/models/some-name", "/v1/some-name", "/some-name"):
        http.get(path)
    assert "some-name" not in http.get("/metrics").text, "labels are known names alone"


def test_a_client_with_a_fixed_name_is_served_by_the_model_of_the_alias(home):
    services = Services.start(
        Settings.gather(home=home, aliases=[f"text-embedding-3-small={MODEL}"])
    )
    with TestClient(app_of(services)) as http:
        asked = {
            name: http.post("/v1/embeddings", json={"model": name, "input": "A cat sleeps."})
            for name in ("text-embedding-3-small", MODEL)
        }
        ours, expected = (answer.json() for answer in asked.values())
        assert ours["model"] == "text-embedding-3-small"
        assert ours["data"] == expected["data"]
        assert http.get("/v1/models").json()["data"][0]["id"] == "text-embedding-3-small"
        query = {
            "model": "text-embedding-3-small",
            "query": "a cat",
            "documents": ["Prices rose.", "A kitten."],
        }
        assert http.post("/v1/rerank", json=query).json()["results"][0]["index"] == 1
    with pytest.raises(
        InputError, match=r"aliases is '.*'; it must be NAME=MODEL, several separated by commas"
    ):
        Settings.gather(aliases=["gpt"])


def test_behind_a_login_the_api_key_of_the_client_is_the_token(services):
    login = Middleware(LoginRequired, account=Account("teacher", "right", "the-token"))
    with TestClient(app_of(services, login)) as http:
        headers = {"Authorization": "Bearer the-token"}
        answer = http.post(
            "/v1/embeddings", headers=headers, json={"model": MODEL, "input": "A cat sleeps."}
        )
        assert answer.status_code == 200 and len(answer.json()["data"][0]["embedding"]) == 384
        assert http.get("/v1/models", headers=headers).status_code == 200


@pytest.fixture
def address(services) -> Iterator[str]:
    with served(app_of(services)) as url:
        yield url


@pytest.mark.parametrize(
    "request_",
    [
        EmbeddingsBody(model=MODEL, input=["A cat sleeps."]),
        RerankBody(model=MODEL, query="a", documents=["b"]),
        RerankBody(model="minilm-stsb", query="a", documents=["b"]),
    ],
    ids=["texts", "encoder", "cross-encoder"],
)
def test_a_request_that_nobody_waits_for_is_not_computed(services, request_: Body):
    compute = rerank if isinstance(request_, RerankBody) else embeddings
    with pytest.raises(StoppedError):
        compute(Call(services, should_stop=lambda: True), request_)


def test_a_client_that_goes_ends_its_computation_within_a_second(request, monkeypatch):
    begun = threading.Event()
    stopped = threading.Event()

    def slow(call: Call, body: EmbeddingsBody) -> Embeddings:
        begun.set()
        wait_until(call.should_stop)
        stopped.set()
        raise StoppedError

    monkeypatch.setattr(v1, "embeddings", slow)
    body = b'{"model": "m", "input": "x"}'
    address = request.getfixturevalue("address")
    with socket.create_connection(address.removeprefix("http://").split(":")) as client:
        head = b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        client.sendall(head + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        assert begun.wait(30)
        assert not stopped.wait(0.3), "while the client waits it goes on"
    assert stopped.wait(1)


@pytest.mark.slow
def test_mtebs_own_openai_wrapper_scores_the_sts_benchmark(address, home):
    mteb = pytest.importorskip("mteb")
    from mteb.models.openai_wrappers import OpenAIAPIEncodeWrapper

    task = find_task("STSBenchmark")
    data = load_data("stsb:test", home).select(range(0, 1_379, 10))
    give_data(task, data)
    model = OpenAIAPIEncodeWrapper(
        address, MODEL, "any", modalities=["text"], use_chat_template=False
    )
    result = mteb.evaluate(model, [task], cache=None, co2_tracker=False, show_progress_bar=False)
    expected = evaluate(Encoder.load(MODEL, home=home), data)["spearman"]["cosine"]
    assert result.task_results[0].get_score() == pytest.approx(expected, abs=1e-3)
