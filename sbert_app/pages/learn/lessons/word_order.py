"""Lesson 12: the words of a sentence in another order. It is measured as lesson 8 is, on other sentences."""

from functools import partial

from sbert_app.pages.learn.lessons import negation

build = partial(negation.build, negation.WORD_ORDER)
