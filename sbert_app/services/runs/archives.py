"""Archives: people's work in a home folder, and the model of a run, which can also be pushed to the Hub.

    back_up(home, Path("lab.zip"))       what `services.store.HOME` calls work: runs, experiments, projects
    restore(home, Path("lab.zip"))       the parts that the home folder lacks; nothing in it is written over

Each run, experiment, … is restored as a whole, under its name at once. An archive is checked whole before that: its
checksums, its size, and that each of its files is one that a home folder may have.

The archive of a model has a folder in the format of sentence-transformers with its card and ``run.json``, all settings
and the figures of every evaluation.
"""

import json
import os
import re
import shutil
import stat
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from sbert_app.formats import format_bytes
from sbert_app.services.background.watch import AT_WORK, State
from sbert_app.services.runs.record import Run, RunBusyError, RunStateError
from sbert_app.services.runs.store import RunStore
from sbert_app.services.store import home_entry
from training.atomic import replace_file, replace_folder, write_text
from training.errors import InputError, unwritable
from training.names import slug
from training.sources.home import make_home
from training.sources.hub import push_folder
from training.trainer.model_card import with_model_index

# Locks and files that are being written, beside hidden files, are no work.
NOT_SAVED = {"lock", "stop", "reserve"}
# The least bytes that a file takes.
BLOCK = 4096
# A path that leads down, to no hidden file.
_NAME = re.compile(r"(?:[^/\\:.][^/\\:]*/)+[^/\\:.][^/\\:]*")


class Saved(NamedTuple):
    """The outcome of `back_up`.

    Attributes:
        left_out: a sentence for each file that could not be read.
        at_work: the runs that were running, which begin anew, without checkpoint and model.
    """

    files: int
    left_out: tuple[str, ...]
    at_work: tuple[str, ...]


def back_up(home: Path, target: Path) -> Saved:
    """Write people's work into a new ZIP file. InputError if the file exists; OSError if it cannot be written."""
    if os.path.lexists(target):
        raise InputError(f"{target} exists already; name a new file")
    at_work = tuple(RunStore(home).ids(State.RUNNING))
    changing = tuple(f"runs/{run}/{part}/" for run in at_work for part in ("checkpoint", "model"))
    count = 0
    left_out = []
    with replace_file(target) as fresh, ZipFile(fresh, "x", ZIP_DEFLATED, strict_timestamps=False) as archive:
        archive.compresslevel = 1
        for file in files_of(home):
            name = file.relative_to(home).as_posix()
            entry = home_entry(name)
            if entry is None or not entry.is_work or file.name in NOT_SAVED or name.startswith(changing):
                continue
            try:
                # A part may be unreadable, as on a damaged disk.
                with file.open("rb") as opened:
                    while opened.read(1 << 20):
                        pass
            except FileNotFoundError:
                # It was deleted meanwhile.
                continue
            except OSError as error:
                left_out.append(f"{file} cannot be read: {error.strerror or error}")
                continue
            archive.write(file, name)
            count += 1
    return Saved(count, tuple(left_out), at_work)


def restore(home: Path, source: Path) -> tuple[list[str], list[str]]:
    """Write the missing parts of a home folder. InputError, before anything is written, for an unusable archive.

    Returns the parts that were restored, as "runs/<id>", "experiments/<id>.json", …, and those that were there before.
    """
    make_home(home)
    try:
        with ZipFile(source) as archive:
            things = _checked(archive, source, shutil.disk_usage(home).free)
            there = [thing for thing in things if os.path.lexists(home / thing)]
            for thing, members in things.items():
                if thing not in there:
                    _write(archive, home / thing, thing, members)
    except InputError:
        raise
    except Exception as error:
        # bz2 raises an error without a number on damaged data.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise InputError(f"{source} is damaged, or no backup ({error}); nothing of it is restored") from error
    return [thing for thing in things if thing not in there], there


def files_of(home: Path) -> Iterator[Path]:
    """Yields the files of a home folder in the order of their names, without links and hidden ones."""
    for folder, folders, names in os.walk(home):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            file = Path(folder, name)
            # It may be deleted meanwhile.
            with suppress(FileNotFoundError):
                if not name.startswith(".") and stat.S_ISREG(file.lstat().st_mode):
                    yield file


def _checked(archive: ZipFile, source: Path, free: int) -> dict[str, list[ZipInfo]]:
    """The members of each run, experiment, … InputError unless all can be restored."""
    things: dict[str, list[ZipInfo]] = {}
    members = [member for member in archive.infolist() if not member.is_dir()]
    names = Counter(member.filename for member in members)
    folders = {str(folder) for name in names for folder in PurePosixPath(name).parents}
    for member in members:
        name = member.filename
        entry = home_entry(name)
        is_allowed = entry is not None and entry.is_work and _NAME.fullmatch(name) and name not in folders
        if not is_allowed or entry is None or stat.S_ISLNK(member.external_attr >> 16) or names[name] > 1:
            raise InputError(f"{source} is no backup of a home folder: it has {name[:100]!r}; nothing is restored")
        thing = entry.name + name.removeprefix(entry.name).partition("/")[0]
        things.setdefault(thing, []).append(member)
    if (size := sum(max(member.file_size, BLOCK) for member in members)) > free:
        raise InputError(f"{source} takes {format_bytes(size)}, and {format_bytes(free)} are free; nothing is restored")
    if (damaged := archive.testzip()) is not None:
        raise InputError(f"{source} is damaged at {damaged}; nothing of it is restored")
    return things


def _write(archive: ZipFile, place: Path, thing: str, members: list[ZipInfo]) -> None:
    is_file = members[0].filename == thing
    place.parent.mkdir(parents=True, exist_ok=True)
    with (replace_file if is_file else replace_folder)(place) as fresh:
        for member in members:
            target = fresh if is_file else fresh / member.filename.removeprefix(f"{thing}/")
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as packed, target.open("xb") as file:
                shutil.copyfileobj(packed, file)


def export(store: RunStore, run_id: str, folder: Path) -> Path:
    """Write ``folder``/<name of the run>.zip and return its path. The folder inside has the same name.

    It is not compressed, as weights hardly shrink. InputError as `_with_model`, and if it cannot be written.
    """
    run = _with_model(store, run_id, "export")
    name = slug(run.name) or run.id
    target = folder / f"{name}.zip"
    evaluations = [event for event in run.events if event["kind"] == "eval"]
    values = {"id": run.id, "name": run.name, "config": run.config.to_dict(), "evaluations": evaluations}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with replace_file(target) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
            for file in sorted(run.folder.joinpath("model").rglob("*")):
                if file.is_file():
                    archive.write(file, f"{name}/{file.relative_to(run.folder / 'model')}")
            archive.writestr(f"{name}/run.json", json.dumps(values, indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        raise unwritable(target, error) from error
    return target


def _with_model(store: RunStore, run_id: str, verb: str) -> Run:
    """The run, if it has a model. RunBusyError while it is queued or running, else RunStateError."""
    run = store.get(run_id)
    if run.state in AT_WORK:
        raise RunBusyError(f"run {run_id} is {run.state}; {verb} it when it has ended, or stop it")
    if not run.has_model:
        raise RunStateError(f"run {run_id} has no model: it ended before its first evaluation; resume it")
    return run


def push(store: RunStore, run_id: str, repo: str, token: str, private: bool = True) -> str:
    """Upload the model with its card to ``repo`` (org/name), which is created if needed. Returns its address.

    InputError as `push_folder` and `_with_model`.
    """
    run = _with_model(store, run_id, "push")
    repo = repo.strip()

    def write(model: Path) -> None:
        shutil.copytree(run.folder / "model", model)
        card = model / "README.md"
        text = card.read_text(encoding="utf-8") if card.exists() else ""
        write_text(card, with_model_index(text, run.config, run.progress.best or {}, repo, run.progress.test))

    return push_folder(write, repo, token, private, f"{run.name}, trained with SBERT Lab")
