"""Function words (articles, pronouns, …) of some languages, and which language a text is in."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import cache

from training.assets import read_asset

# The least share of function words of its language in a text; English prose has about 0.4.
LANGUAGE_FROM = 0.15


@cache
def function_words() -> dict[str, frozenset[str]]:
    """The function words of each language, in lower case."""
    texts = json.loads(read_asset("examples/function_words.json"))
    return {language: frozenset(words.split()) for language, words in texts.items()}


def stop_words(words: Iterable[str]) -> frozenset[str]:
    """The function words of the languages of a text, by its words in lower case."""
    counts = Counter(words)
    total = max(1, counts.total())
    stopped: frozenset[str] = frozenset()
    for own in function_words().values():
        if sum(counts[word] for word in own) >= LANGUAGE_FROM * total:
            stopped |= own
    return stopped


# A model for many languages has a vocabulary of 100,000 sub-words and more; one with a smaller vocabulary was trained
# on one language, for the built-in models English. A text in another script is told by its letters, one in Latin
# letters by its function words (assets/examples/function_words.json), if the model also splits its words more than
# English ones.
# The least sub-words in the vocabulary of a model for many languages.
MULTILINGUAL_FROM = 60_000
# The least sub-words for each word of a foreign text; English sentences have about 1.1.
FOREIGN_SPLIT = 1.25
_WORD = re.compile(r"[^\W\d_]+")
_SCRIPTS = {"CJK": "Chinese", "HANGUL": "Hangul", "HIRAGANA": "Japanese", "KATAKANA": "Japanese"}


def other_language(text: str, subwords: int, vocabulary: int) -> str:
    """The language or script of a text that a model for English was not trained on; "" for English and if unsure.

    ``subwords`` is the number of sub-words of the text, ``vocabulary`` that of the model.
    """
    words = _WORD.findall(text.lower())
    if vocabulary > MULTILINGUAL_FROM or not words:
        return ""
    scripts = [unicodedata.name(letter, "UNKNOWN").split()[0] for letter in "".join(words)]
    script = max(set(scripts), key=scripts.count)
    if script not in ("LATIN", "UNKNOWN", "MODIFIER"):
        return f"{_SCRIPTS.get(script, script.capitalize())} script"
    counts = {language: sum(word in own for word in words) for language, own in function_words().items()}
    best = max(counts, key=counts.__getitem__)
    is_foreign = best != "English" and counts[best] >= 2 and counts[best] > 2 * counts["English"]
    return best if is_foreign and subwords >= FOREIGN_SPLIT * len(words) else ""
