"""Function words (articles, pronouns, …) of some languages, from ``assets/examples/function_words.json``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from functools import cache

from training.assets import read_asset

LANGUAGE_FROM = 0.15  # of the words of a text are function words of its language; English prose has about 0.4


@cache
def function_words() -> dict[str, frozenset[str]]:
    """The words of each language, in lower case."""
    texts = json.loads(read_asset("examples/function_words.json"))
    return {language: frozenset(words.split()) for language, words in texts.items()}


def stop_words(words: Iterable[str]) -> frozenset[str]:
    """The function words of the languages that a text, given as its words in lower case, is written in."""
    counts = Counter(words)
    total = max(1, counts.total())
    stopped: frozenset[str] = frozenset()
    for known in function_words().values():
        if sum(counts[word] for word in known) >= LANGUAGE_FROM * total:
            stopped |= known
    return stopped
