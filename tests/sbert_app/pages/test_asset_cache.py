"""What Gradio has compressed for one visitor is sent to the next as it is. The app behind it is a stand-in."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import gradio
import httpx
import pytest
from paths import ROOT
from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from sbert_app.pages.server.asset_cache import CHOOSE, FORMS, GROW, AssetCache

SCRIPT = "let a = 1;\n" * 1_000


class Behind:
    """Counts what it is asked for."""

    def __init__(self) -> None:
        self.asked = 0
        routes = [Route("/{path:path}", self.answer, methods=["GET", "HEAD", "POST"])]
        self.app = GZipMiddleware(Starlette(routes=routes))

    async def answer(self, request) -> PlainTextResponse | StreamingResponse:
        self.asked += 1
        if "missing" in request.url.path:
            return PlainTextResponse("not here", 404)
        if "range" in request.headers:
            return PlainTextResponse(SCRIPT[:10], 206)
        return StreamingResponse(self._parts(), media_type="text/javascript", headers={"etag": '"1"'})

    @staticmethod
    def _parts() -> Iterator[bytes]:
        yield from (SCRIPT[:500].encode(), SCRIPT[500:].encode())


def with_header(app, name: bytes, value: bytes):
    """A layer around ``app`` that adds to the headers of its answers, in place."""

    async def layer(scope, receive, send):
        async def sending(message):
            if message["type"] == "http.response.start":
                message["headers"].append((name, value))
            await send(message)

        await app(scope, receive, sending)

    return layer


@pytest.fixture
def behind() -> Behind:
    return Behind()


def get(client: TestClient, path: str = "/assets/a-1234.js", encoding: str = "gzip", **headers: str):
    return client.get(path, headers={"accept-encoding": encoding, **headers})


def test_the_second_visitor_gets_the_same_answer_and_nothing_is_compressed_again(behind):
    client = TestClient(AssetCache(behind.app))
    first, second = get(client), get(client)
    assert behind.asked == 1
    assert (first.status_code, first.text, first.headers["content-encoding"]) == (200, SCRIPT, "gzip")
    assert (second.status_code, second.text, second.headers) == (200, SCRIPT, first.headers)


def test_a_visitor_whose_browser_takes_no_compressed_answer_gets_none(behind):
    client = TestClient(AssetCache(behind.app))
    assert "content-encoding" in get(client).headers
    plain = get(client, encoding="identity")
    assert (plain.text, "content-encoding" in plain.headers, behind.asked) == (SCRIPT, False, 2)


def test_however_a_browser_words_what_it_accepts_nothing_is_kept_twice(behind):
    client = TestClient(AssetCache(behind.app))
    for words in ("gzip", "gzip, deflate", "deflate, gzip;q=0.9", *(f"gzip, x-{i}" for i in range(5))):
        assert get(client, encoding=words).text == SCRIPT
    assert behind.asked == 1


def test_what_belongs_to_a_visitor_and_not_to_the_file_is_not_kept(behind):
    cache, answers = AssetCache(with_header(behind.app, b"set-cookie", b"visitor=1")), []
    for _ in range(3):
        answers.append(get(TestClient(with_header(cache, b"x-frame-options", b"DENY"))).headers)
    assert [each.get("set-cookie") for each in answers] == [None] * 3
    assert [each.get_list("x-frame-options") for each in answers] == [["DENY"]] * 3


@pytest.mark.parametrize("path", ["/assets/missing.js", "/config", "/gradio_api/file=/assets/a.js"])
def test_other_answers_are_new_each_time(behind, path):
    client = TestClient(AssetCache(behind.app))
    for _ in range(2):
        get(client, path)
    assert behind.asked == 2


def test_a_part_of_a_file_and_its_head_are_left_to_the_app(behind):
    client = TestClient(AssetCache(behind.app))
    get(client)
    assert get(client, Range="bytes=0-9").status_code == 206
    assert client.head("/assets/a-1234.js").text == ""
    assert behind.asked == 3


def test_who_ask_at_the_same_time_wait_for_one_answer(behind):
    async def ask() -> list[str]:
        transport = httpx.ASGITransport(AssetCache(behind.app))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return [each.text for each in await asyncio.gather(*(client.get("/assets/a.js") for _ in range(30)))]

    assert asyncio.run(ask()) == [SCRIPT] * 30
    assert behind.asked == 1


def test_an_answer_that_breaks_off_is_not_kept(behind):
    """As where the visitor has gone before it was whole."""

    async def breaking_off(scope, receive, send):
        behind.asked += 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"let a", "more_body": True})

    client = TestClient(AssetCache(breaking_off))
    for _ in range(2):
        get(client)
    assert behind.asked == 2


def test_no_more_is_kept_than_there_is_room_for(behind):
    client = TestClient(AssetCache(behind.app, most_bytes=len(SCRIPT) + 100))
    for name in ("a", "a", "b", "b", "a"):
        assert get(client, f"/assets/{name}.js", encoding="identity").text == SCRIPT
    assert behind.asked == 3  # there is room for one: the last


def test_a_browser_keeps_a_file_for_good_as_its_name_changes_with_its_content(behind):
    client = TestClient(AssetCache(behind.app, pages=["/train"]))
    assert get(client).headers["cache-control"] == "public, max-age=31536000, immutable"
    assert "cache-control" not in get(client, "/train").headers
    assert "cache-control" not in get(client, "/assets/missing.js").headers


def test_a_page_is_made_once_for_all_who_reach_it_at_the_same_address(behind):
    client = TestClient(AssetCache(behind.app, pages=["/train"]))
    for asked in ("/train", "/train?run=1", "/train"):
        assert get(client, asked).headers["content-encoding"] == "gzip"
    assert behind.asked == 1
    get(client, "/train", host="lab.example")
    get(client, "/train", **{"x-forwarded-proto": "https"})
    assert behind.asked == 3
    for _ in range(2):
        get(client, "/train?deep_link=1")
        get(client, "/other")
    assert behind.asked == 7


def test_pages_get_the_part_of_plotly_that_they_draw_with():
    (file,) = (Path(gradio.__file__).parent / "templates/frontend/assets").glob("PlotlyPlot-*.js")
    whole = file.read_bytes()
    client = TestClient(AssetCache(Starlette(routes=[Route("/assets/{_}", lambda _: Response(whole, 200))])))
    asked = f"/assets/{file.name}"
    assert get(client, asked).content == CHOOSE
    assert get(client, asked).headers["cache-control"] == "no-cache", "another version may choose for other pages"
    assert get(client, f"{asked}?whole").content == whole
    chosen = re.search(rb'endsWith\("/explore"\) \? "(gl2d-[\d.]+)" : "(cartesian-[\d.]+)"', CHOOSE)
    assert chosen and set(chosen.groups()) == {*FORMS}
    for form in FORMS:
        part = get(client, f"{asked}?{form.decode()}").content
        name, version = form.split(b"-")
        assert b"plotly.js (%s - minified) v%s" % (name, version) in part
        assert GROW in part
        assert len(part) < len(whole) / 2.8
        assert part[-600:] == whole[-600:], "what draws is Gradio's"


def test_no_other_page_draws_what_its_part_of_plotly_lacks():
    sources = [*(ROOT / "sbert_app").rglob("*.py")]
    found = {file.name for file in sources if re.search("scattergl|scatter3d", file.read_text(), re.IGNORECASE)}
    assert found - {"asset_cache.py"} == {"map.py"}, (
        "others belong on the page of maps, or its pages in asset_cache.CHOOSE"
    )
