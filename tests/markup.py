"""A text that would be a script, and what a page has to make of it."""

HOSTILE = "<script>alert(1)</script>"


def assert_escaped(html: str) -> None:
    assert "<script" not in html
    assert "&lt;script&gt;" in html
