"""Lesson 12: the words of a sentence in another order. It is measured as lesson 8 is, on other sentences."""

from __future__ import annotations

from sbert_app.pages.learn.lesson import Demo
from sbert_app.pages.learn.lessons import negation
from sbert_app.services.container import Services


def build(services: Services) -> Demo:
    """Type a pair of one's own."""
    return negation.build(services, negation.WORD_ORDER)
