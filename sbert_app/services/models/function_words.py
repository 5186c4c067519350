"""The function words (articles, pronouns, …) of some languages, and the detection of the language of a text."""

import json
import math
from collections import Counter
from collections.abc import Iterable
from functools import cache

import py3langid

from training.catalogue import read_asset

# A text with this share of function words counts as written in a language; English prose has about
# 0.4.
LANGUAGE_FROM = 0.15


@cache
def function_words() -> dict[str, frozenset[str]]:
    """The function words of each language, in lower case."""
    texts = json.loads(read_asset("examples/function_words.json"))
    return {language: frozenset(words.split()) for language, words in texts.items()}


def stop_words(words: Iterable[str]) -> frozenset[str]:
    """The function words of the languages of a text, given its words in lower case."""
    counts = Counter(words)
    total = max(1, counts.total())
    result: frozenset[str] = frozenset()
    for language_words in function_words().values():
        if sum(counts[word] for word in language_words) >= LANGUAGE_FROM * total:
            result |= language_words
    return result


# A multilingual model has a vocabulary of 100,000 sub-words and more. A model with a smaller
# vocabulary was trained on one language, which is English for the built-in models. py3langid
# detects the language of a text. In addition, the model has to split its words more than English
# words, as names alone do not make a text foreign. With these limits, 19 of 45,886 English
# sentences (STSb, STS 2012, 2014, 2016, SNLI) are taken for foreign.
LANGUAGES: dict[str, str] = json.loads(read_asset("examples/languages.json"))
LEAST_PROBABILITY = 0.5
MULTILINGUAL = "paraphrase-multilingual-MiniLM-L12-v2"
# The least sub-words in the vocabulary of a multilingual model.
MULTILINGUAL_FROM = 60_000
# The least sub-words per word in a foreign text; English sentences have about 1.1.
FOREIGN_SPLIT = 1.25


def other_language(text: str, subwords: int, vocabulary: int) -> str:
    """The language of a text that a model for English was not trained on.

    "" for a text in English, if the language is uncertain, for a multilingual model, and for a text
    whose words the model hardly splits. ``subwords`` is the number of sub-words of the text,
    ``vocabulary`` the number of sub-words that the model knows.
    """
    if vocabulary > MULTILINGUAL_FROM or subwords < FOREIGN_SPLIT * len(text.split()):
        return ""
    _restrict_detector()
    # Languages with their scores, the highest first.
    (code, best), *others = py3langid.rank(text)
    # The scores are sums over the text. Divided by the root of its length, they give comparable
    # probabilities.
    length = math.sqrt(len(text.encode()) or 1)
    probability = 1 / (1 + sum(math.exp((score - best) / length) for _, score in others))
    if code == "en" or probability < LEAST_PROBABILITY:
        return ""
    return LANGUAGES[code]


@cache
def _restrict_detector() -> None:
    """Restricts py3langid to `LANGUAGES`, once."""
    py3langid.set_languages(list(LANGUAGES))
