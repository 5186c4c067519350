"""Wherever a page takes a file: a text that is not UTF-8 is shown as it was read, and its encoding can be picked."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PAIRS = "sentence1,sentence2,score\n" + "".join(
    f"Кот номер {i} спит.,Кошка {i} дремлет.,{i % 6}\n" for i in range(12)
)
LABELLED = "sentence,label\n" + "".join(
    f"Кот номер {i} спит.,{'да' if i % 2 else 'нет'}\n" for i in range(24)
)


def upload(
    page: Page, place: str, text: str, encoding: str = "koi8-r", name: str = "старый.csv"
) -> None:
    page.locator(f"{place} input[type=file]").set_input_files(
        {"name": name, "mimeType": "text/csv", "buffer": text.encode(encoding)}
    )


def pick(page: Page, place: str, encoding: str) -> None:
    page.locator(f"{place} input").click()
    page.locator(place).get_by_role("option", name=re.compile(re.escape(encoding))).click()


def check_picker(page: Page, place: str, file: str, text: str = PAIRS) -> None:
    """A plain file has no picker; one in KOI8-R has one, and shows other words when another encoding is picked."""
    upload(page, file, text, "utf-8", "plain.csv")
    expect(page.locator(file)).to_contain_text("plain")
    expect(page.locator(place)).to_be_hidden()
    page.locator(file).get_by_label("Clear").click()
    expect(page.locator(file)).not_to_contain_text("plain")
    upload(page, file, text)
    expect(page.locator(place)).to_be_visible()
    read = page.locator(place.replace("-encoding", "-panel"))
    expect(read).to_contain_text("The text is not UTF-8; it is read as")
    pick(page, place, "Windows-1251")
    expect(read).not_to_contain_text("Кот номер")
    pick(page, place, "KOI8-R")
    expect(read).to_contain_text("Кот номер 0 спит.")


def test_every_tab_of_evaluate_has_a_picker_of_encodings(open_page: Callable[..., Page]):
    page = open_page("/evaluate")
    page.click("#measure-others > button")
    check_picker(page, "#evaluate-encoding", "#evaluate-files")
    page.get_by_role("tab", name="More").click()
    page.get_by_role("tab", name="Transfer").click()
    check_picker(page, "#transfer-encoding", "#transfer-file", LABELLED)
    page.click("#score-transfer")
    expect(page.locator("#transfer-status table")).to_contain_text("TF-IDF")
    expect(page.locator("#transfer-status")).to_contain_text("да")
    tabs = {"Triplets and labels": "labels", "Folds": "folds", "Cost": "cost"}
    for tab, name in {**tabs, "Threshold": "threshold", "Errors": "errors"}.items():
        page.get_by_role("tab", name=tab).click()
        upload(page, f"#{name}-file", PAIRS)
        expect(page.locator(f"#{name}-encoding")).to_be_visible()
        expect(page.locator(f"#{name}-panel")).to_contain_text("is not UTF-8")


def test_train_keeps_the_encoding_in_the_settings_of_the_run(open_page: Callable[..., Page]):
    page = open_page("/train")
    expect(page.locator("#plan")).to_contain_text("scored pairs")
    expect(page.locator("#train-encoding")).to_be_hidden()
    with page.expect_file_chooser() as chooser:
        page.locator("#upload-train").click()
    file = {"name": "старый.csv", "mimeType": "text/csv", "buffer": PAIRS.encode("koi8-r")}
    chooser.value.set_files(file)
    expect(page.locator("#train-encoding")).to_be_visible()
    expect(page.locator("#plan")).to_contain_text("12 scored pairs")
    pick(page, "#train-encoding", "KOI8-R")
    expect(page.locator("#train-panel")).to_contain_text("Кот номер 0 спит.")
    expect(page.locator("#plan")).to_contain_text("12 scored pairs")
    expect(page.locator("#train-data input")).to_have_value(re.compile(r"\(uploaded\)"))
    page.locator("#train-data input").click()
    page.locator("#train-data").get_by_role("option", name=re.compile("STSb train")).click()
    expect(page.locator("#train-encoding")).to_be_hidden()
