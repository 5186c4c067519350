"""Uploads that a visitor takes from one page to another: the file, and how its columns are read.

    token = taken.put(TakenFile("/tmp/…/pairs.csv", columns=("Frage A", "Frage B", "gleich?")))
    taken.get(token)                                 on the other page

An address names the token. It lasts as long as the upload itself.
"""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sbert_app.services.store.cache import digest
from sbert_app.services.store.documents import DocumentStore
from training.errors import InputError


@dataclass(frozen=True)
class TakenFile:
    """``file.json``: an upload and the choices that a person has made for it.

    ``columns`` names the columns of sentence 1, sentence 2 and the judgement, as the panel of files
    holds them; "" for none.
    """

    path: str
    encoding: str = ""
    sheet: str = ""
    columns: tuple[str, str, str] = ("", "", "")
    read_as: str = ""


class TakenFiles:
    """The files that visitors have taken to another page, each a record in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._records = DocumentStore(folder, TakenFile, "/file.json", "file")

    def put(self, file: TakenFile) -> str:
        """Notes a file. Returns its token, which is the same for the same file and choices."""
        token = digest([file.path, file.encoding, file.sheet, *file.columns, file.read_as])
        self._records.put(token, file)
        return token

    def get(self, token: str) -> TakenFile:
        """The file of a token. InputError if it is deleted."""
        with suppress(InputError):
            file = self._records.get(token)
            if Path(file.path).exists():
                return file
        raise InputError(
            "the file of this link is deleted, as uploads are after a day: upload it again"
        )
