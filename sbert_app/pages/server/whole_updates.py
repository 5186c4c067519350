"""Answers in steps that each replace the one before, instead of Gradio's differences between them.

Gradio sends what a generator yields as edits of what it yielded before, and its page applies them to objects that may
still wait to be shown. So two steps that arrive while the page is busy, as on a slow telephone, lose what the first of
them has changed besides values: a button stays disabled, a figure is never made visible.
"""

from __future__ import annotations

from typing import Any

import gradio as gr
from gradio.blocks import BlockFunction


class WholeUpdates(gr.Blocks):
    """`gr.Blocks` whose generators send every step whole."""

    def handle_streaming_diffs(
        self,
        block_fn: BlockFunction,
        data: list[Any],
        session_hash: str | None,
        run: str | None,
        final: bool,
        simple_format: bool = False,
    ) -> list[Any]:
        """The outputs of a step as they are sent: the first and the last whole anyway, the others as a replacement."""
        is_first = session_hash is None or run is None or run not in self.pending_diff_streams[session_hash]
        whole = super().handle_streaming_diffs(block_fn, data, session_hash, run, final, simple_format=True)
        if is_first or final or simple_format:
            return whole
        return [[["replace", [], value]] for value in whole]
