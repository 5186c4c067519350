"""The routes of Gradio that the pages and gradio_client need; every other one is answered 404.

Gradio has more of them than any page asks for: recordings, deep links that carry what a visitor has sent into the page
of another, icons of any size. None of the app's limits looks at those, and a new version may bring further ones, so
this is a list of what is open.
"""

import re
from urllib.parse import parse_qsl, unquote, urlencode

from starlette.types import Scope

# Below the address of a page.
READ = re.compile(
    r"""
    /(config | theme\.css | favicon\.ico | robots\.txt | manifest\.json | pwa_icon | pwa_icon/(192|512))?
    | /(assets|static|svelte)/.+
    | /gradio_api/(info | app_id | queue/data | queue/status | upload_progress | heartbeat/[^/]+)
    | /gradio_api/file=.+
    """,
    re.VERBOSE | re.DOTALL,
)
WRITTEN = re.compile(
    r"/gradio_api/(queue/join | cancel | upload | heartbeat/[^/]+ | (run|api)/[^/]+)",
    re.VERBOSE,
)
OPEN = {"GET": READ, "HEAD": READ, "POST": WRITTEN}


def is_open(method: str, path: str) -> bool:
    """Whether a route of Gradio is answered; ``path`` is below the address of a page, "/" for the page itself."""
    pattern = OPEN.get(method)
    return pattern is not None and pattern.fullmatch(path.rstrip("/") or "/") is not None


def without_deep_link(scope: Scope) -> Scope:
    """The request without the parameter with which Gradio shows what another visitor has sent."""
    query = scope["query_string"].decode("latin-1")
    if "deep_link" not in unquote(query):
        return scope
    parameters = [item for item in parse_qsl(query, keep_blank_values=True) if item[0] != "deep_link"]
    return {**scope, "query_string": urlencode(parameters).encode()}
