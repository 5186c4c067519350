"""What clients of Cohere, Jina, LiteLLM, infinity, Ollama, vLLM and text-embeddings-inference send, and read."""

import json

import numpy as np
import pytest
from starlette.middleware import Middleware
from starlette.testclient import TestClient
from test_v1 import app_of

from sbert_app.server.calls import CountRequests
from sbert_app.services.container import Services
from sbert_app.settings import Settings
from training.models.encoder import Encoder

MODEL = "all-MiniLM-L6-v2"


def sentence_of(answer) -> str:
    """The sentence of an error, whatever its shape."""
    body = answer.json()
    error = body.get("error", body.get("message"))
    return error["message"] if isinstance(error, dict) else error


@pytest.fixture(scope="module")
def services(home):
    return Services.start(Settings(home=home))


@pytest.fixture(scope="module")
def http(services):
    with TestClient(app_of(services, Middleware(CountRequests))) as client:
        yield client


@pytest.fixture(scope="module")
def vector(home):
    """The vector of "a cat" by the default model."""
    return Encoder.load(MODEL, home=home).encode(["a cat"])[0]


@pytest.fixture(scope="module")
def prompted(tmp_path_factory, services):
    """A model whose folder has prompts, which visitors may use."""
    folder = tmp_path_factory.mktemp("prompted") / "model"
    Encoder.load("scratch:1x32").save(folder)
    file = folder / "config_sentence_transformers.json"
    prompts = {"query": "query: ", "document": "passage: "}
    file.write_text(json.dumps(json.loads(file.read_text()) | {"prompts": prompts}))
    settings = services.settings.model_copy(update={"allow_paths": (folder.parent,)})
    with TestClient(app_of(Services.start(settings))) as http:
        yield http, str(folder)


@pytest.mark.parametrize("path", ["/embed", "/v1/embeddings", "/v2/rerank"])
def test_null_is_the_default_of_any_field(http, path):
    fields = {"input": "a"} if "embed" in path else {"query": "a", "documents": ["b"]}
    nothing = dict.fromkeys(["encoding_format", "dimensions", "return_documents", "top_n", "user", "input_type"])
    answer = http.post(path, json={"model": MODEL, **fields, **nothing, "late_chunking": False})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/embeddings", {"input": ["a cat"], "encoding_format": "float", "user": "me", "stream": False}),
        ("/v1/embeddings", {"input": ["a cat"], "embedding_type": "float", "normalized": True, "truncate": True}),
        ("/v1/embeddings", {"input": ["a cat"], "output_dtype": "float", "truncation": True, "modality": "text"}),
        ("/embed", {"inputs": ["a cat"], "truncation_direction": "Right", "truncate": False, "normalize": True}),
        ("/v1/embed", {"texts": ["a cat"], "truncate": "END", "input_type": "search_document"}),
        ("/v2/embed", {"texts": ["a cat"], "truncate": "END", "embedding_types": ["float"]}),
        ("/api/embed", {"input": ["a cat"], "model": f"{MODEL}:latest"}),
        ("/api/embed", {"input": ["a cat"], "truncate": True, "keep_alive": "5m", "options": {"num_ctx": 2048}}),
        ("/api/embeddings", {"prompt": "a cat", "keep_alive": 0, "options": {"temperature": 0}}),
        # RAGFlow, LM Studio and OpenRouter; vLLM and llama.cpp.
        ("/v1/embeddings", {"input": ["a cat"], "drop_params": True, "ttl": 300, "provider": {"order": ["x"]}}),
        ("/v1/embeddings", {"input": ["a cat"], "embed_dtype": "float32", "embd_normalize": 2}),
        ("/v1/embeddings", {"input": [{"text": "a cat"}], "task": "retrieval.query"}),
        ("/v2/embed", {"inputs": [{"content": [{"type": "text", "text": "a cat"}]}], "embedding_types": ["float"]}),
    ],
)
def test_what_is_done_anyway_is_taken_from_every_client(http, vector, path, fields):
    answer = http.post(path, json={"model": MODEL, **fields})
    assert answer.status_code == 200, answer.text
    vectors = answer.json()
    for key in ("data", "embeddings", "float"):
        vectors = vectors[key] if isinstance(vectors, dict) and key in vectors else vectors
    first = vectors[0] if isinstance(vectors, list) else vectors
    assert np.allclose(first["embedding"] if isinstance(first, dict) else first, vector, atol=2e-3)


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize("types", [None, ["float"], ["base64"]])
def test_cohere_reads_lists_or_vectors_by_type(http, version, types):
    body = {"model": MODEL, "texts": "a cat", "input_type": "search_query", "embedding_types": types}
    answers = [http.post(f"/v{version}/embed", json=body).json() for _ in range(2)]
    answer, is_by_type = answers[0], version == "2" or types is not None
    assert answer["response_type"] == ("embeddings_by_type" if is_by_type else "embeddings_floats")
    vectors = answer["embeddings"][types[0] if types else "float"] if is_by_type else answer["embeddings"]
    assert isinstance(vectors[0], str if types == ["base64"] else list)
    assert answer["texts"] == ["a cat"]
    meta = answer["meta"]
    assert (meta["api_version"], meta["billed_units"]) == ({"version": version}, {"input_tokens": 4})
    assert meta["warnings"] == []
    assert answers[0]["id"] != answers[1]["id"]


def test_ollama_reads_vectors_and_integers_or_one_vector(http):
    answer = http.post("/api/embed", json={"model": MODEL, "input": ["a cat", "a dog"]}).json()
    assert len(answer["embeddings"]) == 2
    assert (answer["model"], answer["prompt_eval_count"], type(answer["total_duration"])) == (MODEL, 8, int)
    [single] = http.post("/api/embed", json={"model": MODEL, "input": "a cat"}).json()["embeddings"]
    one = http.post("/api/embeddings", json={"model": MODEL, "prompt": "a cat"}).json()
    assert one == {"embedding": pytest.approx(single)}
    refused = http.post("/api/embeddings", json={"model": MODEL, "prompt": ["a cat", "a dog"]})
    assert "POST a list of texts to /api/embed" in refused.json()["error"]


@pytest.mark.parametrize("model", ["minilm-stsb", MODEL])
def test_pairs_are_scored_as_at_vllm_and_text_embeddings_inference(http, model):
    texts = ["Prices rose.", "A kitten is asleep."]
    body = {"model": model, "text_1": "a sleeping cat", "text_2": texts}
    ranked = http.post("/v1/rerank", json={"model": model, "query": "a sleeping cat", "documents": texts}).json()
    expected = [item["relevance_score"] for item in sorted(ranked["results"], key=lambda item: item["index"])]
    answer = http.post("/score", json=body).json()
    assert [item["score"] for item in answer["data"]] == pytest.approx(expected, abs=1e-5)
    assert answer["usage"] == ranked["usage"]
    pair_by_pair = http.post("/v1/score", json=body | {"text_1": ["a sleeping cat"] * 2}).json()["data"]
    assert [item["score"] for item in pair_by_pair] == pytest.approx(expected, abs=1e-5)
    inputs = {"source_sentence": "a sleeping cat", "sentences": texts}
    listed = http.post("/similarity", json={"model": model, "inputs": inputs, "parameters": {"truncate": True}})
    assert listed.json() == pytest.approx(expected, abs=1e-5)
    names = {"model": model, "queries": "a sleeping cat", "items": texts}
    by_name = http.post("/score", json=names).json()["data"]
    assert [item["score"] for item in by_name] == pytest.approx(expected, abs=1e-5)
    refused = http.post("/score", json=body | {"text_1": ["a"] * 3})
    assert refused.status_code == 400
    assert "text_1 has 3 texts and text_2 has 2" in refused.json()["error"]["message"]


def test_an_unknown_path_names_those_that_exist(http):
    answer = http.post("/v2/chat", json={})
    assert answer.status_code == 404
    paths = sentence_of(answer).partition("POST to ")[2].split(", ")
    assert {"/v1/embeddings", "/v2/embed", "/api/embed", "/score"} <= {*paths}
    for path in paths:
        assert http.post(path, json={}).status_code == 400
        assert f'endpoint="{path}"' in http.get("/metrics").text


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank", "/rerank"])
def test_documents_are_texts_or_have_one(http, path):
    body = {"model": MODEL, "query": "a sleeping cat", "top_n": 1}
    for field in ("text", "content", "page_content"):
        documents = ["Prices rose.", {field: "A kitten is asleep.", "id": 7}]
        [best] = http.post(path, json=body | {"documents": documents}).json()["results"]
        assert best["index"] == 1
    no_text = http.post(path, json=body | {"documents": [{"image": "x"}]})
    assert no_text.status_code == 400
    assert sentence_of(no_text) == "document 0 has no text in text or content or page_content"
    no_texts = sentence_of(http.post(path, json={"model": MODEL, "query": "a", "texts": []}))
    assert no_texts.startswith("texts: ") and "token ids" not in no_texts


def test_text_embeddings_inference_has_no_model_and_answers_with_lists(http):
    body = {"model": MODEL, "input": "A cat."}
    [vector] = http.post("/embed", json={"inputs": "A cat.", "truncate": True}).json()
    assert vector == pytest.approx(http.post("/v1/embeddings", json=body).json()["data"][0]["embedding"])
    body = {"query": "a sleeping cat", "texts": ["Prices rose.", "A kitten is asleep."], "return_text": True}
    best, worst = http.post("/rerank", json=body).json()
    assert (best["index"], best["text"]) == (1, "A kitten is asleep.")
    assert best["score"] > worst["score"]
    assert http.get("/info").json()["model_id"] == MODEL
    # Dify asks for vectors so.
    [item] = http.post("/v1/embeddings", json={"input": ["A cat."]}).json()["data"]
    assert item["embedding"] == pytest.approx(vector, abs=1e-3)
    body = {"query": {"text": "a sleeping cat"}, "passages": ["Prices rose.", "A kitten is asleep."]}
    assert http.post("/v1/rerank", json=body).json()["results"][0]["index"] == 1
    assert http.post("/", json={"inputs": "A cat."}).json() == [vector]


@pytest.mark.parametrize(
    ("fields", "prompt"),
    [
        ({"input_type": "search_query"}, "query: "),
        ({"task": "retrieval.passage"}, "passage: "),
        ({"prompt_name": "document"}, "passage: "),
        ({}, ""),
    ],
)
def test_a_role_has_the_prompt_of_the_folder(prompted, fields, prompt):
    http, folder = prompted
    [vector] = http.post("/embed", json={"model": folder, "inputs": "a cat", **fields}).json()
    assert np.allclose(vector, Encoder.load(folder, prompt=prompt).encode(["a cat"])[0], atol=2e-2)
    ids = http.post("/embed", json={"model": folder, "inputs": [[101, 102]], **fields})
    assert ids.status_code == (400 if prompt else 200)


def test_a_bi_encoder_ranks_with_the_prompts_of_its_folder(prompted):
    http, folder = prompted
    query, documents, encoder = "a cat", ["a dog", "a cat"], Encoder.load(folder)
    ranked = http.post("/v1/rerank", json={"model": folder, "query": query, "documents": documents}).json()
    expected = encoder.encode_document(documents) @ encoder.encode_query(query)
    assert [hit["relevance_score"] for hit in ranked["results"]] == pytest.approx(sorted(expected)[::-1], abs=2e-3)
    read = [f"query: {query}", *(f"passage: {document}" for document in documents)]
    assert ranked["usage"]["total_tokens"] == sum(map(len, encoder.tokenize(read)))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"prompt_name": "clustering"}, "clustering"),
        ({"prompt_name": "query", "input_type": "document"}, "send one of them"),
        ({"inputs": None, "content": "a cat"}, "content is not known here"),
        ({"inputs": ["a", 5]}, "or token ids in their place; number 2 is not"),
        ({"late_chunking": True}, "late_chunking can only be false here"),
        ({"truncation_direction": "Left"}, "truncation_direction can only be right here"),
        ({"truncate": "START"}, "truncate: input should be 'END' or 'NONE'"),
        ({"embedding_types": ["int8"]}, "embedding_types: input should be 'float' or 'base64'"),
        ({"temperature": 1}, "temperature is not known here, and may change what the answer means"),
        ({"truncate": "NONE", "inputs": "a " * 900}, "text 1 is longer than the"),
        ({"truncate_prompt_tokens": 8}, "cannot stop at fewer"),
    ],
)
def test_what_would_change_the_vectors_is_named(prompted, fields, sentence):
    http, folder = prompted
    answer = http.post("/embed", json={"model": folder, "inputs": "a cat", **fields})
    assert answer.status_code == 400
    assert sentence in answer.json()["error"]


def test_fields_of_documents_are_ranked_as_at_cohere_or_said_to_be_unread(http):
    documents = [{"id": "7", "title": "Cats", "text": "It is asleep.", "url": "u"}, "Prices rose."]
    body = {"model": MODEL, "query": "a sleeping cat", "documents": documents, "return_documents": True}
    answer = http.post("/v2/rerank", json=body).json()
    assert answer["warnings"] == ["title, url of documents not read; rank_fields names the fields to read"]
    ranked = http.post("/v2/rerank", json=body | {"rank_fields": ["title", "text"]}).json()
    assert ranked["warnings"] == ["url of documents not read; rank_fields names the fields to read"]
    joined = http.post("/v2/rerank", json=body | {"documents": ["Cats\nIt is asleep.", "Prices rose."]}).json()
    assert ranked["results"] == joined["results"] != answer["results"]
    assert joined["warnings"] == []


OPENAI = {"error": {"message": "SENTENCE", "type": "invalid_request_error", "param": None, "code": None}}
SHAPES = {
    **dict.fromkeys(("/v1/embeddings", "/embeddings", "/v1/score", "/score"), OPENAI),
    **{key: {"message": "SENTENCE"} for key in ("/v1/embed", "/v2/embed", "/v2/rerank")},
    "/v1/rerank": OPENAI | {"message": "SENTENCE"},
    **{key: {"error": "SENTENCE"} for key in ("/api/embed", "/api/embeddings")},
    **{key: {"error": "SENTENCE", "error_type": "Validation"} for key in ("/embed", "/rerank", "/similarity")},
}


@pytest.mark.parametrize("path", SHAPES)
def test_errors_have_the_shape_of_the_paths_own_clients(http, path):
    for body, sentence in ((b"{", "the request is not valid JSON"), (b"[]", "the request must be a JSON object")):
        answer = http.post(path, content=body)
        assert (answer.status_code, sentence_of(answer)) == (400, sentence)
        assert json.loads(answer.text.replace(sentence, "SENTENCE")) == SHAPES[path]
    refused = http.get(path)
    assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
    assert sentence_of(refused) == f"{path} takes POST alone"


def test_a_slash_more_in_the_address_of_a_client_changes_nothing(http):
    for path in ("/v1/embeddings/", "//embed", "/v1//embeddings"):
        answer = http.post(f"http://testserver{path}", json={"model": MODEL, "input": "a cat"})
        assert answer.status_code == 200
        assert sentence_of(http.post(f"http://testserver{path}", content=b"{")) == "the request is not valid JSON"


def test_infinitys_client_sends_0_for_all_dimensions(http):
    answer = http.post("/embeddings", json={"model": MODEL, "input": "a cat", "dimensions": 0})
    assert len(answer.json()["data"][0]["embedding"]) == 384
    for path in ("/models", "/v1/models/", "/v1//models"):
        assert http.get(path).json() == http.get("/v1/models").json()


def test_ollama_lists_the_models_and_says_its_version(http):
    models = http.get("/api/tags").json()["models"]
    assert [model["name"] for model in models] == [model["id"] for model in http.get("/v1/models").json()["data"]]
    keys = {"name", "model", "modified_at", "size", "digest", "details"}
    assert all(set(model) == keys and len(model["digest"]) == 64 for model in models)
    assert set(http.get("/api/version").json()) == {"version"}
    assert http.head("/api/tags").status_code == 200
