"""Backups: the work of people in a home folder as one ZIP archive.

    back_up(home, Path("lab.zip"))       saves the parts of `services.store.HOME` that are people's work
    restore(home, Path("lab.zip"))       adds the parts that the home folder lacks, and overwrites nothing

Each run, experiment, … is restored as a whole. The archive is checked completely before anything is
written: its checksums, its size, and that each of its files is one that a home folder may have.
"""

import os
import re
import shutil
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from sbert_app.formats import format_bytes
from sbert_app.services.background.watch import State
from sbert_app.services.runs.store import RunStore
from sbert_app.services.store import home_entry
from training.atomic import replace_file, replace_folder
from training.errors import InputError
from training.sources.home import make_home

# Files of a run that belong to the process that works on it.
NOT_SAVED = {"lock", "stop", "reserve"}
# The least disk space that a file takes, in bytes.
BLOCK = 4096
# A relative path without "..", hidden files, or the separators of Windows.
_NAME = re.compile(r"(?:[^/\\:.][^/\\:]*/)+[^/\\:.][^/\\:]*")


class Saved(NamedTuple):
    """The outcome of `back_up`.

    Attributes:
        left_out: a sentence for each file that could not be read.
        at_work: the runs that were running. They are saved without checkpoint and model, and start
            from the beginning.
    """

    files: int
    left_out: tuple[str, ...]
    at_work: tuple[str, ...]


def back_up(home: Path, target: Path) -> Saved:
    """Writes people's work into a new ZIP file.

    Raises InputError if the file exists; OSError if it cannot be written.
    """
    if os.path.lexists(target):
        raise InputError(f"{target} exists already; name a new file")
    at_work = tuple(RunStore(home).ids(State.RUNNING))
    # Folders that may be replaced while they are read.
    changing: list[str] = []
    for run in at_work:
        changing += [f"runs/{run}/checkpoint/", f"runs/{run}/model/"]
    count = 0
    left_out = []
    # A ZIP file cannot store dates before 1980. With strict timestamps, such a file is an error.
    with (
        replace_file(target) as fresh,
        ZipFile(fresh, "x", ZIP_DEFLATED, compresslevel=1, strict_timestamps=False) as archive,
    ):
        for file in files_of(home):
            name = file.relative_to(home).as_posix()
            entry = home_entry(name)
            is_work = entry is not None and entry.is_work
            # Only the process that works on a run needs these files, or it may replace them now.
            is_of_process = file.name in NOT_SAVED or name.startswith(tuple(changing))
            if is_of_process or not is_work:
                continue
            try:
                # The file is read to its end first, as an error in the middle would damage the archive.
                with file.open("rb") as opened:
                    while opened.read(1 << 20):
                        pass
            except FileNotFoundError:
                # The file was deleted in the meantime.
                continue
            except OSError as error:
                left_out.append(f"{file} cannot be read: {error.strerror or error}")
                continue
            archive.write(file, name)
            count += 1
    return Saved(count, tuple(left_out), at_work)


def restore(home: Path, source: Path) -> tuple[list[str], list[str]]:
    """Writes the missing parts of a home folder.

    Returns the restored parts, as "runs/<id>", "experiments/<id>.json", …, and the parts that
    existed before. Raises InputError for an unusable archive, before anything is written.
    """
    make_home(home)
    restored = []
    existing = []
    try:
        with ZipFile(source) as archive:
            parts = _checked(archive, source, shutil.disk_usage(home).free)
            for part, members in parts.items():
                if os.path.lexists(home / part):
                    existing.append(part)
                else:
                    _write(archive, home / part, part, members)
                    restored.append(part)
    except InputError:
        raise
    except Exception as error:
        # An OSError of the disk has a number. The OSError that bz2 raises on damaged data has none.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise InputError(
            f"{source} is damaged, or no backup ({error}); nothing of it is restored"
        ) from error
    return restored, existing


def files_of(home: Path) -> Iterator[Path]:
    """Yields the regular files of a home folder in the order of their names, without hidden files and links."""
    for folder, folders, names in os.walk(home):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            file = Path(folder, name)
            # Files may be deleted while this loop runs.
            with suppress(FileNotFoundError):
                if not name.startswith(".") and stat.S_ISREG(file.lstat().st_mode):
                    yield file


def _checked(archive: ZipFile, source: Path, free: int) -> dict[str, list[ZipInfo]]:
    """The members of each part, such as a run or an experiment. Raises InputError unless all can be restored.

    ``free`` is the free disk space in bytes.
    """
    parts: dict[str, list[ZipInfo]] = {}
    members = [member for member in archive.infolist() if not member.is_dir()]
    names = Counter(member.filename for member in members)
    folders = set[str]()
    for name in names:
        folders.update(map(str, PurePosixPath(name).parents))
    size = 0
    for member in members:
        name = member.filename
        is_unique = names[name] == 1 and name not in folders
        # The upper 16 bits are the file mode of Unix.
        is_link = stat.S_ISLNK(member.external_attr >> 16)
        is_plain = _NAME.fullmatch(name) and not is_link
        entry = home_entry(name)
        if entry is None or not (entry.is_work and is_plain and is_unique):
            raise InputError(
                f"{source} is no backup of a home folder: it has {name[:100]!r}; nothing is restored"
            )
        # Such as "runs/" and the id of a run, or "experiments/" and the name of a file.
        part = entry.name + name.removeprefix(entry.name).partition("/")[0]
        parts.setdefault(part, []).append(member)
        # Even a small file takes a block of the disk.
        size += max(member.file_size, BLOCK)
    if size > free:
        raise InputError(
            f"{source} takes {format_bytes(size)}, and {format_bytes(free)} are free; nothing is restored"
        )
    damaged = archive.testzip()
    if damaged is not None:
        raise InputError(f"{source} is damaged at {damaged}; nothing of it is restored")
    return parts


def _write(archive: ZipFile, place: Path, part: str, members: list[ZipInfo]) -> None:
    """Writes the file or folder ``part`` of the archive to ``place``, whole or not at all."""
    is_file = members[0].filename == part
    place.parent.mkdir(parents=True, exist_ok=True)
    replace_part = replace_file if is_file else replace_folder
    with replace_part(place) as fresh:
        for member in members:
            target = fresh if is_file else fresh / member.filename.removeprefix(f"{part}/")
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as packed, target.open("xb") as file:
                shutil.copyfileobj(packed, file)
