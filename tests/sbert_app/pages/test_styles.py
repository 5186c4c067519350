"""`assets/`, the style sheets: one scale of type and one of space."""

import re

from training.catalogue import ASSETS

STYLES = [*ASSETS.glob("*.css"), ASSETS / "navigation.html"]
# In pixels, of which 16 are a rem.
TYPE = {13, 14, 16, 18, 24, 32}
SPACE = {0, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64}


def lengths(pattern: str) -> dict[str, set[float]]:
    """The lengths in rem of the declarations that match, in pixels, by style sheet."""
    found = {}
    for file in STYLES:
        values = " ".join(re.findall(pattern, file.read_text(encoding="utf-8")))
        found[file.name] = {
            16 * abs(float(length)) for length in re.findall(r"(-?[\d.]+)rem", values)
        }
    return found


def test_text_has_six_sizes():
    assert {
        name: sizes - TYPE
        for name, sizes in lengths(r"font-size: ([^;}]*)").items()
        if sizes - TYPE
    } == {}


def test_space_has_one_scale():
    spaces = lengths(r"(?:margin|padding|gap)[a-z-]*: ((?!calc)[^;}(]*)[;}]")
    assert {name: sizes - SPACE for name, sizes in spaces.items() if sizes - SPACE} == {}
