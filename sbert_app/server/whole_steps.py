"""A workaround for Gradio 6.31: the steps of a generator reach a busy page whole.

Gradio sends what a generator yields as edits of what it yielded before, and its page applies them to objects that may
still wait to be shown. Two steps that arrive while the page is busy, as on a slow telephone, lose what the first has
changed besides values: a button stays disabled, a figure is never made visible. The browser test of Bulk,
``test_what_arrives_while_the_page_is_busy_is_shown``, fails without this class; once it passes, the class can go.
"""

from __future__ import annotations

from typing import Any

import gradio as gr


class WholeSteps(gr.Blocks):
    """`gr.Blocks` whose generators send each step as a replacement of the one before."""

    def handle_streaming_diffs(
        self,
        block_fn: Any,
        data: list[Any],
        session_hash: str | None,
        run: str | None,
        final: bool,
        simple_format: bool = False,
    ) -> list[Any]:
        """The outputs of a step as they are sent: the first and the last whole anyway, the others as a replacement."""
        is_first = session_hash is None or run is None or run not in self.pending_diff_streams[session_hash]
        step = super().handle_streaming_diffs(block_fn, data, session_hash, run, final, simple_format=True)
        return step if is_first or final or simple_format else [[["replace", [], value]] for value in step]
