"""Leaving at once.

Before a process ends Python takes apart, one by one, the million objects that its libraries have made, which takes
it more than a second; the system takes the memory back in a tenth of that.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from contextlib import suppress
from typing import NoReturn

LOST = 120  # Python's own code for output that could not be written


def leave(code: int) -> NoReturn:
    """End the process as Python does: threads that must end, exit handlers, output; but leave the memory as it is."""
    try:
        threading._shutdown()  # type: ignore[attr-defined] # waits for the threads that are no daemons
        atexit._run_exitfuncs()  # what it cannot do itself, such as close a log or remove a temporary folder
        sys.stdout.flush()
    except OSError as error:
        code = code or LOST
        with suppress(OSError):
            print(f"error: the output could not be written: {error.strerror or error}", file=sys.stderr)
    finally:
        with suppress(OSError):  # then there is nobody left to tell
            sys.stderr.flush()
        os._exit(code)
