"""How the turns of phrase of docstrings and comments are counted."""

from pathlib import Path

from scripts.check_prose import prose_of, turns_of_phrase

CODE = '''
"""Vectors, whose length is no
matter. Those of a file come first."""

# Texts by which others are found, meanwhile.
x = "There is no such thing"


def f():
    """So many that the rows are no longer sorted; that of which there are no rows."""
'''


def test_prose_is_docstrings_and_comments_without_strings():
    prose = prose_of(CODE)
    assert "length is no matter" in prose
    assert "Texts by which" in prose
    assert "such thing" not in prose


def test_turns_of_phrase_are_counted_per_ten_thousand_words(tmp_path: Path):
    file = tmp_path / "module.py"
    file.write_text(CODE)
    words = len(prose_of(CODE).split())
    once = f"{10_000 / words:.1f}"
    twice = f"{20_000 / words:.1f}"
    assert turns_of_phrase([file]) == (
        f"per 10,000 words of prose: is/are no {twice}, those/that of {twice}, so many/long {once}, "
        f"of/by/in which {twice}, meanwhile {once}"
    )


def test_files_without_prose_have_no_turns(tmp_path: Path):
    file = tmp_path / "module.py"
    file.write_text("x = 1\n")
    assert "is/are no 0.0" in turns_of_phrase([file])
