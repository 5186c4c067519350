"""Prompts: texts that a model was trained to find before a sentence, such as "query: ".

A model's folder may name them (config_sentence_transformers.json). The names ``query`` and ``document`` (or passage,
corpus) are roles: what one searches with, and what is searched. Some models state their prompts only in the model
card, README.md; `advice` knows the best known ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from training.errors import InputError

if TYPE_CHECKING:
    from training.models.model_format import ModelFormat

# The names of a prompt for each role, the first that the folder has; those of sentence-transformers.
ROLES = {"query": ("query",), "document": ("document", "passage", "corpus")}

# Prompts that model cards quote, and the models that are known for them: E5, BGE, nomic-embed, mxbai.
CARD_PROMPTS = (
    ("query: ", "passage: "),
    ("search_query: ", "search_document: "),
    ("Represent this sentence for searching relevant passages:",),
)


def role_prompt(prompts: Mapping[str, str], role: str) -> str | None:
    """The name of the prompt for ``query`` or ``document``; None if there is none. InputError for another role."""
    if role not in ROLES:
        raise InputError(f"role {role!r} is unknown; choose {' or '.join(ROLES)}")
    return next((name for name in ROLES[role] if name in prompts), None)


def named_prompt(
    model_format: ModelFormat, prompt: str | None, name: str | None, model: str
) -> tuple[dict[str, str], str | None]:
    """The prompts by name, and the name of the one to use, None for no prompt, after a choice by text or by name.

    InputError if both are given, or the model has no prompt of that name.
    """
    prompts = dict(model_format.prompts)
    if prompt is not None and name is not None:
        raise InputError("give the prompt itself or its name, not both")
    if name is not None:
        if name not in prompts:
            known = ", ".join(prompts) or "none"
            raise InputError(f"{model} has no prompt named {name!r}; its folder names: {known}")
        return prompts, name if prompts[name] else None
    if not prompt:
        return prompts, None
    same = next((known for known, text in prompts.items() if text == prompt), None)
    return (prompts, same) if same else ({**prompts, "default": prompt}, "default")


def advice(model: str, model_format: ModelFormat) -> str:
    """One sentence if the model's folder says that it needs prompts but not which one it uses by default, else ""."""
    named = [name for name, text in model_format.prompts.items() if text]
    if named:
        return (
            f"{model} was trained with prompts, and none is put before the sentences: its folder names "
            f"{', '.join(named)}; choose one"
        )
    quoted = _quoted_prompts(model_format.transformer)
    if quoted:
        texts = " or ".join(f'"{text}"' for text in quoted)
        where = "every sentence" if len(quoted) > 1 else "a query"
        return f"{model} expects {texts} before {where}, as its model card says; give it as the prompt"
    return ""


def _quoted_prompts(folder: Path) -> tuple[str, ...]:
    """The prompts of ``CARD_PROMPTS`` that the model card in ``folder`` quotes."""
    card = folder / "README.md"
    if not card.is_file():
        return ()
    text = card.read_text(encoding="utf-8", errors="replace")
    for prompts in CARD_PROMPTS:
        if all(any(f"{quote}{prompt.strip()}" in text for quote in "\"'`“") for prompt in prompts):
            return prompts
    return ()
