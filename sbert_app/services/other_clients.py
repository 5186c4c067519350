"""Embeddings and models as clients of Cohere and Ollama read them. Requests and errors are those of `embeddings`."""

import time
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from uuid import uuid4

from sbert_app.services.models.cache import ModelCache
from sbert_app.services.openai import EmbeddingsRequest, ShouldStop, embeddings, list_models
from sbert_app.services.runs.store import RunStore
from training.errors import InputError


def embed_for_cohere(
    models: ModelCache, request: EmbeddingsRequest, should_stop: ShouldStop, version: str
) -> dict[str, Any]:
    """The vectors as Cohere's clients read them: by type in version 2, and in 1 where the request names a type."""
    answer = embeddings(models, request, should_stop)
    vectors = [item["embedding"] for item in answer["data"]]
    tokens = {"input_tokens": answer["usage"]["total_tokens"]}
    is_by_type = version == "2" or "encoding_format" in request.model_fields_set
    return {
        "id": str(uuid4()),
        "response_type": "embeddings_by_type" if is_by_type else "embeddings_floats",
        "embeddings": {request.encoding_format: vectors} if is_by_type else vectors,
        "texts": [request.input] if isinstance(request.input, str) else request.input,
        "meta": {"api_version": {"version": version}, "billed_units": tokens, "warnings": answer["warnings"]},
    }


def embed_for_ollama(models: ModelCache, request: EmbeddingsRequest, should_stop: ShouldStop) -> dict[str, Any]:
    """The vectors as Ollama's clients read them, with the time that they took in nanoseconds."""
    started = time.perf_counter_ns()
    answer = embeddings(models, request, should_stop)
    return {
        "model": request.model,
        "embeddings": [item["embedding"] for item in answer["data"]],
        "total_duration": time.perf_counter_ns() - started,
        "prompt_eval_count": answer["usage"]["prompt_tokens"],
    }


def embed_prompt_for_ollama(models: ModelCache, request: EmbeddingsRequest, should_stop: ShouldStop) -> dict[str, Any]:
    """The vector of one text, as older clients of Ollama read it. InputError as `embeddings`, or for a list."""
    if not isinstance(request.input, str):
        sentence = "/api/embeddings takes one text; POST a list of texts to /api/embed"
        # Visitors are shown addresses of the app, which look like paths of its machine.
        raise InputError(sentence, public=sentence)
    [item] = embeddings(models, request, should_stop)["data"]
    return {"embedding": item["embedding"]}


def list_for_ollama(store: RunStore) -> dict[str, Any]:
    """The models of `list_models` as Ollama's clients read them; of one that is not open no details are known."""
    details = dict.fromkeys(("parent_model", "format", "family", "parameter_size", "quantization_level"), "")
    models = []
    for name, created in ((model["id"], model["created"]) for model in list_models(store)["data"]):
        time, digest = datetime.fromtimestamp(created, UTC).isoformat(), sha256(name.encode()).hexdigest()
        entry = {"name": name, "model": name, "modified_at": time, "size": 0, "digest": digest}
        models.append({**entry, "details": {**details, "families": []}})
    return {"models": models}
