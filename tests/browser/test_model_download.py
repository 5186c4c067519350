"""A model that comes from the Hub: the page shows how far its download is, and Stop ends it."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import HubServer
from playwright.sync_api import Browser, Page, expect
from running_app import running_app
from tiny_models import make_model

pytestmark = [pytest.mark.browser, pytest.mark.slow]  # an app of its own, with a Hub of its own

DOWNLOADING = re.compile(r"Downloading org/large, 102 MB · [1-9]\d?%")


@pytest.fixture(scope="module")
def address(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of an app whose Hub sends half of the weights of a model, and then no more."""
    folder = tmp_path_factory.mktemp("download")
    (own := folder / "own").mkdir()
    large = make_model(
        folder / "repo", hidden_size=512, intermediate_size=2048, num_hidden_layers=8
    )
    with HubServer(models={"org/large": large}) as hub:
        hub.stalls.add("model.safetensors")
        with running_app(home, own, **hub.environment(folder / "hf")) as app:
            yield f"http://127.0.0.1:{app.port}"


@pytest.fixture
def page(address: str, chromium: Browser) -> Iterator[Page]:
    """A page opened by a link, whose model is being downloaded after a press of a button."""
    page = chromium.new_context().new_page()
    page.goto(f"{address}/?a=A+dog.&b=A+cat.&model=org/large&cross=none")
    expect(page.locator("#answer")).to_contain_text("Not on this machine yet: org/large (102 MB)")
    page.locator("#start-loading").click()
    expect(page.locator("#answer")).to_contain_text(DOWNLOADING)
    yield page
    page.context.close()


def test_a_download_has_a_bar_and_the_app_works_beside_it(page: Page, address: str):
    expect(page.locator("#answer").get_by_role("progressbar")).to_be_visible()
    expect(page.locator("#stop-loading")).to_be_visible()
    page.goto(f"{address}/?a=A+dog.&b=A+cat.&cross=none")
    expect(page.locator("#answer .card").first).to_contain_text("cosine", ignore_case=True)


def test_a_stopped_download_stays_so_until_something_is_changed(page: Page):
    page.locator("#stop-loading").click()
    expect(page.locator("#answer")).to_contain_text("choose another model")
    page.wait_for_timeout(3_000)  # a waiting event would begin anew
    expect(page.locator("#answer")).to_contain_text("choose another model")
    expect(page.locator("#stop-loading")).to_be_hidden()
    sentence = page.get_by_label("First sentence")
    for download_again in (lambda: sentence.press("Enter"), lambda: sentence.fill("A dog barks.")):
        download_again()
        expect(page.locator("#answer")).to_contain_text("ownloading")
        page.locator("#stop-loading").click()
        expect(page.locator("#answer")).to_contain_text("choose another model")
    model = page.get_by_label("Model", exact=True)
    model.fill("all-MiniLM-L6-v2")
    model.press("Enter")
    expect(page.locator("#answer .card").first).to_contain_text("cosine", ignore_case=True)


@pytest.mark.parametrize(
    ("link", "place", "button"),
    [
        ("bulk?bulk-model=org/large", "#status", "#score"),
        ("explore?corpus-model=org/large", "#corpus-status", "#corpus-open"),
        ("learn?class=A&model=org/large", ".lesson-page:visible .demo", "#start-download"),
    ],
)
def test_a_link_to_another_page_asks_first(
    address: str, chromium: Browser, link: str, place: str, button: str
):
    page = chromium.new_context().new_page()
    page.goto(f"{address}/{link}")
    expect(page.locator(place)).to_contain_text("Not on this machine yet: org/large (102 MB)")
    page.locator(button).click()
    expect(page.locator(place)).not_to_contain_text("Not on this machine yet")
    page.context.close()
