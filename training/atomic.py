"""Writes files and folders so that they appear complete or not at all, whatever happens to the process.

    write_text(path, text), write_bytes(path, data)     a small file at once
    with open_atomic(path, "wb") as file: ...           a file that is written piece by piece
    with replace_file(path) as temporary: ...           a file that a library writes to a path
    AtomicFile(path)                                    a file with a writer object that is closed elsewhere
    with replace_folder(path) as temporary: ...         a folder that replaces an old one; `recover` after a crash
    create_folder(path, is_complete, fill)              a folder that several processes may create at once
    sweep(folder)                                       removes the temporary files of killed processes
    folder_size(folder)                                 the bytes in a folder that changes at the same time

Everything is written under a hidden name beside its destination and renamed when it is complete, so
a reader sees the old content or the new one, never a part. An error, including Ctrl-C, removes the
temporary file. `write_bytes`, and `replace_folder` with ``synchronises``, also write the data to
the disk (fsync), so that a power cut leaves no empty record. The other functions only protect from
killed processes.

No supported operating system exchanges two folders in one step. `replace_folder` moves the old
folder aside and then renames the new one, and `recover` repairs the folder if the process was
killed in between.
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

from filelock import FileLock

# The suffixes of a folder that is being written, and of the folder that it replaces.
FRESH = ".fresh"
ASIDE = ".aside"
# The temporary names of `AtomicFile`.
LEFTOVER = re.compile(r"\..+\.(?P<process>\d{1,9})\.[0-9a-f]{8}\.part")
# A process may run on another machine that shares the disk. Its file is newer than this.
LEFTOVER_SECONDS = 3600.0


class AtomicFile:
    """A file that is written to ``temporary``, beside ``path``. `commit` renames it to ``path``, `discard` removes it.

    Parent folders must exist. Temporary files of killed processes for the same ``path`` are removed
    first.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.temporary = path.with_name(f".{path.name}.{os.getpid()}.{token_hex(4)}.part")
        sweep(path.parent, name=glob.escape(path.name))

    def commit(self) -> None:
        """Renames the complete file, which must be closed, and replaces an older one."""
        self.temporary.replace(self.path)

    def discard(self) -> None:
        """Removes the temporary file, if there is one; does nothing after `commit`."""
        self.temporary.unlink(missing_ok=True)


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Yields a temporary path. The file there is renamed to ``path`` after the block, or removed on an error."""
    file = AtomicFile(path)
    try:
        yield file.temporary
        file.commit()
    finally:
        # After `commit` there is nothing to remove.
        file.discard()


@contextmanager
def open_atomic(path: Path, mode: str = "w", newline: str | None = None) -> Iterator[IO[Any]]:
    """Opens a new file that replaces ``path`` after the block, or is removed on an error.

    Text ("w") is UTF-8. ``newline`` is as in `open`. Raises OSError if the disk is full or not
    writable.
    """
    encoding = None if "b" in mode else "utf-8"
    # The temporary file must be new, so that no other file is overwritten ("x").
    with (
        replace_file(path) as temporary,
        temporary.open(mode.replace("w", "x"), encoding=encoding, newline=newline) as file,
    ):
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
    """Removes temporary files of killed processes, ``seconds`` after they were written. Returns whether others remain.

    ``name`` is a pattern for the names of the destination files.
    """
    has_others = False
    for file in folder.glob(f".{name}.*.part"):
        match = LEFTOVER.fullmatch(file.name)
        if match is None:
            continue
        # Another process may have removed it, or it belongs to another user. It then counts as one
        # that remains.
        with suppress(OSError):
            is_old = time.time() - file.stat().st_mtime > seconds
            if is_old and not _is_running(int(match["process"])):
                file.unlink()
                continue
        # It is young, its process is running, or it cannot be removed.
        has_others = True
    return has_others


def create_folder(
    target: Path, is_complete: Callable[[Path], bool], fill: Callable[[Path], None]
) -> bool:
    """Creates the folder ``target`` unless ``is_complete`` holds for it. ``fill`` writes its files to an empty folder.

    One process fills the folder at a time. Others wait and find it complete. An incomplete folder
    is replaced. If ``fill`` raises an error, nothing changes. Temporary folders of killed processes
    are removed.

    Returns whether this call filled the folder. Raises OSError if the disk is full or not writable.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.with_name(f".{target.name}.lock")):
        if is_complete(target):
            return False
        for leftover in target.parent.glob(f".{glob.escape(target.name)}.*.part"):
            shutil.rmtree(leftover, ignore_errors=True)
        # A temporary folder is private to its owner (mode 700), but a folder inside it is not.
        temporary = tempfile.TemporaryDirectory(
            prefix=f".{target.name}.", suffix=".part", dir=target.parent
        )
        with temporary as scratch:
            fresh = Path(scratch) / "fresh"
            fresh.mkdir()
            fill(fresh)
            if target.exists():
                shutil.rmtree(target)
            fresh.replace(target)
    return True


@contextmanager
def replace_folder(folder: Path, synchronises: bool = False) -> Iterator[Path]:
    """Yields a temporary folder that replaces ``folder`` after the block, or is removed on an error.

    With ``synchronises`` the new files are first written to the disk (fsync). If the process is
    killed, `recover` restores the old folder.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=FRESH, dir=folder.parent))
    try:
        yield fresh
        # mkdtemp has made the folder private (mode 700).
        fresh.chmod(folder.parent.stat().st_mode & 0o777)
        if synchronises:
            for file in fresh.iterdir():
                # Windows synchronises a file only if it is open for writing.
                with file.open("rb+") as stream:
                    os.fsync(stream.fileno())
        if folder.exists():
            _exchange(folder, fresh)
        else:
            fresh.rename(folder)
    finally:
        # After the block has succeeded, there is no folder at this path.
        shutil.rmtree(fresh, ignore_errors=True)


def recover(folder: Path) -> None:
    """Cleans up after a process that was killed in `replace_folder`. Only the owner of the folder may call it.

    Restores the old folder if it was not replaced yet, and removes temporary folders.
    """
    name = glob.escape(folder.name)
    for aside in folder.parent.glob(f".{name}.*{ASIDE}"):
        if (aside / folder.name).exists() and not folder.exists():
            (aside / folder.name).rename(folder)
        shutil.rmtree(aside, ignore_errors=True)
    for fresh in folder.parent.glob(f".{name}.*{FRESH}"):
        shutil.rmtree(fresh, ignore_errors=True)


def folder_size(folder: Path, least: int = 0) -> int:
    """Sums the bytes of all files below ``folder``, which may change at the same time.

    A file counts ``least`` bytes or more. Links and unreadable files count 0.
    """
    total = 0
    # Path.rglob fails if a folder is removed while it is read.
    for parent, _, names in os.walk(folder):
        for name in names:
            file = Path(parent, name)
            with suppress(OSError):
                if not file.is_symlink():
                    total += max(least, file.stat().st_size)
    return total


def _exchange(folder: Path, fresh: Path) -> None:
    """Moves ``folder`` aside, renames ``fresh`` to its name, and removes the old folder."""
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=ASIDE, dir=folder.parent))
    old = aside / folder.name
    try:
        folder.rename(old)
        fresh.rename(folder)
    finally:
        # The second rename may fail, or Ctrl-C may come before it.
        if not folder.exists():
            old.rename(folder)
        shutil.rmtree(aside, ignore_errors=True)


def _is_running(process: int) -> bool:
    """Tells whether this machine has a process with this id; True if it cannot be determined."""
    # On Windows, `os.kill` cannot check whether a process exists.
    if os.name == "posix":
        try:
            # Signal 0 only checks whether the process exists.
            os.kill(process, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            # The process is another user's.
            pass
    return True
