"""How the volume of code is measured: in tokens, whatever the lines, without what is written for people."""

from pathlib import Path

from scripts.volume import Volume, rows, volume_of


def test_comments_docstrings_and_blank_lines_are_not_counted():
    bare = "def f(x):\n    return x + 1\n"
    explained = (
        '"""A module."""\n\n# why\ndef f(x):\n    """One more.\n\n    At length."""\n\n    return x + 1  # a sum\n'
    )
    assert volume_of(bare) == volume_of(explained) == Volume(tokens=10, lines=2)


def test_the_same_code_in_more_lines_has_as_many_tokens_and_is_less_dense():
    packed, unpacked = volume_of("a, b = f(1, 2)"), volume_of("a, b = f(\n    1,\n    2\n)")
    assert packed.tokens == unpacked.tokens
    assert packed.density > unpacked.density


def test_a_string_that_is_no_docstring_counts():
    assert volume_of('x = """one\ntwo"""\n') == Volume(tokens=3, lines=2)


def test_folders_their_parts_and_the_sum_have_a_row_each(tmp_path: Path):
    (tmp_path / "core/data").mkdir(parents=True)
    (tmp_path / "core/model.py").write_text("x = 1\n")
    (tmp_path / "core/data/load.py").write_text("y = 2\nz = 3\n")
    assert dict(rows(tmp_path, ("core",))) == {"core": Volume(9, 3), "  core/data": Volume(6, 2), "all": Volume(9, 3)}
