"""A comparison as a link, as Python and as curl, to be copied from the page."""

from __future__ import annotations

import json
import shlex
from urllib.parse import urlencode

LONGEST_LINK = 4_000  # characters of the query; servers and proxies refuse addresses of more than about 8,000


def link(base_url: str, **query: str | None) -> str:
    """A link that opens the page with these inputs; a sentence that says so where they are too long for one."""
    encoded = urlencode({key: value for key, value in query.items() if value})
    if len(encoded) > LONGEST_LINK:
        return "These sentences are too long for a link."
    return f"{base_url.rstrip('/')}/?{encoded}"


def as_python(a: str, b: str, model: str, pooling: str, cross_encoder: str | None) -> str:
    """The comparison with the Python API."""
    lines = [
        f"from training import Encoder{', CrossEncoder' if cross_encoder else ''}",
        "",
        f"a, b = {a!r}, {b!r}",
        f"encoder = Encoder.load({model!r}, pooling={pooling!r})",
        "u, v = encoder.encode([a, b])",
        'print("cosine", float(u @ v))',
    ]
    if cross_encoder:
        lines.append(f'print("cross-encoder", float(CrossEncoder.load({cross_encoder!r}).predict([(a, b)])[0]))')
    return "\n".join(lines)


def as_curl(base_url: str, a: str, b: str, model: str, pooling: str, cross_encoder: str | None) -> str:
    """The comparison with the HTTP API."""
    arguments = {"sentence_a": a, "sentence_b": b, "model": model, "pooling": pooling}
    body = json.dumps({**arguments, "cross_encoder": cross_encoder or "none"}, ensure_ascii=False)
    return (
        f"curl -s {shlex.quote(base_url.rstrip('/') + '/gradio_api/run/compare')} \\\n"
        f"  -H 'Content-Type: application/json' \\\n  -d {shlex.quote(body)}"
    )
