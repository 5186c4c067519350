"""How the volume of code is measured: in tokens, whatever the lines, without what is written for people."""

import ast
from pathlib import Path

from scripts.volume import Volume, folders_in, forms_of, row, total, volume_of


def test_comments_docstrings_and_blank_lines_are_not_counted():
    bare = "def f(x):\n    return x + 1\n"
    explained = (
        '"""A module."""\n\n# why\ndef f(x):\n    """One more.\n\n    At length."""\n\n'
        "    return x + 1  # a sum\n"
    )
    assert volume_of(bare) == volume_of(explained) == Volume(tokens=10, lines=2)


def test_the_same_code_in_more_lines_has_as_many_tokens_and_is_less_dense():
    packed = volume_of("a, b = f(1, 2)")
    unpacked = volume_of("a, b = f(\n    1,\n    2\n)")
    assert packed.tokens == unpacked.tokens
    assert packed.density > unpacked.density


def test_a_string_that_is_no_docstring_counts():
    assert volume_of('x = """one\ntwo"""\n') == Volume(tokens=3, lines=2)


def test_folders_their_parts_and_the_sum_have_a_row_each(tmp_path: Path):
    (tmp_path / "core/data").mkdir(parents=True)
    (tmp_path / "core/model.py").write_text("x = 1\n")
    (tmp_path / "core/data/load.py").write_text("y = 2\nz = 3\n")
    volumes = {name: total(files) for name, files in folders_in(tmp_path, ("core",))}
    assert volumes == {"core": Volume(9, 3), "  core/data": Volume(6, 2), "all": Volume(9, 3)}


PACKED = """
def f(x):
    def g():
        import json
        return json
    a, b = 1, {y for y in x}
    c = (1 if a else 2 if b else 3) + len([*(y for y in x)])
    first, second = g()
    return a if b else c
"""


def test_comprehensions_ternaries_and_short_functions_are_counted():
    assert forms_of(ast.parse(PACKED)) == {
        "comprehensions": 2,
        "ternaries": 3,
        "nested ternaries": 1,
        "a, b = x, y": 1,
        "local imports": 1,
        "functions": 2,
        "short functions": 1,
    }


def test_a_row_has_each_form_per_thousand_lines(tmp_path: Path):
    file = tmp_path / "packed.py"
    file.write_text(PACKED)
    tokens = volume_of(PACKED).tokens
    assert row("packed", [file]).split() == [
        *("packed", str(tokens), "8", f"{tokens / 8:.1f}"),
        *("250", "375", "(1)", "125.0", "125.0", "50%"),
    ]
