"""The built-in models, data sets and precisions, with labels and sizes, and the files that ship with the package.

Poolings and similarities are listed beside their functions (`training.pooling`,
`training.similarities`), objectives in `training.objectives`. The files, such as example sentences,
adapters, lessons and measured tables, are in ``assets/`` at the root of a clone, or inside an
installed package.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

DEFAULT_MODEL = "all-MiniLM-L6-v2"
LARGE_MODEL = "all-mpnet-base-v2"
# A BERT with four layers that was only trained to predict masked tokens. It is in the assets.
RAW_BERT = "raw-bert-mini"
ENCODERS = (DEFAULT_MODEL, LARGE_MODEL, RAW_BERT)

DEFAULT_CROSS_ENCODER = "minilm-stsb"
# The adapters, and their base encoders.
CROSS_ENCODERS = {DEFAULT_CROSS_ENCODER: DEFAULT_MODEL, "mpnet-stsb": LARGE_MODEL}

TFIDF = "tfidf"
GLOVE = "glove"
BASELINES = (TFIDF, GLOVE)
# BM25 ranks documents for a query, but does not score pairs.
BM25 = "bm25"

# Networks over word vectors with random weights, as in the paper's systems from before BERT:
# InferSent and the Universal Sentence Encoder.
BILSTM = "scratch:bilstm"
DAN = "scratch:dan"
WORD_ENCODERS = (BILSTM, DAN)

# The labels in tables for models with terse names.
MODEL_LABELS = {TFIDF: "TF-IDF", GLOVE: "GloVe average, 50 d", BM25: "BM25"}
MODEL_LABELS |= {name: f"{name} (cross-encoder)" for name in CROSS_ENCODERS}
# Models without files, or with files in the assets.
SHIPPED = (RAW_BERT, TFIDF, BM25)
# Models that come with the app, and the downloads before the first use of others.
WITH_THE_APP = (DEFAULT_MODEL, DEFAULT_CROSS_ENCODER, *BASELINES)
DOWNLOADS = {LARGE_MODEL: "404 MB", "mpnet-stsb": "404 MB"}

# The precisions that a model can compute in, with labels. `training.quantization` has the
# precisions of stored vectors.
AUTO = "auto"
DTYPES = {
    AUTO: "auto: bfloat16 if supported",
    "float32": "float32: the reference",
    "bfloat16": "bfloat16",
    "int8": "int8: fastest, slightly less exact",
}

# The forms of data.
SENTENCES = "sentences"
PAIRS = "pairs"
SCORED = "scored pairs"
LABELLED = "labelled pairs"
TRIPLETS = "triplets"
# In the order of the numbers 0, 1, 2 that the sets on the Hub contain.
NLI_LABELS: tuple[str, ...] = ("entailment", "neutral", "contradiction")
# Labels of pairs with the same meaning, and of other pairs, in lower case without spaces and
# dashes. A word such as "not" before a label of the same meaning makes it one of another meaning.
_SAME = (
    "entailment 1 true yes y t accept accepted same similar identical equal match matched matching duplicate "
    "duplicated equivalent paraphrase paraphrased "
    "positive related relevant ja wahr gleich ähnlich oui vrai identique similaire sí si vero "
    "verdadero igual sim verdadeiro да истина правда верно evet doğru tak prawda ano igen áno 是 真 对 相似 はい 예 네 "
    "pos ✓ ✔ ✅ waar igaz sant sand sann tosi pravda istina adevărat αληθησ істина cert 相同 ○"
)
_OTHER = (
    "contradiction 0 -1 false no n f reject rejected different distinct mismatch unmatched unique negative unrelated "
    "irrelevant "
    "nein falsch ungleich verschieden unähnlich non faux différent falso diferente diverso não нет ложь неправда "
    "неверно hayır yanlış nie fałsz ne nem 否 假 不 错 不相似 いいえ 아니오 아니요 neg ✗ ✘ ❌ "
    "onwaar hamis falskt falsk usann epätosi nepravda neistina fals ψευδησ хибність 不同 ×"
)
POSITIVE_LABELS = frozenset(_SAME.split())
NEGATIVE_LABELS = frozenset(_OTHER.split())


class Split(NamedTuple):
    """A split of a data set: its rows (None: not stated) and its name on the Hub."""

    rows: int | None = None
    hub_name: str = ""


class DataSet(NamedTuple):
    """A data set with a short name. Pages offer it depending on its form and splits."""

    title: str
    form: str
    splits: Mapping[str, Split]
    # The repository on the Hub; "" for the STS benchmark, which has other sources.
    repo: str = ""
    config: str = "default"
    # The names of the numbers 0, 1, 2 of its label column.
    labels: tuple[str, ...] = ()


def _sts(title: str, rows: int) -> DataSet:
    repo = f"mteb/{title.lower().replace('-', '')}-sts"
    return DataSet(title, SCORED, {"test": Split(rows, "test")}, repo)


def _splits(rows: int, dev: str = "dev", test: str = "test") -> dict[str, Split]:
    """Makes the splits train, with ``rows`` rows, dev and test. ``dev`` and ``test`` are their names on the Hub."""
    return {"train": Split(rows, "train"), "dev": Split(None, dev), "test": Split(None, test)}


DATA_SETS = {
    "stsb": DataSet(
        "STSb", SCORED, {"train": Split(5_749), "dev": Split(1_500), "test": Split(1_379)}
    ),
    "sts12": _sts("STS12", 3_108),
    "sts13": _sts("STS13", 1_500),
    "sts14": _sts("STS14", 3_750),
    "sts15": _sts("STS15", 3_000),
    "sts16": _sts("STS16", 1_186),
    "sickr": _sts("SICK-R", 9_927),
    "snli": DataSet(
        "SNLI",
        LABELLED,
        _splits(549_367, dev="validation"),
        "stanfordnlp/snli",
        "plain_text",
        NLI_LABELS,
    ),
    "mnli": DataSet(
        "MultiNLI",
        LABELLED,
        _splits(392_702, dev="validation_matched", test="validation_mismatched"),
        "nyu-mll/multi_nli",
        labels=NLI_LABELS,
    ),
    "all-nli": DataSet(
        "SNLI + MultiNLI",
        LABELLED,
        _splits(942_069),
        "sentence-transformers/all-nli",
        "pair-class",
        NLI_LABELS,
    ),
    "wiki-sections": DataSet(
        "Wikipedia sections",
        TRIPLETS,
        _splits(1_779_417, dev="validation"),
        "sentence-transformers/wikipedia-sections",
        "triplet",
    ),
}

_INSTALLED = Path(__file__).with_name("_assets")
# This code runs in a clone of the repository, or as an installed package.
IN_CLONE = not _INSTALLED.is_dir()
ASSETS = Path(__file__).parents[1] / "assets" if IN_CLONE else _INSTALLED


def plain_sentences() -> list[str]:
    """Returns about 400 short sentences on different subjects, from law to weather."""
    lines = read_asset("plain-sentences.txt").split("\n")
    return [line for line in lines if line and not line.startswith("#")]


def asset(name: str) -> Path:
    """Returns the path of a shipped file or folder, relative to ``assets/``: ``asset("examples/corpus.csv")``."""
    return ASSETS / name


def read_asset(name: str) -> str:
    return asset(name).read_text(encoding="utf-8")
