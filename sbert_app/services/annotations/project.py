"""Projects: pairs of sentences, and what raters said about them, on disk.

    home/annotations/<id>/project.json    name, source, models
                          pairs.jsonl     the pairs and why each is among them; never changed
                          ratings.jsonl   one line for each key press, appended and synchronised to the disk
                          training.json   the run that was trained on it, with its held-out pairs

A rating is on the disk before the page shows the next pair: neither a killed process nor a power cut loses one. A line
that was cut off while it was written is no rating; the next one begins a line of its own.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sbert_app.services.runs.record import slug
from training.atomic import replace_folder, write_text
from training.errors import InputError, unwritable

log = logging.getLogger("sbert_lab.annotations")

FOLDER = "annotations"
LOWEST, HIGHEST = 0, 5
MOST_PROJECTS = 500
MOST_LINES = 500_000  # of ratings.jsonl
MOST_RATERS = 50  # of a project: each two of them are compared
LONGEST_NAME = 60  # of a project and of a rater
_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


@dataclass(frozen=True)
class ChosenPair:
    """A pair to judge."""

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
    seed: int
    created: float


class Projects:
    """All projects of a home folder. Thread-safe; several processes may use the same folder."""

    def __init__(self, home: Path) -> None:
        self.folder = home / FOLDER
        self._appending = threading.Lock()

    def list(self) -> list[tuple[str, ProjectInfo]]:
        """(id, what it is) of every project, the newest first."""
        found = []
        for file in self.folder.glob("[!.]*/project.json"):
            try:
                found.append((file.parent.name, _read_info(file)))
            except InputError as error:
                log.warning("%s", error)
        return sorted(found, key=lambda each: -each[1].created)

    def create(self, info: ProjectInfo, pairs: Sequence[ChosenPair]) -> str:
        """A new project; returns its id. InputError if there is one of that name, or too many."""
        project_id = self.check_new(info.name)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with replace_folder(self.folder / project_id) as fresh:
                lines = (json.dumps(asdict(pair), ensure_ascii=False) for pair in pairs)
                write_text(fresh / "pairs.jsonl", "".join(f"{line}\n" for line in lines))
                write_text(fresh / "project.json", json.dumps(asdict(info), ensure_ascii=False, indent=1) + "\n")
        except OSError as error:
            raise unwritable(self.folder / project_id, error) from error
        return project_id

    def check_new(self, name: str) -> str:
        """The id of a new project of that name. InputError if there can be none."""
        name = check_name(name, "a project")
        project_id = slug(name)
        if not project_id:
            raise InputError(f"the project {name!r} needs a letter from a to z or a digit in its name")
        if (self.folder / project_id).exists():
            raise InputError(f"there is a project {project_id!r} already; open it, or choose another name")
        if len(self.list()) >= MOST_PROJECTS:
            raise InputError(f"there are {MOST_PROJECTS} projects, as many as may be")
        return project_id

    def open(self, project_id: str) -> Project:
        """InputError if there is no such project."""
        folder = self.folder / project_id
        if not _ID.fullmatch(project_id) or not (folder / "project.json").is_file():
            raise InputError(f"there is no project {project_id[:80]!r}")
        return Project(project_id, folder, _read_info(folder / "project.json"), _read_pairs(folder), self._appending)


@dataclass(frozen=True)
class Project:
    """An open project. Its ratings are read from the disk whenever they are asked for."""

    id: str
    folder: Path
    info: ProjectInfo
    pairs: tuple[ChosenPair, ...]
    _appending: threading.Lock

    def rate(self, rater: str, pair: int, score: int) -> None:
        """Record what a rater said about a pair; the last word counts. On the disk when this returns.

        Raises:
            InputError: the rater has no name or is one too many, the score is not a whole number from 0 to 5, there is
                no such pair, or the disk is full.
        """
        rater = check_name(rater, "a rater")
        if not LOWEST <= score <= HIGHEST:
            raise InputError(f"a score is a whole number from {LOWEST} to {HIGHEST}, not {score!r}")
        if not 0 <= pair < len(self.pairs):
            raise InputError(f"the project has {len(self.pairs)} pairs; there is none with number {pair + 1}")
        raters = self._replay()[0]
        if rater not in raters and len(raters) >= MOST_RATERS:
            raise InputError(f"{MOST_RATERS} people have judged this project, as many as may")
        self._append({"rater": rater, "pair": pair, "score": score, "at": round(time.time(), 3)})

    def undo(self, rater: str) -> int | None:
        """Take back the rater's last word; returns its pair, None if there is nothing to take back."""
        rater = check_name(rater, "a rater")
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
            scores, steps = standing.setdefault(line["rater"], {}), history.setdefault(line["rater"], [])
            if "undo" not in line:
                steps.append((line["pair"], scores.get(line["pair"])))
                scores[line["pair"]] = line["score"]
            elif steps:
                pair, before = steps.pop()
                scores.pop(pair)
                if before is not None:
                    scores[pair] = before
        return standing, history

    def _lines(self) -> Iterator[dict[str, Any]]:
        try:
            text = (self.folder / "ratings.jsonl").read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return
        for number, line in enumerate(text.splitlines(), 1):
            try:
                yield json.loads(line)
            except ValueError:  # cut off when the machine went down
                log.warning("line %d of %s is incomplete and counts as not written", number, self.folder.name)

    def _append(self, line: dict[str, Any]) -> None:
        """One line at the end of the file, synchronised to the disk."""
        data = json.dumps(line, ensure_ascii=False).encode() + b"\n"
        path = self.folder / "ratings.jsonl"
        try:
            with self._appending, path.open("ab+") as file:
                if file.tell() > MOST_LINES * 100:
                    raise InputError("the project has as many ratings as one may have; begin another")
                if file.tell():
                    file.seek(-1, os.SEEK_END)
                    if file.read(1) != b"\n":  # the line before was cut off
                        data = b"\n" + data
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise InputError(f"the rating could not be saved: {error.strerror or error}") from error


def check_name(name: str, what: str) -> str:
    """``name`` without needless spaces. InputError if it is empty or too long."""
    name = " ".join(name.split())
    if not name or len(name) > LONGEST_NAME:
        raise InputError(f"{what} needs a name of 1 to {LONGEST_NAME} characters")
    return name


def _read_info(file: Path) -> ProjectInfo:
    try:
        return ProjectInfo(**json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{file} cannot be read: {error}") from error


def _read_pairs(folder: Path) -> tuple[ChosenPair, ...]:
    try:
        lines = (folder / "pairs.jsonl").read_text(encoding="utf-8").splitlines()
        return tuple(ChosenPair(**json.loads(line)) for line in lines)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"the pairs of {folder.name} cannot be read: {error}") from error
