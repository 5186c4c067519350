"""`server/v1.py`, with unmodified clients of other people: Cohere, LiteLLM, LangChain, LlamaIndex."""

from collections.abc import Iterator

import numpy as np
import openai
import pytest
from fastapi import FastAPI
from running_app import served

from sbert_app.server import v1
from sbert_app.server.errors import HANDLERS
from sbert_app.services.container import Services
from sbert_app.settings import Settings
from training.models.encoder import Encoder

pytestmark = pytest.mark.slow
MODEL = "all-MiniLM-L6-v2"
CROSS = "minilm-stsb"
QUERY = "a sleeping cat"
DOCUMENTS = ["Prices rose.", "A kitten is asleep.", "It rains."]
TEXTS = ["A cat sleeps.", "", "Prices rose in March."]


@pytest.fixture(scope="module")
def address(home) -> Iterator[str]:
    app = FastAPI(exception_handlers=HANDLERS)
    app.include_router(v1.router(Services.start(Settings(home=home))))
    with served(app) as url:
        yield url


@pytest.fixture(scope="module")
def expected(home) -> np.ndarray:
    return Encoder.load(MODEL, home=home).encode(TEXTS)


@pytest.mark.parametrize("client", ["ClientV2", "Client"])
def test_the_client_of_cohere_ranks(address, client):
    cohere = getattr(pytest.importorskip("cohere"), client)(api_key="any", base_url=address)
    ranked = cohere.rerank(model=CROSS, query=QUERY, documents=DOCUMENTS, top_n=2)
    assert ranked.results[0].index == 1
    assert len(ranked.results) == 2


@pytest.mark.parametrize("provider", ["cohere", "jina_ai"])
def test_litellm_ranks(address, provider):
    # It is installed by hand: it would bring boto3 and an older python-dateutil.
    litellm = pytest.importorskip("litellm")
    documents = [DOCUMENTS[0], {"text": DOCUMENTS[1]}, DOCUMENTS[2]]
    base = f"{address}/v1/rerank" if provider == "jina_ai" else address
    options = {"return_documents": True, "api_base": base, "api_key": "any", "top_n": 1}
    answer = litellm.rerank(
        model=f"{provider}/{CROSS}", query=QUERY, documents=documents, **options
    )
    assert answer.results[0]["index"] == 1


def test_litellm_embeds(address, expected):
    litellm = pytest.importorskip("litellm")
    answer = litellm.embedding(
        model=f"openai/{MODEL}", input=TEXTS, api_base=f"{address}/v1", api_key="any"
    )
    assert np.allclose([item["embedding"] for item in answer.data], expected, atol=2e-3)


def test_langchain_embeds(address, expected):
    langchain = pytest.importorskip("langchain_openai")
    embed = langchain.OpenAIEmbeddings(
        model=MODEL, base_url=f"{address}/v1", api_key="any", check_embedding_ctx_length=False
    ).embed_documents
    assert np.allclose(embed(TEXTS), expected, atol=2e-3)


def test_langchain_is_told_what_to_set(address):
    """By default it sends token ids of another tokenizer."""
    langchain = pytest.importorskip("langchain_openai")
    embeddings = langchain.OpenAIEmbeddings(
        model=MODEL, base_url=f"{address}/v1", api_key="any", tiktoken_enabled=True
    )
    with pytest.raises(openai.BadRequestError, match="check_embedding_ctx_length=False"):
        embeddings.client.create(model=MODEL, input=[[9906, 1917]])


def test_llama_index_embeds(address, expected):
    llama_index = pytest.importorskip("llama_index.embeddings.openai")
    model = llama_index.OpenAIEmbedding(model_name=MODEL, api_base=f"{address}/v1", api_key="any")
    assert np.allclose(
        model.get_text_embedding_batch([TEXTS[0], TEXTS[2]]), expected[[0, 2]], atol=2e-3
    )
