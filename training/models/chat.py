"""ChatTemplate: the words that a model's chat template puts around each text, or around the two texts of a pair.

As in sentence-transformers since 5.4: a text is the message of a user, a pair are messages of the roles query and
document, and a prompt is that of the system. The template is rendered by transformers, in the sandbox of jinja2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from training.errors import InputError, first_line
from training.models.settings import ChatFormat

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAIR = ("query", "document")
# Texts that begin, end and split into tokens differently, so that what their renderings share is the template's.
PROBES = ("0", "1 2 3 4")


class ChatTemplate:
    """The chat template of a tokenizer, for texts (``roles`` of one) or for pairs."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, chat: ChatFormat, roles: Sequence[str] = ("user",)) -> None:
        """InputError if there is no template, or it cannot render messages of these roles."""
        self.roles, self._tokenizer, self.format = tuple(roles), tokenizer, chat
        if chat.content == "auto":
            # A template for lists of contents finds none in a text.
            self.format = replace(chat, content="flat")
            is_flat = self._shows_texts()
            self.format = replace(chat, content="flat" if is_flat else "structured")
        if not self._shows_texts():
            raise InputError(
                f"the chat template of {tokenizer.name_or_path} leaves out messages of the role "
                f"{' or '.join(self.roles)}; choose a model whose template has them"
            )
        self._suffixes: dict[str, list[int]] = {}  # by prompt

    def render(self, rows: Sequence[Sequence[str]], prompt: str = "") -> list[str]:
        """The rendered texts of rows of one text for each role. InputError if the template fails."""
        system = [self._message("system", prompt)] if prompt else []
        conversations = [
            [*system, *(self._message(role, text) for role, text in zip(self.roles, row, strict=True))] for row in rows
        ]
        if not conversations:
            return []
        tokenizer: Any = self._tokenizer
        try:
            return list(tokenizer.apply_chat_template(conversations, tokenize=False, **self.format.options))
        except Exception as error:
            # A template raises errors of its own, and those of jinja2.
            raise InputError(
                f"the chat template of {self._tokenizer.name_or_path} cannot be rendered: {first_line(error)}"
            ) from error

    def closed(self, ids: list[int], max_length: int | None, prompt: str = "") -> list[int]:
        """The ids of a text, with the end of the template in place of theirs if they were cut at ``max_length``."""
        if not max_length or len(ids) < max_length or not self.format.restores_suffix:
            return ids
        if prompt not in self._suffixes:
            # The ids after the last text, which all renderings share.
            rendered = self.render([[probe] * len(self.roles) for probe in PROBES], prompt)
            first, second = (self._tokenizer.encode(text, add_special_tokens=False)[::-1] for text in rendered)
            count = next((at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), 0)
            self._suffixes[prompt] = first[:count][::-1]
        suffix = self._suffixes[prompt][-len(ids) :]
        return [*ids[: len(ids) - len(suffix)], *suffix]

    def _message(self, role: str, text: str) -> dict[str, Any]:
        return {"role": role, "content": text if self.format.content == "flat" else [{"type": "text", "text": text}]}

    def _shows_texts(self) -> bool:
        texts = [f"the text of the {role}" for role in self.roles]
        try:
            rendered = self.render([texts])[0]
        except InputError:
            return False
        return all(text in rendered for text in texts)
