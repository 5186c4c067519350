"""Logging in: hashed passwords compared in constant time, a growing delay after wrong ones, a token for machines."""

from __future__ import annotations

import hashlib
import hmac
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

FREE_ATTEMPTS = 5  # wrong passwords from one address before it has to wait
LONGEST_DELAY = 60.0  # seconds
FORGET_AFTER = 900.0  # seconds without a wrong password
MOST_ADDRESSES = 10_000  # remembered, the oldest are dropped

_SCRYPT = {"n": 2**14, "r": 8, "p": 1}


class PasswordCheck:
    """Compares a name and a password with the one account of the app. The password itself is not kept."""

    def __init__(self, user: str, password: str) -> None:
        self._salt = os.urandom(16)
        self._user, self._hash = self._digest(user), self._digest(password)

    def __call__(self, user: str, password: str) -> bool:
        same_user = hmac.compare_digest(self._digest(user), self._user)
        same_password = hmac.compare_digest(self._digest(password), self._hash)
        return same_user and same_password

    def _digest(self, text: str) -> bytes:
        return hashlib.scrypt(text.encode(), salt=self._salt, **_SCRYPT)


@dataclass
class _Failures:
    count: int
    last: float


class LoginThrottle:
    """How long an address has to wait before it may try a password again.

    After ``FREE_ATTEMPTS`` wrong passwords the delay doubles from one second up to ``LONGEST_DELAY``. Attempts made
    during the delay are refused unread and do not extend it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, _Failures] = OrderedDict()
        self._lock = threading.Lock()

    def seconds_to_wait(self, address: str) -> float:
        """0 if the address may try now."""
        with self._lock:
            failures = self._failures.get(address)
            if failures is None or failures.count < FREE_ATTEMPTS:
                return 0.0
            delay = min(2.0 ** (failures.count - FREE_ATTEMPTS), LONGEST_DELAY)
            return max(0.0, failures.last + delay - self._clock())

    def failed(self, address: str) -> None:
        """Record a wrong password."""
        with self._lock:
            now = self._clock()
            failures = self._failures.pop(address, None)
            if failures is None or now - failures.last > FORGET_AFTER:
                failures = _Failures(0, now)
            self._failures[address] = _Failures(failures.count + 1, now)
            while len(self._failures) > MOST_ADDRESSES:
                self._failures.popitem(last=False)

    def succeeded(self, address: str) -> None:
        """Forget the address's wrong passwords."""
        with self._lock:
            self._failures.pop(address, None)


def has_token(header: str, token: str | None) -> bool:
    """Whether an Authorization header is ``Bearer`` with the app's token; compared in constant time."""
    scheme, _, value = header.partition(" ")
    if not token or scheme.lower() != "bearer":
        return False
    return hmac.compare_digest(value.strip().encode(), token.encode())
