"""What Reimers & Gurevych (EMNLP 2019) report: their Tables 1 and 2 (Spearman ρ ×100 of the cosine) and Table 7.

Table 1 has models without STS training data, on the test sets of STS12–16, STSb and SICK-R. Table 2 is STSb test
alone, with some models trained on STSb; its ± is the standard deviation over ten seeds. Table 7 is sentences per
second on an Intel i7-5820K; here the fastest of its rows for each model. The rows are in ``assets/paper.json``.
"""

from __future__ import annotations

from dataclasses import dataclass

from sbert_app.services.store.documents import read_document
from training.assets import asset

SOURCE = "Reimers & Gurevych 2019"
COLUMNS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb:test", "sickr")
SIZES = {"sts12": 3_108, "sts13": 1_500, "sts14": 3_750, "sts15": 3_000, "sts16": 1_186, "stsb:test": 1_379}


@dataclass(frozen=True)
class PaperRow:
    model: str
    figures: dict[str, list[float]]  # data set -> [ρ ×100]
    std: float | None = None  # over seeds, Table 2
    speed: float | None = None  # sentences per second, Table 7


TABLE_1, TABLE_2 = read_document(asset("paper.json"), dict[str, list[PaperRow]]).values()


def column_of(data: str, size: int | None) -> str | None:
    """The paper's column that a data set is: by its name, or a file with the column's name and size. None otherwise."""
    named = next((known for known in COLUMNS if data in (known, f"{known}:test")), None)
    stem = data.replace("\\", "/").rpartition("/")[2].partition(".")[0].lower()
    return named or (stem if SIZES.get(stem) == size is not None else None)


TABLES = {"none": [], "Table 1": TABLE_1, "Tables 1 and 2": TABLE_1 + TABLE_2}
FIRST = "Table 1"
