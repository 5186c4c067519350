"""Wait for what another thread or process is about to do."""

import time
from collections.abc import Callable


def wait_until(holds: Callable[[], object], seconds: float = 300) -> None:
    """Until ``holds()`` is true; the test fails if that takes longer than a busy machine may."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds:g} seconds"
        time.sleep(0.02)
