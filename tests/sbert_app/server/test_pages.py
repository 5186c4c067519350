"""Each page is an app of its own, which is built when it is first asked for."""

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import gradio as gr
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from sbert_app.pages import PAGES
from sbert_app.server import pages
from sbert_app.server.app import create_app
from sbert_app.services.background.tasks import Task
from sbert_app.services.container import Services
from sbert_app.settings import Settings

BROWSER = {"Accept": "text/html,*/*"}


@pytest.fixture
def built() -> Iterator[list[str]]:
    """The pages that were built, in order."""
    names: list[str] = []

    def build_page(name: str, services: Services) -> gr.Blocks:
        names.append(name)
        return build(name, services)

    build = pages.build_page
    with patch.object(pages, "build_page", build_page):
        yield names


@pytest.fixture
def client(built: list[str], tmp_path: Path) -> Iterator[TestClient]:
    services = Services.start(Settings(home=tmp_path))
    with TestClient(
        create_app(services), base_url="http://localhost", follow_redirects=False
    ) as client:
        yield client


def test_a_page_is_built_when_it_is_first_asked_for(client: TestClient, built: list[str]):
    assert built == ["compare"]
    for _ in range(2):
        page = client.get("/learn?lesson=2")
        assert page.status_code == 200
        assert '"root":"http://localhost/learn"' in page.text
        assert built == ["compare", "learn"]
    assert client.head("/learn").status_code == 200


def test_every_page_is_found_behind_a_proxy_that_cuts_the_root_path(tmp_path: Path):
    services = Services.start(Settings(home=tmp_path, root_path="/lab"))
    with TestClient(
        create_app(services), base_url="http://localhost", follow_redirects=False
    ) as client:
        for path, root in (("/", "http://localhost/lab"), ("/bulk", "http://localhost/lab/bulk")):
            page = client.get(path)
            assert page.status_code == 200
            assert f'"root":"{root}"' in page.text
        assert client.get("/bulk/gradio_api/info").status_code == 200


def test_all_pages_can_be_built_beside_the_running_server(client: TestClient, built: list[str]):
    client.app.state.pages.build_all()  # type: ignore[attr-defined]
    assert built == list(PAGES)
    assert "Opening the page" not in client.get("/bulk", headers=BROWSER).text


def test_a_browser_sees_the_frame_of_a_page_until_it_is_built(client: TestClient, built: list[str]):
    page = client.get("/label", headers=BROWSER)
    assert page.status_code == 200
    assert "Opening the page" in page.text
    assert '<a href="/label" aria-current="page">Label</a>' in page.text
    assert built == ["compare"]
    assert client.head("/label").status_code == 200
    assert "Opening the page" not in client.get("/label", headers=BROWSER).text


def test_a_page_that_cannot_be_built_is_an_error_of_that_page_alone(client: TestClient):
    with patch.object(pages, "build_page", side_effect=RuntimeError("no such font")):
        with pytest.raises(RuntimeError, match="no such font"):
            client.get("/learn")
        assert client.get("/").status_code == 200
    assert client.get("/learn").status_code == 200


def test_pages_share_the_files_of_gradio(client: TestClient):
    for path in ("assets/index.js", "static/img/logo.svg", "theme.css?v=1"):
        answer = client.get(f"/bulk/{path}")
        assert answer.status_code == 308
        assert answer.headers["location"] == f"/{path}"
        assert "immutable" in answer.headers["cache-control"]


def test_the_name_of_the_front_page_and_a_path_with_a_slash_lead_to_the_address(client: TestClient):
    assert client.get("/compare?a=One.&b=Two.").headers["location"] == "/?a=One.&b=Two."
    assert client.get("/learn/?lesson=4").headers["location"] == "/learn?lesson=4"


def test_an_unknown_address_has_the_navigation(client: TestClient, built: list[str]):
    answer = client.get("/nowhere", headers=BROWSER)
    assert answer.status_code == 404
    assert "There is no such page" in answer.text
    assert '<a href="/bulk">Bulk</a>' in answer.text
    assert "no such page" not in client.get("/nowhere").text
    assert built == ["compare"]


def test_a_component_that_a_task_makes_for_its_answer_is_on_no_page():
    """A page may be built while a task of another page runs."""

    def make() -> gr.Textbox:
        task = Task("test", lambda _: gr.Textbox("made by the task"))
        task.start()
        task.join()
        return task.result().value

    with gr.Blocks() as page:
        gr.Button().click(make, None, gr.Textbox(), api_name="make")
    app = gr.mount_gradio_app(FastAPI(), page, "/")
    with TestClient(app) as client, gr.Blocks() as other:
        [answer] = client.post("/gradio_api/run/make", json={"data": []}).json()["data"]
    assert answer["value"] == "made by the task"
    assert other.blocks == {}
