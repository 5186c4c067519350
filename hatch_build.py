"""Metadata that hatchling asks for: the README as PyPI shows it, and the addresses of the project.

PyPI has no other file of the repository. Relative links therefore become links to the repository at the tag of the
version, if PROJECT_URL has the repository's address, as in the release workflow; otherwise only their text stays.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:)([^)\s]+)\)")


class ProjectMetadata(MetadataHookInterface):
    """Fills the dynamic fields `readme` and `urls` of pyproject.toml."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set both fields, from README.md and the environment."""
        url, tag = os.environ.get("PROJECT_URL", ""), f"v{metadata['version']}"
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": for_pypi(text, url, tag)}
        files = f"{url}/blob/{tag}"
        urls = {
            "Documentation": f"{files}/docs",
            "Changelog": f"{files}/CHANGELOG.md",
            "Issues": f"{url}/issues",
        }
        metadata["urls"] = {"Repository": url, **urls} if url else {}


def for_pypi(text: str, url: str, tag: str) -> str:
    """The README of a release; links lead to the files of a tag, or are text alone."""

    def absolute(link: re.Match[str]) -> str:
        is_image, label, path = link.groups()
        if url:
            return f"{is_image}[{label}]({url}/{'raw' if is_image else 'blob'}/{tag}/{path})"
        return "" if is_image else label

    return RELATIVE_LINK.sub(absolute, text)
