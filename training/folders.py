"""Folders that appear whole or not at all.

A model of 90 MB takes a while to arrive, and much can happen meanwhile: the network breaks, somebody presses
Ctrl-C, the machine goes to sleep, a second process wants the same model. So nothing is ever written where it is
looked for: a folder is filled beside its place, under a hidden name, and renamed when it is whole. One process
fills at a time; the others wait for it and find the work done. What a killed process left is swept by the next.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def make_whole(target: Path, is_whole: Callable[[Path], bool], fill: Callable[[Path], None]) -> bool:
    """Make ``target`` a folder that ``is_whole``, with ``fill`` writing its files into an empty folder.

    Returns whether this call did it (False: it was whole already, or another process made it so meanwhile).
    A folder that is there but not whole is replaced. If ``fill`` raises, everything is as it was before.
    OSError if the disk is full or the place may not be written.
    """
    from filelock import FileLock

    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.with_name(f".{target.name}.lock")):
        if is_whole(target):
            return False
        for left_over in target.parent.glob(f".{target.name}.*.part"):
            shutil.rmtree(left_over, ignore_errors=True)
        # A folder inside the temporary one: the outer is private to its owner (mode 700), the inner is not.
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", suffix=".part", dir=target.parent) as scratch:
            fresh = Path(scratch) / "fresh"
            fresh.mkdir()
            fill(fresh)
            if target.exists():
                shutil.rmtree(target)
            fresh.replace(target)
    return True
