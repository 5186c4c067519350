"""The bodies of errors: the clients of each service read those that it sends."""

from starlette.responses import JSONResponse

# By the beginnings of paths, the first that fits. All others have the shape of Ollama's, as the app's own do.
SHAPES = {
    "/v1/embeddings": "OpenAI",
    "/v1/embed": "Cohere",
    # Clients of Cohere, Jina and vLLM ask for the same path.
    "/v1/rerank": "OpenAI, Cohere",
    "/v2/": "Cohere",
    **dict.fromkeys(("/v1", "/openai", "/embeddings", "/score", "/models"), "OpenAI"),
    **dict.fromkeys(("/embed", "/rerank", "/similarity", "/predict", "/tokenize", "/info"), "TEI"),
}
TEI_TYPES = {429: "Overloaded", 500: "Backend", 503: "Unhealthy"}


def error_answer(path: str, status: int, sentence: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """An error of one sentence in the shape that the clients of a path read."""
    kind = "server_error" if status >= 500 else "rate_limit_error" if status == 429 else "invalid_request_error"
    bodies: dict[str, dict[str, object]] = {
        "OpenAI": {"error": {"message": sentence, "type": kind, "param": None, "code": None}},
        "Cohere": {"message": sentence},
        "TEI": {"error": sentence, "error_type": TEI_TYPES.get(status, "Validation")},
    }
    shape = next((shape for start, shape in SHAPES.items() if f"/{path.lstrip('/')}".startswith(start)), "")
    body = {key: value for name in bodies if name in shape for key, value in bodies[name].items()}
    return JSONResponse(body or {"error": sentence}, status, headers)
