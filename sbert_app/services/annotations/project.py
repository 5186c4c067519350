"""Projects: pairs of sentences, and what raters said about them, on disk.

    home/annotations/<id>/project.json    name, source, models
                          pairs.jsonl     the pairs and why each is among them; never changed
                          ratings.jsonl   one line for each key press, appended and synchronised to the disk
                          training.json   the run that was trained on it, with its held-out pairs

A rating is on the disk before the page shows the next pair: neither a killed process nor a power cut loses one. A line
that is damaged, or was cut off while it was written, is no rating; the next one begins a line of its own.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from filelock import FileLock
from pydantic import Field

from sbert_app.services.runs.record import slug
from sbert_app.services.store.documents import DocumentStore, Timestamp, check_text, read_lines, write_document
from training.atomic import replace_folder, write_bytes
from training.errors import InputError

log = logging.getLogger("sbert_lab.annotations")

FOLDER = "annotations"
LOWEST, HIGHEST = 0, 5
MOST_PROJECTS = 500
MOST_LINES = 500_000  # of ratings.jsonl
MOST_RATERS = 50  # of a project: each two of them are compared
LONGEST_NAME = 60  # of a project and of a rater


@dataclass(frozen=True)
class ChosenPair:
    first: str
    second: str
    reason: str  # a key of `selection.REASONS`
    score: float  # by the project's model
    second_score: float  # by the model that it was compared with


@dataclass(frozen=True)
class ProjectInfo:
    """``project.json``. ``threshold``: the score near which pairs were chosen."""

    name: str
    source: str
    model: str
    second_model: str
    threshold: float
    seed: Annotated[int, Field(ge=0)]
    created: Timestamp


@dataclass(frozen=True)
class _Rating:
    """A line of ``ratings.jsonl``: a score, or the word that the last one is taken back."""

    rater: str
    pair: int = -1
    score: Annotated[int, Field(ge=LOWEST, le=HIGHEST)] | None = None
    undo: bool = False


class Projects:
    """All projects of a home folder. Thread-safe; several processes may use the same folder."""

    def __init__(self, home: Path) -> None:
        self.store = DocumentStore(home / FOLDER, ProjectInfo, "/project.json", "project")

    def list(self) -> list[tuple[str, ProjectInfo]]:
        """(id, what it is) of every project that can be read, the newest first."""
        return sorted(self.store.list().documents.items(), key=lambda each: -each[1].created)

    def create(self, info: ProjectInfo, pairs: Sequence[ChosenPair]) -> str:
        """A new project; returns its id. InputError if there is one of that name, too many, or no text in a pair."""
        for pair in pairs:
            check_text(pair.first + pair.second, f"the pair {pair.first[:40]!r}, {pair.second[:40]!r}")
        with self.store.locked():
            project_id = self.check_new(info.name)
            with replace_folder(self.store.folder / project_id) as fresh:
                lines = [json.dumps(asdict(pair), ensure_ascii=False) + "\n" for pair in pairs]
                write_bytes(fresh / "pairs.jsonl", "".join(lines).encode())
                write_document(fresh / "project.json", info)
        return project_id

    def check_new(self, name: str) -> str:
        """The id of a new project of that name. InputError if there can be none."""
        name = check_name(name, "a project")
        project_id = slug(name)
        if not project_id:
            raise InputError(f"the project {name!r} needs a letter from a to z or a digit in its name")
        if (self.store.folder / project_id).exists():
            raise InputError(f"there is a project {project_id!r} already; open it, or choose another name")
        if len(self.list()) >= MOST_PROJECTS:
            raise InputError(f"there are {MOST_PROJECTS} projects, as many as may be")
        return project_id

    def open(self, project_id: str) -> Project:
        """InputError if there is no such project, or it is damaged."""
        info, folder = self.store.get(project_id), self.store.path(project_id).parent
        pairs = []
        for number, pair in read_lines(folder / "pairs.jsonl", ChosenPair):
            if pair is None:
                raise InputError(f"{project_id}/pairs.jsonl: line {number} is damaged; repair or remove it")
            pairs.append(pair)
        if not pairs:
            raise InputError(f"{project_id}/pairs.jsonl holds no pair; repair or remove it")
        return Project(project_id, folder, info, tuple(pairs))


@dataclass(frozen=True)
class Project:
    """An open project. Its ratings are read from the disk whenever they are asked for."""

    id: str
    folder: Path
    info: ProjectInfo
    pairs: tuple[ChosenPair, ...]

    def rate(self, rater: str, pair: int, score: int) -> None:
        """Record what a rater said about a pair; the last word counts. On the disk when this returns.

        Raises InputError if the rater has no name or is one too many, the score is not a whole number from 0 to 5,
        there is no such pair, or the disk is full.
        """
        rater = check_name(rater, "a rater")
        if not LOWEST <= score <= HIGHEST:
            raise InputError(f"a score is a whole number from {LOWEST} to {HIGHEST}, not {score!r}")
        if not 0 <= pair < len(self.pairs):
            raise InputError(f"the project has {len(self.pairs)} pairs; there is none with number {pair + 1}")
        with self._locked():
            raters = self._replay()[0]
            if rater not in raters and len(raters) >= MOST_RATERS:
                raise InputError(f"{MOST_RATERS} people have judged this project, as many as may")
            self._append({"rater": rater, "pair": pair, "score": score, "at": round(time.time(), 3)})

    def undo(self, rater: str) -> int | None:
        """Take back the rater's last word; returns its pair, None if there is nothing to take back."""
        rater = check_name(rater, "a rater")
        with self._locked():
            history = self._replay()[1].get(rater, [])
            if not history:
                return None
            self._append({"rater": rater, "undo": True, "at": round(time.time(), 3)})
        return history[-1][0]

    def ratings(self) -> dict[str, dict[int, int]]:
        """Rater -> pair -> score, as they stand."""
        return {rater: scores for rater, scores in self._replay()[0].items() if scores}

    def _replay(self) -> tuple[dict[str, dict[int, int]], dict[str, list[tuple[int, int | None]]]]:
        """The ratings, and of each rater (pair, score before) of what can be undone."""
        standing: dict[str, dict[int, int]] = {}
        history: dict[str, list[tuple[int, int | None]]] = {}
        for line in self._lines():
            scores, steps = standing.setdefault(line.rater, {}), history.setdefault(line.rater, [])
            if line.score is not None:
                steps.append((line.pair, scores.get(line.pair)))
                scores[line.pair] = line.score
            elif steps:
                pair, before = steps.pop()
                scores.pop(pair)
                if before is not None:
                    scores[pair] = before
        return standing, history

    def _lines(self) -> Iterator[_Rating]:
        file, damaged = self.folder / "ratings.jsonl", 0
        for _, line in read_lines(file, _Rating) if file.exists() else ():
            if line is not None and (line.undo if line.score is None else 0 <= line.pair < len(self.pairs)):
                yield line
            else:  # cut off when the machine went down
                damaged += 1
        if damaged:
            log.warning("%d damaged lines of %s/ratings.jsonl count as not written", damaged, self.id)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """No other thread or process adds a rating meanwhile. InputError if the disk is full or not writable."""
        try:
            with FileLock(self.folder / ".lock", poll_interval=0.01):
                yield
        except OSError as error:
            raise InputError(f"the rating could not be saved: {error.strerror or error}") from error

    def _append(self, line: dict[str, Any]) -> None:
        """One line at the end of the file, synchronised to the disk."""
        data = json.dumps(line, ensure_ascii=False).encode() + b"\n"
        with (self.folder / "ratings.jsonl").open("ab+") as file:
            if file.tell() > MOST_LINES * 100:
                raise InputError("the project has as many ratings as one may have; begin another")
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # the line before was cut off
                    data = b"\n" + data
            file.write(data)
            file.flush()
            os.fsync(file.fileno())


def check_name(name: str, what: str) -> str:
    """``name`` without needless spaces. InputError if it is empty or too long, or has half a character."""
    name = check_text(" ".join(name.split()), f"the name of {what}")
    if not name or len(name) > LONGEST_NAME:
        raise InputError(f"{what} needs a name of 1 to {LONGEST_NAME} characters")
    return name
