"""The routes of Gradio that the pages and gradio_client need; all others are answered 404.

Gradio has more routes than the pages use: recordings, deep links that show what another visitor has
sent, icons of any size. The app's limits do not cover those routes, and a new version may add others.
So the routes that are open are listed here.
"""

import re
from urllib.parse import parse_qsl, unquote, urlencode

from starlette.types import Scope

from sbert_app.server.endpoints import ENDPOINTS

# Paths are relative to the address of a page.
READ = re.compile(
    r"""
    /(config | theme\.css | favicon\.ico | robots\.txt | manifest\.json | pwa_icon | pwa_icon/(192|512))?
    | /(assets|static|svelte)/.+
    | /gradio_api/(info | app_id | queue/data | queue/status | upload_progress | heartbeat/[^/]+)
    | /gradio_api/file=.+
    """,
    re.VERBOSE | re.DOTALL,
)
# Pages call their events by number, as "predict".
WRITTEN = re.compile(
    rf"""
    /gradio_api/(queue/join | cancel | reset | upload | heartbeat/[^/]+)
    | /gradio_api/(run|api)/(predict|{"|".join(ENDPOINTS)})
    """,
    re.VERBOSE,
)
OPEN = {"GET": READ, "HEAD": READ, "POST": WRITTEN}


def is_open(method: str, path: str) -> bool:
    """Whether a route of Gradio is open; ``path`` is relative to the address of a page, "/" for the page itself."""
    pattern = OPEN.get(method)
    return pattern is not None and pattern.fullmatch(path.rstrip("/") or "/") is not None


def without_deep_link(scope: Scope) -> Scope:
    """Returns the request without the parameter that makes Gradio show what another visitor has sent."""
    query = scope["query_string"].decode("latin-1")
    if "deep_link" not in unquote(query):
        return scope
    parameters = parse_qsl(query, keep_blank_values=True)
    parameters = [item for item in parameters if item[0] != "deep_link"]
    return {**scope, "query_string": urlencode(parameters).encode()}
