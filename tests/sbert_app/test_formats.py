"""Durations, counts and figures as text; values as JSON."""

import math
import re
import time

import pytest
from paths import ROOT

from sbert_app.formats import (
    format_count,
    format_duration,
    format_estimate,
    format_number,
    format_time,
    json_values,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.0123, "12.3 ms"),
        (0.9996, "1.0 s"),
        (9.96, "10 s"),
        (59.6, "1 min"),
        (200.4, "3 min 20 s"),
        (3_599.6, "1 h"),
        (7_500, "2 h 5 min"),
        (2 * 86_400 - 20, "2.0 days"),
        (1e10, "317 years"),
    ],
)
def test_durations(seconds: float, text: str):
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "1 s"),
        (42.4, "42 s"),
        (59.7, "1 min"),
        (203, "3 min 20 s"),
        (1_234, "21 min"),
        (7_510, "2 h 5 min"),
    ],
)
def test_estimates_are_rounded_to_what_a_prediction_can_know(seconds: float, text: str):
    assert format_estimate(seconds) == text


def test_counts_and_figures():
    assert [format_count(count, "pair") for count in (0, 1, 2_000)] == [
        "0 pairs",
        "1 pair",
        "2,000 pairs",
    ]
    assert format_count(2, "entry", "entries") == "2 entries"
    assert (format_number(None), format_number(84.967), format_number(1234.5, 0)) == (
        "–",
        "84.97",
        "1,234",
    )
    assert (format_number(-0.001), format_number(-0.04, 1, "+"), format_number(-0.4, 1)) == (
        "0.00",
        "+0.0",
        "−0.4",
    )


def test_numbers_that_are_not_finite_are_null():
    assert json_values({"a": math.nan, "b": [math.inf, 1.5], "c": (1, "x")}) == {
        "a": None,
        "b": [None, 1.5],
        "c": [1, "x"],
    }


def test_dates_are_written_without_the_directives_that_windows_lacks():
    """There strftime raises ValueError for "%-d", the day without a zero before it."""
    files = [*(ROOT / "training").rglob("*.py"), *(ROOT / "sbert_app").rglob("*.py")]
    formats = [
        text for file in files for text in re.findall(r"strftime\(.*?\)", file.read_text("utf-8"))
    ]
    assert len(formats) > 1
    assert [text for text in formats if "%-" in text] == []


def test_a_moment_of_today_is_a_time_and_any_other_has_its_day():
    now = time.time()
    assert format_time(now) == time.strftime("%H:%M", time.localtime(now))
    other = time.mktime((2025, 11, 5, 23, 30, 0, 0, 0, -1))
    assert format_time(other) == "5 Nov 23:30"
