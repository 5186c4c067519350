"""A class is its link: what it says is read back, and what may not be named is refused."""

from urllib.parse import parse_qsl

import pytest

from sbert_app.pages.learn.lesson import STANDARD, Setup
from sbert_app.pages.learn.teacher import ClassLink, read_class
from sbert_app.services.access import AccessPolicy
from training.errors import InputError

ACCESS = AccessPolicy()


def test_a_link_is_read_back():
    link = ClassLink("NLP & co. 101", Setup("org/model", "sickr", 7), (4, 8, 12))
    assert read_class(dict(parse_qsl(link.query)), ACCESS) == link


def test_without_a_class_there_are_all_lessons_as_they_are():
    found = read_class({"lesson": "4", "model": "/etc/passwd"}, ACCESS)
    assert found == ClassLink() and found.setup == STANDARD
    assert found.numbers == tuple(range(1, 13)) and found.query == ""


def test_what_a_link_leaves_out_is_the_lessons_own():
    assert read_class({"class": "A"}, ACCESS).setup == STANDARD


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"seed": "x"}, "seed is 'x'"),
        ({"seed": "-1"}, "whole number from 0"),
        ({"seed": "²"}, "whole number from 0"),
        ({"seed": str(2**32)}, "to 4,294,967,295"),
        ({"model": "/etc/passwd"}, "cannot be used here"),
        ({"data": "/etc/passwd"}, "cannot be used here"),
        ({"lessons": "4,99"}, "there is no lesson '99'"),
        ({"class": "A" * 81}, "at most 80 characters"),
    ],
)
def test_what_cannot_be_used_is_said(values, message):
    with pytest.raises(InputError, match=message):
        read_class({"class": "A", **values}, ACCESS)
