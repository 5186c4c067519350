"""The writer of files and folders: they appear complete or not at all, whatever happens to the process.

    write_text(path, text), write_bytes(path, data)     a small file at once
    with open_atomic(path, "wb") as file: ...           a file that is written piece by piece
    with replace_file(path) as temporary: ...           the same, for a library that takes a path
    AtomicFile(path)                                    the same, for a writer object that is closed elsewhere
    with replace_folder(path) as temporary: ...         a folder that replaces an old one; `recover` after a crash
    create_folder(path, is_complete, fill)              a folder that several processes may want at once
    sweep(folder)                                       removes what killed processes left in a folder
    folder_size(folder)                                 the bytes in it, while others write and remove

Everything is written under a hidden name beside its destination and renamed when it is complete, so a reader sees
the old content or the new one, never a part. An error, Ctrl-C included, removes the temporary file. `write_bytes`, and
`replace_folder` where it is asked to, synchronise what they write to the disk (fsync), so that a power cut leaves no
empty record; with the others the guarantee is against killed processes.

No operating system that is supported here exchanges two folders in one step: `replace_folder` moves the old one
aside and then renames the new one, and `recover` undoes the case that the process was killed between the two.
"""

import glob
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import IO, Any

# The suffixes of a folder that is being written, and of the one that it replaces.
FRESH = ".fresh"
ASIDE = ".aside"
# The temporary names of `AtomicFile`.
LEFTOVER = re.compile(r"\..+\.(?P<process>\d{1,9})\.[0-9a-f]{8}\.part")
# A process may live on another machine that shares the disk; its file is younger than this.
LEFTOVER_SECONDS = 3600.0


class AtomicFile:
    """A file written to ``temporary``, beside ``path``; `commit` gives it its name, `discard` removes it.

    Parent folders must exist. The leftovers of killed processes for the same ``path`` are removed first.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.temporary = path.with_name(f".{path.name}.{os.getpid()}.{token_hex(4)}.part")
        sweep(path.parent, name=glob.escape(path.name))

    def commit(self) -> None:
        """Gives the complete file its name, replacing an older one. Close it before."""
        self.temporary.replace(self.path)

    def discard(self) -> None:
        """Removes the temporary file, if there is one; does nothing after `commit`."""
        self.temporary.unlink(missing_ok=True)


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path``; the file written there is renamed when the block ends well, else removed."""
    file = AtomicFile(path)
    try:
        yield file.temporary
        file.commit()
    finally:
        file.discard()


@contextmanager
def open_atomic(path: Path, mode: str = "w", newline: str | None = None) -> Iterator[IO[Any]]:
    """A new file that takes the place of ``path`` when the block ends well, and is removed otherwise.

    Text ("w") is UTF-8; ``newline`` is that of `open`. Raises OSError if the disk is full or not writable.
    """
    mode, encoding = mode.replace("w", "x"), None if "b" in mode else "utf-8"
    with replace_file(path) as temporary, temporary.open(mode, encoding=encoding, newline=newline) as file:
        yield file


def write_text(path: Path, text: str) -> None:
    with open_atomic(path) as file:
        file.write(text)


def write_bytes(path: Path, data: bytes) -> None:
    with open_atomic(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sweep(folder: Path, seconds: float = LEFTOVER_SECONDS, name: str = "*") -> bool:
    """Removes temporary files of killed processes, not written for ``seconds``. Returns whether there are others.

    ``name`` is a pattern for the names of the files that were to be written.
    """
    has_others = False
    for file in folder.glob(f".{name}.*.part"):
        if (match := LEFTOVER.fullmatch(file.name)) is None:
            continue
        # Another process may have removed it, or it belongs to another user.
        with suppress(OSError):
            if not _is_running(int(match["process"])) and time.time() - file.stat().st_mtime > seconds:
                file.unlink()
                continue
        has_others = True
    return has_others


def create_folder(target: Path, is_complete: Callable[[Path], bool], fill: Callable[[Path], None]) -> bool:
    """Makes ``target`` a folder for which ``is_complete`` holds; ``fill`` writes its files into an empty folder.

    One process fills at a time; others wait and find the folder complete. Returns whether this call filled it. An
    incomplete folder is replaced. If ``fill`` raises, everything stays as it was. Leftovers of killed processes are
    removed. Raises OSError if the disk is full or not writable.
    """
    from filelock import FileLock

    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.with_name(f".{target.name}.lock")):
        if is_complete(target):
            return False
        for leftover in target.parent.glob(f".{glob.escape(target.name)}.*.part"):
            shutil.rmtree(leftover, ignore_errors=True)
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
def replace_folder(folder: Path, synchronises: bool = False) -> Iterator[Path]:
    """A temporary folder that takes the place of ``folder`` when the block ends well, and is removed otherwise.

    ``synchronises`` writes its files to the disk before. If the process is killed, `recover` restores the old folder.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=FRESH, dir=folder.parent))
    try:
        yield fresh
        fresh.chmod(folder.parent.stat().st_mode & 0o777)
        if synchronises:
            for file in fresh.iterdir():
                with file.open("rb+") as opened:
                    os.fsync(opened.fileno())
        if folder.exists():
            _exchange(folder, fresh)
        else:
            fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def recover(folder: Path) -> None:
    """Cleans up after a process that was killed in `replace_folder`; only the folder's owner may call this.

    Restores the old folder if the new one had not taken its place, and removes temporary folders.
    """
    name = glob.escape(folder.name)
    for aside in folder.parent.glob(f".{name}.*{ASIDE}"):
        if (aside / folder.name).exists() and not folder.exists():
            (aside / folder.name).rename(folder)
        shutil.rmtree(aside, ignore_errors=True)
    for fresh in folder.parent.glob(f".{name}.*{FRESH}"):
        shutil.rmtree(fresh, ignore_errors=True)


def folder_size(folder: Path, least: int = 0) -> int:
    """The bytes of all files below ``folder``, while others write and remove; links, and what cannot be read, are 0.

    A file counts ``least`` bytes, where it has fewer.
    """
    total = 0
    # Path.rglob fails if a folder is removed while it is read.
    for parent, _, names in os.walk(folder):
        for file in (Path(parent, name) for name in names):
            with suppress(OSError):
                total += 0 if file.is_symlink() else max(least, file.stat().st_size)
    return total


def _exchange(folder: Path, fresh: Path) -> None:
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=ASIDE, dir=folder.parent))
    old = aside / folder.name
    try:
        folder.rename(old)
        fresh.rename(folder)
    finally:
        # A rename may fail, and Ctrl-C may come between the two.
        if not folder.exists():
            old.rename(folder)
        shutil.rmtree(aside, ignore_errors=True)


def _is_running(process: int) -> bool:
    """Whether this machine has a process of this id; True where that cannot be found out."""
    if os.name == "posix":
        try:
            os.kill(process, 0)
        except OSError as error:
            # The process may be another user's.
            return not isinstance(error, ProcessLookupError)
    return True
