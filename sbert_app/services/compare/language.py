"""Whether a sentence is in another language than the model's: a note for whoever wonders about its score.

A model for many languages has a vocabulary of 100,000 sub-words and more; one with a smaller vocabulary was trained on
one language, for the built-in models English. A text in another script is told by its letters, one in Latin letters by
its function words (``assets/examples/function_words.json``), if the model also splits its words more than English ones.
"""

from __future__ import annotations

import re
import unicodedata

from sbert_app.services.function_words import function_words

MULTILINGUAL_FROM = 60_000  # sub-words in a vocabulary
FOREIGN_SPLIT = 1.25  # sub-words per word; English sentences have about 1.1
_WORD = re.compile(r"[^\W\d_]+")


def other_language(text: str, subwords: int, vocabulary: int) -> str:
    """The language or script of a text that a model for English was not trained on; "" for English and if unsure.

    Args:
        text: a sentence.
        subwords: that the model's tokenizer makes of it, special tokens not counted.
        vocabulary: of the model, in sub-words.
    """
    words = _WORD.findall(text.lower())
    if vocabulary > MULTILINGUAL_FROM or not words:
        return ""
    script = _other_script("".join(words))
    if script:
        return script
    counts = {language: sum(word in known for word in words) for language, known in function_words().items()}
    best = max(counts, key=counts.__getitem__)
    is_foreign = best != "English" and counts[best] >= 2 and counts[best] > 2 * counts["English"]
    return best if is_foreign and subwords >= FOREIGN_SPLIT * len(words) else ""


def _other_script(letters: str) -> str:
    """The script of most letters, such as "Cyrillic"; "" if it is Latin."""
    scripts = [unicodedata.name(letter, "UNKNOWN").split()[0] for letter in letters]
    most = max(set(scripts), key=scripts.count)
    return "" if most in ("LATIN", "UNKNOWN", "MODIFIER") else f"{_NAMES.get(most, most.capitalize())} script"


_NAMES = {"CJK": "Chinese", "HANGUL": "Hangul", "HIRAGANA": "Japanese", "KATAKANA": "Japanese"}
