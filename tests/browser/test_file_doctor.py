"""The fold below an upload that lists its faults, and the file without them; how scores are read, said beside them."""

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.browser

FAULTY = "Nr;sentence1;sentence2;score\n" + "".join(
    f"{number};{first};{second};{score}\n"
    for number, (first, second, score) in enumerate(
        [
            ("Öl brennt.", "Feuer brennt.", "4,5"),
            ("A man plays.", "A man is playing.", "6,5"),
            ("A man plays.", "A man is playing.", "1,5"),
            ("A dog runs.", "A dog runs.", "7"),
            ("Rain falls.", "Stocks fell.", "1"),
            ("The sun shines.", "It is sunny.", "6"),
        ]
    )
)


@pytest.fixture
def faulty(tmp_path):
    path = tmp_path / "faulty.csv"
    path.write_text(FAULTY, encoding="utf-8-sig")
    return path


@pytest.fixture
def page(open_page, faulty):
    """The tab Threshold with the file."""
    page = open_page("/evaluate")
    expect(page.locator("#scores table").first).to_be_visible()
    page.get_by_role("tab", name="Threshold").click()
    expect(page.locator("#threshold-curve .js-plotly-plot")).to_be_visible()
    page.set_input_files("#threshold-file input[type=file]", faulty)
    expect(page.locator("#threshold-panel select[data-column=score]")).to_have_value("target")
    return page


def test_the_faults_of_a_file_are_listed_and_one_click_leaves_them_out(page, tmp_path):
    page.click("#threshold-doctor > button")
    findings = page.locator("#threshold-findings")
    expect(findings).to_contain_text("2 rows: equal to others that have another score")
    expect(findings).to_contain_text("1 row: a sentence and itself")
    findings.locator("summary").first.click()
    expect(findings).to_contain_text("Row 2: A man plays. | A man is playing.")
    with page.expect_download() as download:
        page.click("#threshold-clean")
    clean = tmp_path / "clean.csv"
    lines = FAULTY.splitlines()
    download.value.save_as(clean)
    assert clean.read_text(encoding="utf-8").splitlines() == [
        f"\ufeff{lines[0]}",
        *(lines[row] for row in (1, 5, 6)),
    ]


def test_the_scale_is_said_beside_the_column(page):
    field = page.locator("#threshold-columns-read-as").locator("input, textarea")
    field.fill("often")
    page.click("#find-threshold")
    expect(page.locator("#threshold-status")).to_contain_text("'often' is no scale")
    field.fill("1-7")
    page.click("#threshold-doctor > button")
    expect(page.locator("#threshold-findings")).to_contain_text(
        "scores from 1 to 7 stretched to 0–5"
    )
