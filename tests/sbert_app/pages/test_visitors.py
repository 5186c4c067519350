"""Visitors: whom limits are counted for (of a tool call the agent, not the app, which calls itself), what they see."""

import http.client
import importlib
import json
import pkgutil
import time
from collections.abc import Iterator
from types import SimpleNamespace

import anyio
import gradio as gr
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient

import sbert_app
import training
from sbert_app.pages.api import endpoint as endpoints
from sbert_app.pages.api.endpoint import endpoint
from sbert_app.pages.api.endpoints import shown
from sbert_app.pages.components.messages import error_message, error_of, gradio_errors
from sbert_app.pages.server.address import HEADER, MCP, McpCalls, agent_address, signed, visitor_of
from sbert_app.pages.train.runs import status
from sbert_app.services.container import Services
from sbert_app.services.quota import Quota
from sbert_app.settings import Settings
from training.errors import NotFoundError, UserFacingError, summary_of, without_folders
from training.trainer.config import RunConfig


async def headers(request):
    return JSONResponse({"agent": agent_address(request), "visitor": visitor_of(request)})


BEHIND = Starlette(routes=[Route("/{path:path}", headers, methods=["GET", "POST"])])


def test_a_tool_call_names_its_agent_and_nothing_else_can():
    client = TestClient(McpCalls(BEHIND), client=("10.0.0.7", 1))
    assert client.post(f"{MCP}/").json() == {"agent": "10.0.0.7", "visitor": "10.0.0.7"}
    for forged in ("10.0.0.8", "secret 10.0.0.8", " 10.0.0.8", ""):
        for path in (f"{MCP}/", "/gradio_api/run/compare"):
            assert client.post(path, headers={HEADER: forged}).json()["visitor"] == "10.0.0.7"
    for headers, visitor in (({HEADER: signed("10.0.0.9")}, "10.0.0.9"), ({}, "127.0.0.1")):
        assert visitor_of(SimpleNamespace(headers=headers, client=SimpleNamespace(host="127.0.0.1"))) == visitor


def test_so_many_connections_to_the_mcp_server_are_open_from_one_address():
    app, held = McpCalls(BEHIND, most=2), []

    async def hold(address: str) -> int:
        """The status of a request whose answer is not taken until all have been asked."""
        statuses = []

        async def send(message):
            statuses.append(message.get("status"))
            if message["type"] == "http.response.start" and message["status"] == 200:
                held.append(address)
                with anyio.move_on_after(0.2):
                    await anyio.sleep_forever()

        scope = {"type": "http", "method": "POST", "path": f"{MCP}/", "headers": [], "client": (address, 1)}
        scope |= {"query_string": b"", "root_path": "", "http_version": "1.1", "server": ("testserver", 80)}

        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        await app(scope, receive, send)
        return statuses[0]

    async def ask(addresses):
        found = []

        async def one(address):
            found.append((address, await hold(address)))

        async with anyio.create_task_group() as tasks:
            for address in addresses:
                tasks.start_soon(one, address)
        return sorted(found)

    found = anyio.run(ask, ["10.0.0.1"] * 3 + ["10.0.0.2"])
    assert found == [("10.0.0.1", 200), ("10.0.0.1", 200), ("10.0.0.1", 429), ("10.0.0.2", 200)]
    assert anyio.run(ask, ["10.0.0.1"]) == [("10.0.0.1", 200)], "what was closed is not counted"


@pytest.fixture(scope="module")
def tools() -> Iterator[int]:
    """The port of an MCP server with a tool that says for whom its call is counted."""

    def who(request: gr.Request = None) -> str:
        """The visitor."""
        return visitor_of(request)

    with gr.Blocks(analytics_enabled=False) as app:
        gr.api(who, api_name="who")
    options = {"app_kwargs": {"middleware": [Middleware(McpCalls)]}, "mcp_server": True}
    app.launch(**options, quiet=True, ssr_mode=False, prevent_thread_lock=True, server_name="127.0.0.1")
    yield app.server_port
    app.close()


def test_the_app_s_request_to_itself_is_counted_for_the_agent(tools):
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "who", "arguments": {}}}
    said = {}
    for address in ("127.0.0.2", "127.0.0.3"):
        connection = http.client.HTTPConnection("127.0.0.1", tools, timeout=60, source_address=(address, 0))
        accepted = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        connection.request("POST", f"{MCP}/", json.dumps(body), accepted)
        said[address] = connection.getresponse().read().decode()
        connection.close()
    for address, answer in said.items():
        assert address in answer, said


def test_an_agent_has_so_many_calls_at_once_of_all_tools_together(monkeypatch):
    monkeypatch.setattr(endpoints, "_tool_calls", Quota(1))
    asked = SimpleNamespace(headers={HEADER: signed("10.0.0.7")}, client=SimpleNamespace(host="127.0.0.1"))

    @endpoint()
    def inner() -> str:
        return "done"

    @endpoint()
    def outer() -> str:
        return inner(request=asked)

    assert inner(request=asked) == "done"
    with pytest.raises(gr.Error, match="1 such requests from your address"):
        outer(request=asked)
    assert outer(request=None) == "done", "who is no agent has the limits of the endpoint"


def carriers() -> list[type[UserFacingError]]:
    """Every class of a user's error in the product."""
    for root in (training, sbert_app):
        for module in pkgutil.walk_packages(root.__path__, f"{root.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    found, classes = [UserFacingError], [UserFacingError]
    while classes:
        subclasses = [
            each for each in classes.pop().__subclasses__() if each.__module__.startswith(("training", "sbert"))
        ]
        found += subclasses
        classes += subclasses
    return list(dict.fromkeys(found))


SERVER = "/srv/the lab/home of sbert"
SAID = f"{SERVER}/uploads/pairs.csv cannot be read ([Errno 13] Permission denied: '{SERVER}/uploads/pairs.csv')"


def said_to_a_visitor(error: UserFacingError) -> Iterator[str]:
    """Every form in which pages, endpoints and /v1 show an error."""

    def fail() -> None:
        raise error

    yield from (error_message(error), error_of(fail), summary_of(error), error.public)
    with pytest.raises(gr.Error) as shown, gradio_errors():
        fail()
    yield shown.value.message


@pytest.mark.parametrize("kind", carriers(), ids=lambda kind: kind.__name__)
def test_a_visitor_sees_the_name_of_a_file_and_never_its_folder(kind):
    error = kind(SAID, SAID, (SAID,)) if issubclass(kind, NotFoundError) else kind(SAID)
    assert SERVER in str(error), "whoever runs the command line sees where it is"
    for text in said_to_a_visitor(error):
        assert "pairs.csv cannot be read" in text.lower() and "permission denied" in text.lower()
        assert "lab" not in text and "uploads" not in text and "/srv" not in text


@pytest.mark.parametrize(
    ("message", "public"),
    [
        ("there is no file ~/x/y.csv, and no /z.csv", "there is no file y.csv, and no z.csv"),
        (r"C:\Users\a b\c.csv is empty", "c.csv is empty"),
        ("“/data/日本/ü.csv” is not/neither", "“ü.csv” is not/neither"),
        ("https://huggingface.co/org/name: 1/2 of org/name; see run:../x", None),
        ("score / label in and/or", None),
    ],
)
def test_what_is_no_path_stays(message, public):
    assert without_folders(message) == (public or message)


def test_a_run_that_failed_says_why_without_the_folder(tmp_path):
    jobs = Services.start(Settings(home=tmp_path)).jobs
    run = jobs.store.create(RunConfig("regression"))
    with jobs.store.lease(run.id) as work:
        work.state, work.reason = "failed", SAID
    shown = status(jobs.store.get(run.id), 0)
    assert "Pairs.csv cannot be read" in shown and "uploads" not in shown


def test_a_run_names_its_files_and_models_without_their_folders(tmp_path):
    store = Services.start(Settings(home=tmp_path)).jobs.store
    data = f"{SERVER}/uploads/a.csv?encoding=koi8-r+stsb:train+{SERVER}/b.csv"
    run = store.create(RunConfig("regression", train_data=data, eval_data=f"{SERVER}/c.csv", base=f"{SERVER}/my base"))
    answer = shown(run, events=[{"kind": "info", "files": [data]}])
    assert SERVER not in json.dumps(answer)
    assert answer["config"]["train_data"] == answer["events"][0]["files"][0] == "a.csv?encoding=koi8-r+stsb:train+b.csv"
    assert (answer["config"]["eval_data"], answer["config"]["base"]) == ("c.csv", "my base")
    hub = store.create(RunConfig("regression", train_data="hf:org/name:config:train", base="org/model"))
    assert shown(hub)["config"] == hub.config.to_dict(), "names that are no paths stay"


def test_what_a_visitor_has_typed_is_quoted_as_it_was(tmp_path):
    services = Services.start(Settings(home=tmp_path))
    for refused in (services.access.check_model, services.access.check_data, services.jobs.store.get):
        with pytest.raises(UserFacingError) as error:
            refused("/etc/passwd")
        assert "'/etc/passwd'" in error.value.public


@pytest.mark.parametrize("part", ["/(", "~/( ", "/a b(", "/a/", "C:\\(", "/" + "a " * 50])
def test_a_thousand_slashes_are_read_in_no_time(part):
    text = (part * 20_000)[:20_000]
    started = time.process_time()
    without_folders(text)
    assert time.process_time() - started < 1
