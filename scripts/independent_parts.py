"""A contract of import-linter: the pages of the app, or the tabs of a page, know nothing of each other.

The list of them is made from the folder: what has ``def build(services`` is a part, a page in its ``page.py``.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from importlinter.contracts.independence import IndependenceContract

BUILDS = "\ndef build(services: Services"


def parts_of(package: str) -> list[str]:
    """The modules in ``package`` that are a page or a tab."""
    spec = find_spec(package)
    [folder] = (spec and spec.submodule_search_locations) or []
    pages = [path.parent for path in Path(folder).glob("*/page.py")]
    tabs = [path for path in Path(folder).glob("*.py") if path.name != "page.py"]
    found = [*pages, *(path for path in tabs if BUILDS in path.read_text(encoding="utf-8"))]
    return sorted(f"{package}.{path.stem}" for path in found)


class IndependentParts(IndependenceContract):
    """``package = "sbert_app.pages"`` in place of a list of modules."""

    def _populate_fields(self) -> None:
        options = dict(self.contract_options)
        self.contract_options = {**options, "modules": parts_of(options.pop("package"))}
        del self.contract_options["package"]
        super()._populate_fields()
