"""Every kind of file in the home folder, damaged in every way: one sentence or a new file, and no other is hidden."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from written_home import Answers, look_at, open_home, write_home

from sbert_app.services.container import Services
from sbert_app.services.runs.archives import files_of
from sbert_app.services.store import HOME, HomeEntry, home_entry

FOLDER, LOOP = "a folder", "a loop of links"
LOCKS = {"lock", "jobs.lock"}  # and what is hidden
GATE, ALL = 3, 12  # flipped bits, and truncations, of each file
ALL_NAMES = ("runs/*/model/*", "runs/*/checkpoint/*", "tmp/*")  # patterns of several kinds
DEAR = (
    *ALL_NAMES,
    "runs/*/negatives.jsonl",
    "vectors/*.f32",
    "jobs.sqlite*",
)  # to look at: a model is loaded or trained
SLOWLY_READ = ("runs/*/events.jsonl", "calibration/*.json")  # drawn as figures; measured anew
# What `write_home` does not write, and the tests of its readers.
ELSEWHERE = {
    "models/static/*/*": "test_folder",
    "models/*": "test_folder",
    "data/*": "test_load",
    "numba/*": "test_projection",
    "vectors/*.f32.incomplete": "test_large_corpora",
    "worker-*.log": "nobody reads it",
    "runs/*/tensorboard/*": "TensorBoard reads it",
    "runs/*/own.json": "of a run with objects of one's own: test_own_runs",
    "runs/*/stop": "an empty file",
    "runs/*/reserve": "an empty file",
}


@pytest.fixture(scope="module")
def written(tmp_path_factory, home) -> Services:
    """Of a home folder with everything that the app keeps."""
    own = tmp_path_factory.mktemp("written") / "home"
    for kind in ("models", "data"):
        (own / kind).mkdir(parents=True)
        for folder in (home / kind).iterdir():
            if folder.name not in ("uploads", "static"):  # what other tests have written
                (own / kind / folder.name).symlink_to(folder)
    write_home(own)
    return open_home(own)


def patterns() -> list[tuple[HomeEntry, str]]:
    return [(kept, f"{kept.name}{each}") for kept in HOME for each in (*kept.reported, *kept.skipped, *kept.recomputed)]


def names_in(home: Path) -> list[str]:
    return [
        name for file in files_of(home) if (name := file.relative_to(home).as_posix()).rpartition("/")[2] not in LOCKS
    ]


def test_whatever_is_written_is_declared(written):
    assert [name for name in names_in(written.settings.home) if home_entry(name) is None] == []


def test_whatever_is_declared_is_damaged_here_or_elsewhere(written):
    found = {pattern for name in names_in(written.settings.home) for pattern in declared(name)}
    assert found | ELSEWHERE.keys() == {pattern for _, pattern in patterns()}


def declared(name: str) -> list[str]:
    """The patterns of a file."""
    return [pattern for kept, pattern in patterns() if kept is home_entry(name) and fnmatchcase(name, pattern)]


def examples(home: Path, pattern: str) -> list[Path]:
    """One file of each name: of checkpoints and models all, of other kinds the first."""
    found = [name for name in names_in(home) if pattern in declared(name) and look_at(name) is not None]
    kinds = {name.partition("/model/")[2] or name.rpartition("/")[2]: home / name for name in found}
    return list(kinds.values()) if pattern in ALL_NAMES else [home / min(found, key=lambda name: name.count("/"))]


def damages(data: bytes, count: int) -> Iterator[bytes | str]:
    yield from (FOLDER, LOOP, b"", b"\xff\xfe" + data, bytes(len(data)), random.Random(0).randbytes(300))
    yield from (b"[" * 100_000, b"9" * 5_000, b"null", b"[]", b"{}")
    changed = [*changed_fields(data)]
    yield from changed[:: max(1, len(changed) // (4 * count))]
    for at in range(0, len(data), max(1, len(data) // count)):
        yield data[:at]
        yield data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :]


def changed_fields(data: bytes) -> Iterator[bytes]:
    """A JSON object, or the first of several in lines, with a field left out or of another type, and a new one."""
    try:
        line, rest = data, b""
        if not data.startswith((b"{\n", b"[")):
            line, _, rest = data.partition(b"\n")
        values = json.loads(line)
    except ValueError:
        return
    if not isinstance(values, dict):
        return
    yield json.dumps({**values, "later": {"a": [1]}}).encode() + b"\n" + rest
    for name in values:
        for changed in (
            {**values, name: 9e99},
            {**values, name: [{}]},
            {each: values[each] for each in values if each != name},
        ):
            yield json.dumps(changed).encode() + b"\n" + rest


def put(path: Path, damage: bytes | str) -> None:
    path.unlink()
    if damage == FOLDER:
        path.mkdir()
    elif damage == LOOP:
        path.symlink_to(path)
    elif isinstance(damage, bytes):
        path.write_bytes(damage)


def expect(services: Services, file: Path, damage: bytes | str, before: Answers) -> None:
    """Of the others readers say what they said before; of the damaged one what is there, or one sentence."""
    name = file.relative_to(services.settings.home).as_posix()
    kept, (after, said) = home_entry(name), look_at(name)(services)
    if kept.recomputed:
        assert after == before
        return
    others = {key: value for key, value in before.items() if key not in name}
    assert {key: value for key, value in after.items() if key in others} == others
    assert len(after) + len(said) == len(before), (after.keys(), said)
    assert all("\n" not in sentence for sentence in said)
    if kept.name != "tmp/":
        # Of several files that do not fit together the folder is named; negatives with another word, by the checkpoint.
        names = (file.name, file.parent.name, "checkpoint", "model")
        assert all(any(each in sentence for each in names) for sentence in said), said
        assert not said or isinstance(damage, str) or file.read_bytes() == damage


@contextmanager
def restored(home: Path, name: str, copies: Path) -> Iterator[None]:
    """What is done to a file, and to what lies beside it, is undone."""
    parts = 2 if name.startswith("runs/") else 3
    place = home.joinpath(*name.split("/")[:parts]) if name.count("/") > 2 else (home / name).parent
    is_queue = place == home
    shutil.copytree(place, copies / "copy", symlinks=True, ignore=lambda *_: ["models", "data"] if is_queue else [])
    try:
        yield
    finally:
        for path in home.glob("jobs*") if is_queue else (place,):
            path.unlink() if path.is_symlink() or path.is_file() else shutil.rmtree(path)
        shutil.copytree(copies / "copy", place, symlinks=True, dirs_exist_ok=is_queue)
        shutil.rmtree(copies / "copy")


def cases() -> Iterator[Any]:
    for _, pattern in patterns():
        if pattern not in ELSEWHERE:
            if pattern not in DEAR:
                yield pattern, 1 if pattern in SLOWLY_READ else GATE
            yield pytest.param(pattern, GATE if pattern in DEAR else ALL, marks=pytest.mark.slow)


@pytest.mark.parametrize(("pattern", "count"), cases())
def test_a_damaged_file_is_a_sentence_or_made_anew_and_hides_no_other(written, pattern, count, tmp_path):
    home = written.settings.home
    files = examples(home, pattern)
    for file in files:
        name, data = file.relative_to(home).as_posix(), file.read_bytes()
        with restored(home, name, tmp_path):
            before, said = look_at(name)(written)
        assert said == []
        for damage in damages(data, count):
            if pattern.startswith(("vectors/", "calibration/")) and len(damage) == len(data):
                continue  # they have no checksum, and another digit is a number too
            with restored(home, name, tmp_path):
                put(file, damage)
                try:
                    expect(written, file, damage, before)
                except Exception as error:
                    raise AssertionError(f"{name}: {damage[:300]!r}: {type(error).__name__}: {error}") from error
    assert files
