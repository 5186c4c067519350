"""Function words (articles, pronouns, …) of some languages, and which language a text is in."""

import json
import math
from collections import Counter
from collections.abc import Iterable
from functools import cache

import py3langid

from training.catalogue import read_asset

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
# on one language, for the built-in models English. py3langid tells the language of a text, and the model has to split
# its words more than English ones: names alone do not make a text foreign. Of 45,886 English sentences (STSb, STS 2012,
# 2014, 2016, SNLI) 19 are taken for foreign with these limits.
LANGUAGES: dict[str, str] = json.loads(read_asset("examples/languages.json"))
LEAST_PROBABILITY = 0.5
MULTILINGUAL = "paraphrase-multilingual-MiniLM-L12-v2"
# The least sub-words in the vocabulary of a model for many languages.
MULTILINGUAL_FROM = 60_000
# The least sub-words for each word of a foreign text; English sentences have about 1.1.
FOREIGN_SPLIT = 1.25


def other_language(text: str, subwords: int, vocabulary: int) -> str:
    """The language of a text that a model for English was not trained on; "" for English and if unsure.

    ``subwords`` is the number of sub-words of the text, ``vocabulary`` that of the model.
    """
    if vocabulary > MULTILINGUAL_FROM or subwords < FOREIGN_SPLIT * len(text.split()):
        return ""
    _choose_languages()
    (code, best), *others = py3langid.rank(text)
    # The scores are sums over the text. Divided by the root of its length, they give comparable probabilities.
    length = math.sqrt(len(text.encode()) or 1)
    probability = 1 / (1 + sum(math.exp((score - best) / length) for _, score in others))
    return "" if code == "en" or probability < LEAST_PROBABILITY else LANGUAGES[code]


@cache
def _choose_languages() -> None:
    """Restrict py3langid to `LANGUAGES`, once."""
    py3langid.set_languages(list(LANGUAGES))
