"""What is the same for every visitor is made and compressed once, not once for each of them.

- Gradio's scripts and styles. Gradio compresses every answer as it is sent, on the thread on which all requests are
  answered: a class that opens a page together would wait for each other. The names of these files contain a hash of
  their content, so that a copy never becomes stale, in the browser neither.
- Plotly is two thirds of what a page with a chart sends, and a third of what the browser computes to open it. Pages get
  a third of it: the bundle of charts in two dimensions, that of maps the bundle that draws them. The first map in three
  dimensions brings the whole.
- Pages, where there is no login. Gradio copies the description of all components for each visitor, and does not
  compress it.
"""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import Callable, Collection, Hashable
from functools import partial
from weakref import WeakValueDictionary

import brotli  # type: ignore[import-untyped] # Gradio brings it
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sbert_app.services.store.cache import LRUCache
from training.assets import ASSETS

PREFIX = "/assets/"
PLOT = f"{PREFIX}PlotlyPlot-"  # Gradio's module that draws figures, with Plotly inside
WHOLE = b"whole"  # a query that asks for one of its forms, as Gradio packs it; those of FORMS: with a smaller library
FORMS = {b"cartesian-3.4.0": "plotly-cartesian.min.js", b"gl2d-3.2.0": "plotly-gl2d.min.js"}
CHOOSE = b"""const form = location.pathname.endsWith("/explore") ? "gl2d-3.2.0" : "cartesian-3.4.0";
export default (await import(`${import.meta.url}?${form}`)).default;"""
# Behind a smaller library: what was to be drawn last when the whole has come is drawn by it, and all that follows.
GROW = b"""
const react = module.exports.react;
let newest;
module.exports.react = async (...figure) => {
  newest = figure;
  if (figure[1].every((trace) => trace.type !== "scatter3d")) return react(...figure);
  await import(`${import.meta.url.split("?")[0]}?whole`);
  Object.assign(module.exports, window.Plotly);
  return window.Plotly.newPlot(...newest);
};
"""
PLOTLY = re.compile(
    rb"(=\w\(\w\(\(\(\w,(\w)\)=>\{).*(\}\)\)\(\)\),\w=)", re.DOTALL
)  # between: the library, as CommonJS
# The headers that belong to a file; others, such as cookies, to the visitor who asked for it first.
OF_A_FILE = frozenset({b"content-type", b"content-length", b"etag", b"last-modified"})
OF_A_PAGE = ("host", "x-forwarded-host", "x-forwarded-proto", "x-gradio-server")  # which its own address is made of
COMPRESS: dict[str, Callable[[bytes], bytes]] = {  # by encoding, the best first
    "br": partial(brotli.compress, quality=9),
    "gzip": partial(gzip.compress, compresslevel=6),
}
COMPRESSED = ("text/", "application/j", "image/svg")  # types of content: javascript, json, …
MOST_BYTES = 32 * 2**20  # all files of Gradio 6.31 have 18 MB as they are, 6 MB in Brotli

Answer = tuple[Message, bytes]  # its start, and the whole body


class AssetCache:
    """ASGI middleware. ``pages``: the paths of those that are the same for all visitors.

    At most ``most_bytes`` are kept; beyond that, what was not asked for the longest is dropped.
    """

    def __init__(self, app: ASGIApp, pages: Collection[str] = (), most_bytes: int = MOST_BYTES) -> None:
        self.app, self._pages = app, frozenset(pages)
        self._kept: LRUCache[Hashable, Answer] = LRUCache(most_bytes, lambda answer: len(answer[1]))
        self._asking: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        key, encoding = self._key(scope)
        if key is None:
            await self.app(scope, receive, send)
            return
        asking = self._asking.setdefault(key, asyncio.Lock())
        async with asking:  # simultaneous requests for a file share one answer; a slow reader does not hold this lock
            start, body = self._kept.get(key) or await self._ask(key, encoding, scope, receive)
        await send({**start, "headers": [*start["headers"]]})  # layers outside of this one add theirs
        await send({"type": "http.response.body", "body": body})

    def _key(self, scope: Scope) -> tuple[Hashable, str]:
        """What the answer depends on, None if it is not the same for every visitor; and its encoding, "" for none."""
        if scope["type"] != "http" or scope["method"] != "GET" or "range" in (headers := Headers(scope=scope)):
            return None, ""
        accepted, path, asked = headers.get("accept-encoding", ""), scope["path"], scope["query_string"]
        encoding = next((each for each in COMPRESS if each in accepted), "")
        if path.startswith(PREFIX):
            return (path, encoding, asked if asked in (WHOLE, *FORMS) else b""), encoding
        if path not in self._pages or b"deep_link" in asked or b"all_endpoints" in asked:  # what Gradio reads of it
            return None, ""
        return (path, encoding, scope["scheme"], *(headers.get(name) for name in OF_A_PAGE)), encoding

    async def _ask(self, key: Hashable, encoding: str, scope: Scope, receive: Receive) -> Answer:
        """The answer of ``app``, compressed; it is kept if it is a whole file."""
        messages: list[Message] = []

        async def collect(message: Message) -> None:
            messages.append(message)

        plain = [each for each in scope["headers"] if each[0] != b"accept-encoding"]
        await self.app({**scope, "headers": plain}, receive, collect)
        start, *parts = messages
        body = b"".join(part.get("body", b"") for part in parts)
        if start["status"] != 200 or not parts or parts[-1].get("more_body", False):
            return start, body
        form = scope["query_string"]
        is_choice = scope["path"].startswith(PLOT) and form not in (WHOLE, *FORMS)
        if is_choice:
            body = CHOOSE
        elif scope["path"].startswith(PLOT) and form in FORMS:
            body = with_library(body, FORMS[form])
        kept = {**start, "headers": [each for each in start["headers"] if each[0].lower() in OF_A_FILE]}
        headers = MutableHeaders(scope=kept)
        if encoding and headers.get("content-type", "").startswith(COMPRESSED):
            body = await asyncio.to_thread(COMPRESS[encoding], body)
            headers["content-encoding"] = encoding
        headers["content-length"] = str(len(body))
        headers["vary"] = "Accept-Encoding"
        if scope["path"].startswith(PREFIX):
            headers["cache-control"] = "no-cache" if is_choice else "public, max-age=31536000, immutable"
        self._kept.put(key, (kept, body))
        return kept, body


def with_library(module: bytes, name: str) -> bytes:
    """Gradio's module with a smaller library; unchanged where Gradio packs it in another way."""
    library = (ASSETS / name).read_bytes() + GROW
    return PLOTLY.sub(lambda found: found[1] + b"var module=" + found[2] + b";" + library + found[3], module, count=1)
