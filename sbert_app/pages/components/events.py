"""Options of Gradio events that several pages share."""

from __future__ import annotations

from typing import Any

# An event of the page alone: no endpoint of the public API, no spinner over its outputs.
PRIVATE: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
# The same, answered at once instead of in its turn: for handlers that take milliseconds.
UNQUEUED: dict[str, Any] = {**PRIVATE, "queue": False}
