"""`services/access.py`, `Quota`: what a visitor may use at once and within a time; delays that grow."""

from math import inf

import pytest

from sbert_app.server.login import FORGET_AFTER, FREE_ATTEMPTS, LONGEST_DELAY
from sbert_app.services import access
from sbert_app.services.access import Quota
from training.errors import InputError


def test_a_visitor_has_so_many_requests_at_once():
    slots = Quota(2)
    refusal = pytest.raises(InputError, match="2 such requests from your address")
    with slots.held("a"), slots.held("a"), slots.held("b"), refusal, slots.held("a"):
        pass
    with slots.held("a"):
        pass


class TestWindow:
    def test_the_hour_passes(self):
        now = [0.0]
        bytes_in_an_hour = Quota(100, 3600, clock=lambda: now[0])
        assert bytes_in_an_hour.take("a", 90) == 0
        now[0] = 600.0
        assert bytes_in_an_hour.take("a", 20) == 3000
        assert bytes_in_an_hour.take("b", 20) == 0
        now[0] = 3600.0
        assert bytes_in_an_hour.take("a", 20) == 0

    def test_visitors_are_forgotten_when_there_are_too_many(self, monkeypatch):
        monkeypatch.setattr(access, "MOST_VISITORS", 3)
        bytes_in_an_hour = Quota(100, 3600)
        at_once = Quota(100)
        for n in range(10):
            bytes_in_an_hour.take(str(n), 100)
            at_once.take(str(n), 100)
        assert bytes_in_an_hour.take("0", 100) == 0
        assert at_once.take("0", 100) == inf, "what is under way is not forgotten"


class TestDelay:
    def test_the_delay_doubles_up_to_a_minute_until_failures_are_forgotten(self):
        now = [0.0]
        failures = Quota(FREE_ATTEMPTS, FORGET_AFTER, LONGEST_DELAY, clock=lambda: now[0])
        delays = []
        for _ in range(FREE_ATTEMPTS + 9):
            delays.append(failures.seconds_to_wait("a"))
            now[0] += delays[-1]
            failures.add("a")
        assert delays == [0.0] * FREE_ATTEMPTS + [1, 2, 4, 8, 16, 32, 60, 60, 60]
        assert failures.seconds_to_wait("b") == 0
        failures.give_back("a")
        assert failures.seconds_to_wait("a") == 0

    def test_the_delay_is_bounded_and_old_failures_are_forgotten(self):
        now = [0.0]
        failures = Quota(FREE_ATTEMPTS, FORGET_AFTER, LONGEST_DELAY, clock=lambda: now[0])
        failures.add("a", 5_000)
        failures.add("b", FREE_ATTEMPTS - 1)
        assert failures.seconds_to_wait("a") == LONGEST_DELAY
        now[0] = 10_000.0
        failures.add("b")
        assert failures.seconds_to_wait("b") == 0
