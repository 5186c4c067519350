"""The password leaves the command line, and nothing else does."""

import pytest

from sbert_app.__main__ import without_option


@pytest.mark.parametrize(
    ("arguments", "kept", "value"),
    [
        (["python", "app.py", "--port", "1"], ["python", "app.py", "--port", "1"], None),
        (["python", "app.py", "--auth", "a:b c", "--mcp"], ["python", "app.py", "--mcp"], "a:b c"),
        (["python", "-m", "sbert_app", "serve", "--auth=a:b=c"], ["python", "-m", "sbert_app", "serve"], "a:b=c"),
        (["x", "--auth-file", "f"], ["x", "--auth-file", "f"], None),
        (["x", "--auth"], ["x", "--auth"], None),
        (["x", "--auth", "a:1", "--auth", "a:2"], ["x"], "a:2"),
    ],
)
def test_the_option_is_taken_out_with_its_value(arguments, kept, value):
    assert without_option(arguments, "--auth") == (kept, value)
