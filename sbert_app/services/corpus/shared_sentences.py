"""Sentences that one page hands to another: kept as a file for a day, named by a token that fits into an address.

    token = shared.put(["A man sleeps.", "A dog barks."])      /?tab=many&sentences=TOKEN, /train?sentences=TOKEN
    shared.sentences(token), shared.path(token), shared.pairs(token)

Long texts do not go into addresses: servers and browsers refuse them from a few thousand characters on. The files are
JSON lines, which hold any text as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path

from sbert_app.services.store.cache import digest
from training.atomic import open_atomic
from training.errors import InputError, unwritable

MAX_PAIRED = 500  # sentences whose pairs are written: 124,750 pairs
MOST_CHARACTERS = 100_000_000  # of all pairs together: sentences may be long
TOKEN = re.compile(r"[0-9a-f]{32}")
SENTENCES, PAIRS = "selected-sentences.jsonl", "selected-pairs.jsonl"


class SharedSentences:
    """Files of sentences in ``folder``, which is emptied like the other temporary files of the home folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, sentences: Sequence[str]) -> str:
        """Write the sentences to a file and return its token; equal sentences have equal tokens.

        Raises InputError if the file cannot be written.
        """
        token = digest(sentences)
        _write(self.folder / token / SENTENCES, ({"sentence": sentence} for sentence in sentences))
        return token

    def path(self, token: str) -> Path:
        """The file of the sentences, with the one column ``sentence``.

        Raises InputError if nothing is kept under this token.
        """
        path = self.folder / token / SENTENCES if TOKEN.fullmatch(token) else None
        if path is None or not path.exists():
            raise InputError("the sentences of this link are not kept any more: select them again in Explore.")
        return path

    def sentences(self, token: str) -> list[str]:
        """The sentences in their order. InputError as `path`."""
        with self.path(token).open(encoding="utf-8") as file:
            return [json.loads(line)["sentence"] for line in file]

    def pairs(self, token: str) -> Path:
        """A file of all pairs, with the columns ``sentence1`` and ``sentence2``.

        Raises InputError as `path`, or if there are more than 500 sentences, or fewer than two, or they are too long.
        """
        sentences = self.sentences(token)
        if not 2 <= len(sentences) <= MAX_PAIRED:
            raise InputError(f"{len(sentences):,} sentences were sent; pairs are made of 2 to {MAX_PAIRED}.")
        characters = (len(sentences) - 1) * sum(map(len, sentences))
        if characters > MOST_CHARACTERS:
            raise InputError(
                f"the pairs of these sentences have {characters:,} characters, and at most {MOST_CHARACTERS:,} are "
                "made; select fewer or shorter ones."
            )
        path = self.folder / token / PAIRS
        if not path.exists():
            _write(path, ({"sentence1": first, "sentence2": second} for first, second in combinations(sentences, 2)))
        return path


def _write(path: Path, rows: Iterable[dict[str, str]]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_atomic(path) as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    except OSError as error:
        raise unwritable(path, error) from error
