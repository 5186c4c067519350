"""The genres of the STS benchmark (news, captions, forums): classes and topics in data that everyone has."""

from __future__ import annotations

import csv
from pathlib import Path

from sbert_app.services.results.transfer import ClassificationData
from training.atomic import open_atomic
from training.errors import InputError
from training.sources.resolve import stsb_folder

NAMES = {"main-news": "news", "main-captions": "captions", "main-forums": "forums", "main-forum": "forums"}
GENRE, SCORE, FIRST, SECOND = 0, 4, 5, 6  # columns of the published files


def sentences_by_genre(home: Path) -> ClassificationData:
    """The distinct sentences of STSb dev, each with its genre. Sentences that occur in two genres are left out.

    The sentences of a pair are related rows: many are near-duplicates.
    """
    genres: dict[str, set[str]] = {}
    rows = _rows(home)
    for row in rows:
        for sentence in (row[FIRST], row[SECOND]):
            genres.setdefault(sentence, set()).add(NAMES[row[GENRE]])
    genre_of = {sentence: names.pop() for sentence, names in genres.items() if len(names) == 1}
    place = {sentence: i for i, sentence in enumerate(genre_of)}
    pairs = [(place[row[FIRST]], place[row[SECOND]]) for row in rows if {row[FIRST], row[SECOND]} <= place.keys()]
    return ClassificationData("STSb dev by genre", (list(genre_of),), list(genre_of.values()), pairs=tuple(pairs))


def pairs_by_genre(home: Path) -> Path:
    """STSb dev as a CSV file with the columns sentence1, sentence2, score, topic, written to the home folder once."""
    file = home / "data" / "stsb-dev-by-genre.csv"
    if not file.exists():
        rows = _rows(home)
        file.parent.mkdir(parents=True, exist_ok=True)
        with open_atomic(file, newline="") as out:
            writer = csv.writer(out)
            writer.writerow(["sentence1", "sentence2", "score", "topic"])
            writer.writerows([row[FIRST], row[SECOND], row[SCORE], NAMES[row[GENRE]]] for row in rows)
    return file


def _rows(home: Path) -> list[list[str]]:
    """Raises InputError for the Hub's copy of the benchmark, which has no genres."""
    lines = (stsb_folder(home).path / "sts-dev.csv").read_text(encoding="utf-8").split("\n")
    rows = [line.split("\t") for line in lines if line.strip()]
    if not all(row[GENRE] in NAMES for row in rows):
        raise InputError(
            "this copy of the STS benchmark comes from the Hub and does not contain the genres; upload a file instead"
        )
    return rows
