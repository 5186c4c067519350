"""Leaving at once loses nothing: output, exit handlers and threads come to their end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

BEFORE = """
import atexit, sys, threading, time
from sbert_app.leaving import leave
class Slow:
    def __del__(self):
        print("taken apart")
kept = Slow()
"""


def left(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BEFORE + code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("code", [0, 2, 130])
def test_the_code_is_the_one_asked_for_and_what_was_said_arrives(code: int) -> None:
    ended = left(f"print('x' * 100_000, end=''); print('why', end='', file=sys.stderr); leave({code})")
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, "x" * 100_000, "why")


def test_exit_handlers_and_threads_are_not_cut_off() -> None:
    ended = left(
        "atexit.register(print, 'handler')\n"
        "threading.Thread(target=lambda: (time.sleep(0.3), print('thread'))).start()\n"
        "leave(0)"
    )
    assert ended.stdout.split() == ["thread", "handler"]


def test_a_handler_that_fails_does_not_keep_the_process() -> None:
    ended = left("atexit.register(lambda: 1 / 0); leave(3)")
    assert ended.returncode == 3
    assert "ZeroDivisionError" in ended.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize(("code", "expected"), [(0, 120), (2, 2)])
def test_output_that_is_lost_is_no_success(code: int, expected: int) -> None:
    command = [sys.executable, "-c", f"from sbert_app.leaving import leave; print('x'); leave({code})"]
    buffered = {**os.environ, "PYTHONUNBUFFERED": ""}  # written at the end, when nobody looks any more
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            command, cwd=ROOT, env=buffered, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert ended.returncode == expected
    assert ended.stderr == "error: the output could not be written: No space left on device\n"


def test_the_command_line_and_the_app_leave_so() -> None:
    for arguments in (["-m", "sbert_app", "--help"], ["app.py", "--nonsense"]):
        ended = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        assert ended.returncode == (0 if "--help" in arguments else 2), ended.stderr
