"""Folders that appear whole or not at all, and are replaced whole or not at all.

A model of 90 MB takes a while to arrive, and much can happen meanwhile: the network breaks, somebody presses
Ctrl-C, the machine goes to sleep, a second process wants the same model. So nothing is ever written where it is
looked for: a folder is filled beside its place, under a hidden name, and renamed when it is whole. One process
fills at a time; the others wait for it and find the work done. What a killed process left is swept by the next.

No system that we run on puts one folder in the place of another at a single stroke: the old one goes aside, the new
one takes its place, and between the two a process can be killed. So the old one goes aside under a name that says
whose it was, and `recover` brings it back.
"""

from __future__ import annotations

import glob
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

FRESH, ASIDE = ".fresh", ".aside"  # how the names end of a folder that is being written, and of what it replaces


def create_atomic(target: Path, is_whole: Callable[[Path], bool], fill: Callable[[Path], None]) -> bool:
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


@contextmanager
def replace_atomic(folder: Path) -> Iterator[Path]:
    """A temporary folder that takes the place of ``folder`` when the block ends well, and vanishes otherwise.

    If the process is killed meanwhile, `recover` brings back what was there before.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=FRESH, dir=folder.parent))
    try:
        yield fresh
        fresh.chmod(0o755)
        if folder.exists():
            _exchange(folder, fresh)
        else:
            fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def recover(folder: Path) -> None:
    """Undo what a process left that was killed while `replace_atomic` the folder; for its only owner to call.

    Either the new folder had taken its place, or the old one comes back. Half-written ones are removed.
    """
    name = glob.escape(folder.name)
    for aside in folder.parent.glob(f".{name}.*{ASIDE}"):
        if (aside / folder.name).exists() and not folder.exists():
            (aside / folder.name).rename(folder)
        shutil.rmtree(aside, ignore_errors=True)
    for fresh in folder.parent.glob(f".{name}.*{FRESH}"):
        shutil.rmtree(fresh, ignore_errors=True)


def _exchange(folder: Path, fresh: Path) -> None:
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=ASIDE, dir=folder.parent))
    old = aside / folder.name
    try:
        folder.rename(old)
        fresh.rename(folder)
    finally:  # a failed rename, and Ctrl-C between the two
        if not folder.exists():
            old.rename(folder)
        shutil.rmtree(aside, ignore_errors=True)
