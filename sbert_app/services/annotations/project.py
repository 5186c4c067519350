"""Projects: pairs of sentences and their ratings, on disk.

    home/annotations/<id>/project.json    name, source, models
                          pairs.jsonl     the pairs, each with the reason for its selection; never changed
                          ratings.jsonl   one line for each key press, appended and synchronised to the disk
                          agreed.jsonl    the scores that the raters agreed on after they had differed, also appended
                          training.json   the run that was trained on it, with its held-out pairs

A rating is on the disk before the page sends the next one, so a killed process or a power cut loses
at most the last one. A damaged or incomplete line is skipped, and the next rating begins a new
line.
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
from typing import Annotated, Any, TypeVar

from filelock import FileLock
from pydantic import Field

from sbert_app.services.store.documents import (
    DocumentStore,
    Timestamp,
    check_text,
    read_lines,
    write_document,
)
from training.atomic import replace_folder, write_bytes
from training.errors import InputError
from training.names import slug

log = logging.getLogger("sbert_lab.annotations")

FOLDER = "annotations"
LOWEST = 0
HIGHEST = 5
MOST_PROJECTS = 500
RATINGS = "ratings.jsonl"
AGREED = "agreed.jsonl"
MOST_LINES = 500_000
# The most raters of a project. Each two of them are compared.
MOST_RATERS = 50
LONGEST_NAME = 60
Score = Annotated[int, Field(ge=LOWEST, le=HIGHEST)]


@dataclass(frozen=True)
class ChosenPair:
    """A line of ``pairs.jsonl``: a pair, and why it was selected.

    Attributes:
        reason: a key of `selection.REASONS`.
        score: the score by the model of the project.
        second_score: the score by the second model.
    """

    first: str
    second: str
    reason: str
    score: float
    second_score: float


@dataclass(frozen=True)
class ProjectInfo:
    """``project.json``. ``threshold`` is the score near which pairs were selected."""

    name: str
    source: str
    model: str
    second_model: str
    threshold: float
    seed: Annotated[int, Field(ge=0)]
    created: Timestamp
    # Whether raters say yes (5) or no (0).
    is_binary: bool = False


@dataclass(frozen=True)
class _Rating:
    """A line of ``ratings.jsonl``. It has a score; or the rater ``cannot`` judge the pair; or it is an ``undo``.

    An ``undo`` takes back the last judgement of the rater that is still valid, and has no pair.
    """

    rater: str
    pair: int = -1
    score: Score | None = None
    cannot: bool = False
    undo: bool = False


@dataclass(frozen=True)
class _Agreed:
    """A line of ``agreed.jsonl``. A score of None restores the mean of the ratings."""

    pair: Annotated[int, Field(ge=0)]
    score: Score | None
    rater: str


Line = TypeVar("Line", _Rating, _Agreed)


class Projects:
    """All projects of a home folder. Thread-safe; several processes may use the same folder."""

    def __init__(self, home: Path) -> None:
        self.store = DocumentStore(home / FOLDER, ProjectInfo, "/project.json", "project")

    def list(self) -> list[tuple[str, ProjectInfo]]:
        """The ids and descriptions of the projects that can be read, the newest first."""
        projects = self.store.list().documents.items()
        return sorted(projects, key=lambda project: -project[1].created)

    def create(self, info: ProjectInfo, pairs: Sequence[ChosenPair]) -> str:
        """Creates a project and returns its id.

        InputError if the name is unusable or taken, there are too many projects, or a text cannot be
        saved.
        """
        lines = []
        for pair in pairs:
            what = f"the pair {pair.first[:40]!r}, {pair.second[:40]!r}"
            check_text(pair.first + pair.second, what)
            lines.append(json.dumps(asdict(pair), ensure_ascii=False) + "\n")
        with self.store.locked():
            project_id = self.check_new(info.name)
            with replace_folder(self.store.folder / project_id) as fresh:
                write_bytes(fresh / "pairs.jsonl", "".join(lines).encode())
                write_document(fresh / "project.json", info)
        return project_id

    def check_new(self, name: str) -> str:
        """The id of a new project with this name. InputError if it is unusable or taken, or for too many projects."""
        name = check_name(name, "a project")
        if not (project_id := slug(name)):
            raise InputError(
                f"the project {name!r} needs a letter from a to z or a digit in its name"
            )
        if (self.store.folder / project_id).exists():
            raise InputError(
                f"there is a project {project_id!r} already; open it, or choose another name"
            )
        if len(self.list()) >= MOST_PROJECTS:
            raise InputError(f"there are {MOST_PROJECTS} projects, as many as may be")
        return project_id

    def open(self, project_id: str) -> Project:
        """Opens a project. InputError if there is none with this id, or it is damaged."""
        info = self.store.get(project_id)
        folder = self.store.path(project_id).parent
        pairs = []
        for number, pair in read_lines(folder / "pairs.jsonl", ChosenPair):
            if pair is None:
                raise InputError(
                    f"{project_id}/pairs.jsonl: line {number} is damaged; repair or remove it"
                )
            pairs.append(pair)
        if not pairs:
            raise InputError(f"{project_id}/pairs.jsonl holds no pair; repair or remove it")
        return Project(project_id, folder, info, tuple(pairs))


@dataclass(frozen=True)
class Project:
    """An open project. Every access reads its ratings from the disk."""

    id: str
    folder: Path
    info: ProjectInfo
    pairs: tuple[ChosenPair, ...]

    def rate(self, rater: str, pair: int, score: int | None) -> None:
        """Saves a rating on the disk; a score of None says that the pair cannot be judged.

        Raises InputError if the rater has no name, there are too many raters, the score is not on
        the scale, the pair does not exist, or the disk is full.
        """
        rater = check_name(rater, "a rater")
        self._check(pair, score)
        with self._locked():
            # The keys are the raters, also those who have undone all their judgements.
            raters = self._steps()
            if rater not in raters and len(raters) >= MOST_RATERS:
                raise InputError(f"{MOST_RATERS} people have judged this project, as many as may")
            judgement = {"cannot": True} if score is None else {"score": score}
            self._append(RATINGS, {"rater": rater, "pair": pair, **judgement})

    def agree(self, rater: str, pair: int, score: int | None) -> None:
        """Saves the score that the raters agreed on, which replaces their mean. None restores the mean.

        InputError if the rater has no name, the score is not on the scale, the pair does not exist,
        or the disk is full.
        """
        rater = check_name(rater, "a rater")
        self._check(pair, score)
        with self._locked():
            self._append(AGREED, {"pair": pair, "score": score, "rater": rater})

    def undo(self, rater: str) -> int | None:
        """Undoes the last rating of a rater. Returns the number of its pair; None if there was no rating."""
        rater = check_name(rater, "a rater")
        with self._locked():
            steps = self._steps().get(rater, [])
            if not steps:
                return None
            self._append(RATINGS, {"rater": rater, "undo": True})
        last_pair, _ = steps[-1]
        return last_pair

    def ratings(self) -> dict[str, dict[int, int]]:
        """The scores of each rater by pair. Raters who gave no score are left out."""
        ratings = {}
        for rater, judgements in self.judgements().items():
            scores = {pair: score for pair, score in judgements.items() if score is not None}
            if scores:
                ratings[rater] = scores
        return ratings

    def judgements(self) -> dict[str, dict[int, int | None]]:
        """The scores of each rater by pair; None for a pair that the rater cannot judge."""
        return {rater: dict(steps) for rater, steps in self._steps().items()}

    def agreed(self) -> dict[int, int]:
        """The scores that the raters have agreed on, by pair."""
        agreed: dict[int, int] = {}
        for line in self._lines(AGREED, _Agreed):
            # The agreement on the pair was withdrawn (`agree`).
            if line.score is None:
                agreed.pop(line.pair, None)
            elif line.pair < len(self.pairs):
                agreed[line.pair] = line.score
        return agreed

    def _check(self, pair: int, score: int | None) -> None:
        """Raises InputError if the pair does not exist, or the score is not on the scale of the project."""
        if score is not None and not LOWEST <= score <= HIGHEST:
            raise InputError(f"a score is a whole number from {LOWEST} to {HIGHEST}, not {score!r}")
        if score is not None and self.info.is_binary and score not in (LOWEST, HIGHEST):
            raise InputError(f"a score is {HIGHEST} for yes or {LOWEST} for no, not {score!r}")
        if not 0 <= pair < len(self.pairs):
            raise InputError(
                f"the project has {len(self.pairs)} pairs; there is none with number {pair + 1}"
            )

    def _steps(self) -> dict[str, list[tuple[int, int | None]]]:
        """The pairs and scores of each rater in the order of judgement, without those undone.

        The score is None for a pair that the rater cannot judge. The last score of a pair counts.
        """
        steps_of: dict[str, list[tuple[int, int | None]]] = {}
        for line in self._lines(RATINGS, _Rating):
            steps = steps_of.setdefault(line.rater, [])
            if not line.undo:
                steps.append((line.pair, line.score))
            # An undo of a rater whose judgements are all undone has no effect.
            elif steps:
                steps.pop()
        return steps_of

    def _lines(self, name: str, kind: type[Line]) -> Iterator[Line]:
        """Yields the usable lines of a file; none if it does not exist."""
        file = self.folder / name
        damaged = 0
        if not file.exists():
            return
        # A damaged line is None.
        for _, line in read_lines(file, kind):
            is_incomplete = isinstance(line, _Rating) and not self._is_complete(line)
            if line is None or is_incomplete:
                damaged += 1
            else:
                yield line
        if damaged:
            log.warning("%d damaged lines of %s/%s count as not written", damaged, self.id, name)

    def _is_complete(self, line: _Rating) -> bool:
        """Whether a line is an undo, or judges a pair of the project."""
        if line.undo:
            return True
        has_judgement = line.cannot or line.score is not None
        return has_judgement and 0 <= line.pair < len(self.pairs)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lets no other thread or process add ratings. InputError if the disk is full or not writable."""
        try:
            with FileLock(self.folder / ".lock", poll_interval=0.01):
                yield
        except OSError as error:
            raise InputError(f"the rating could not be saved: {error.strerror or error}") from error

    def _append(self, name: str, line: dict[str, Any]) -> None:
        """Appends a line, with the time, to a file and synchronises it to the disk."""
        line = {**line, "at": round(time.time(), 3)}
        data = json.dumps(line, ensure_ascii=False).encode() + b"\n"
        with (self.folder / name).open("ab+") as file:
            # The file is opened at its end. A line has about 100 bytes.
            if file.tell() > MOST_LINES * 100:
                raise InputError("the project has as many ratings as one may have; begin another")
            if file.tell():
                file.seek(-1, os.SEEK_END)
                # The process or the machine may have died while it wrote the last line.
                if file.read(1) != b"\n":
                    data = b"\n" + data
            file.write(data)
            file.flush()
            os.fsync(file.fileno())


def check_name(name: str, what: str) -> str:
    """Returns ``name`` with single spaces. InputError if it is empty, too long, or cannot be saved."""
    name = check_text(" ".join(name.split()), f"the name of {what}")
    if not name or len(name) > LONGEST_NAME:
        raise InputError(f"{what} needs a name of 1 to {LONGEST_NAME} characters")
    return name
