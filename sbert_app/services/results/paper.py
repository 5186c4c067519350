"""What Reimers & Gurevych (EMNLP 2019) report: their Tables 1 and 2 (Spearman ρ ×100 of the cosine) and Table 7.

Table 1 has models without STS training data, on the test sets of STS12–16, STSb and SICK-R. Table 2 is STSb test
alone, with some models trained on STSb; its ± is the standard deviation over ten seeds. Table 7 is sentences per
second on an Intel i7-5820K; here the fastest of its rows for each model.
"""

from __future__ import annotations

from typing import NamedTuple

SOURCE = "Reimers & Gurevych 2019"
COLUMNS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb:test", "sickr")
SIZES = {"sts12": 3_108, "sts13": 1_500, "sts14": 3_750, "sts15": 3_000, "sts16": 1_186, "stsb:test": 1_379}


class PaperRow(NamedTuple):
    model: str
    figures: dict[str, list[float]]  # data set -> [ρ ×100]
    std: float | None = None  # over seeds, Table 2
    speed: float | None = None  # sentences per second, Table 7


def _table1(model: str, *correlations: float, speed: float | None = None) -> PaperRow:
    return PaperRow(model, {name: [each] for name, each in zip(COLUMNS, correlations, strict=True)}, speed=speed)


def _table2(model: str, correlation: float, std: float) -> PaperRow:
    return PaperRow(model, {"stsb:test": [correlation]}, std)


TABLE_1 = (
    _table1("Avg. GloVe embeddings", 55.14, 70.66, 59.73, 68.25, 63.66, 58.02, 53.76, speed=6_469),
    _table1("Avg. BERT embeddings", 38.78, 57.98, 57.98, 63.15, 61.06, 46.35, 58.40),
    _table1("BERT CLS-vector", 20.16, 30.01, 20.09, 36.88, 38.08, 16.50, 42.63),
    _table1("InferSent – GloVe", 52.86, 66.75, 62.15, 72.77, 66.87, 68.03, 65.65, speed=137),
    _table1("Universal Sentence Encoder", 64.49, 67.80, 64.61, 76.83, 73.18, 74.92, 76.69, speed=67),
    _table1("SBERT-NLI-base", 70.97, 76.53, 73.19, 79.09, 74.30, 77.03, 72.91, speed=83),
    _table1("SBERT-NLI-large", 72.27, 78.46, 74.90, 80.99, 76.25, 79.23, 73.75),
    _table1("SRoBERTa-NLI-base", 71.54, 72.49, 70.80, 78.74, 73.69, 77.77, 74.46),
    _table1("SRoBERTa-NLI-large", 74.53, 77.00, 73.18, 81.85, 76.82, 79.10, 74.29),
)
TABLE_2 = (
    _table2("BERT-STSb-base (cross-encoder)", 84.30, 0.76),
    _table2("SBERT-STSb-base", 84.67, 0.19),
    _table2("SRoBERTa-STSb-base", 84.92, 0.34),
    _table2("BERT-STSb-large (cross-encoder)", 85.64, 0.81),
    _table2("SBERT-STSb-large", 84.45, 0.43),
    _table2("SRoBERTa-STSb-large", 85.02, 0.76),
    _table2("BERT-NLI-STSb-base (cross-encoder)", 88.33, 0.19),
    _table2("SBERT-NLI-STSb-base", 85.35, 0.17),
    _table2("SRoBERTa-NLI-STSb-base", 84.79, 0.38),
    _table2("BERT-NLI-STSb-large (cross-encoder)", 88.77, 0.46),
    _table2("SBERT-NLI-STSb-large", 86.10, 0.13),
    _table2("SRoBERTa-NLI-STSb-large", 86.15, 0.35),
)


def column_of(data: str, size: int | None) -> str | None:
    """The paper's column that a data set is: by its name, or a file with the column's name and size. None otherwise."""
    named = next((known for known in COLUMNS if data in (known, f"{known}:test")), None)
    stem = data.replace("\\", "/").rpartition("/")[2].partition(".")[0].lower()
    return named or (stem if SIZES.get(stem) == size is not None else None)


TABLES = {"none": (), "Table 1": TABLE_1, "Tables 1 and 2": (*TABLE_1, *TABLE_2)}
FIRST = "Table 1"
