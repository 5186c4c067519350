"""`data/load.py`, retrieval: BEIR's layout, a file of judgements, a set of pairs; each damage is one sentence."""

import json
from pathlib import Path

import pytest

from training.data.load import RetrievalData, load_data, load_retrieval
from training.errors import InputError

# U+2028 ends no line
CORPUS = {"d2": "A dog runs.", "d10": "Cats sleep.", "d1": "Stocks\u2028fell."}
QUERIES = {"q1": "dogs", "q2": "markets", "q3": "nobody asks"}
QRELS = "query-id\tcorpus-id\tscore\nq1\td2\t2\nq1\td10\t0\nq2\td1\t1\n"


def beir(folder: Path, **files: str) -> Path:
    """A folder in BEIR's layout; ``files`` replace corpus, queries or qrels."""
    corpus = [
        {"_id": key, "title": "News" * (key == "d1"), "text": text} for key, text in CORPUS.items()
    ]
    queries = [{"_id": key, "text": text, "metadata": {}} for key, text in QUERIES.items()]
    lines = (
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        for rows in (corpus, queries)
    )
    content = dict(zip(("corpus", "queries"), lines, strict=True)) | {"qrels": QRELS} | files
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for name, path in {
        "corpus": "corpus.jsonl",
        "queries": "queries.jsonl",
        "qrels": "qrels/test.tsv",
    }.items():
        (folder / path).write_text(content[name], encoding="utf-8")
    return folder


def test_a_folder_in_beirs_layout(tmp_path: Path):
    data = load_retrieval(f"beir:{beir(tmp_path)}")
    # By their ids, d1, d10, d2.
    assert data.documents == ["News Stocks\u2028fell.", "Cats sleep.", "A dog runs."]
    assert data.queries == ["dogs", "markets"]
    assert data.relevant == [{2: 2.0}, {0: 1.0}]  # the grade 0 is not relevant
    assert data.notes == ("1 queries without a relevant document are left out",)
    assert repr(data) == f"RetrievalData('beir:{tmp_path}', 2 queries, 3 documents)"


def test_the_split_is_test_unless_it_is_named(tmp_path: Path):
    (beir(tmp_path) / "qrels/dev.tsv").write_text("query-id\tcorpus-id\tscore\nq3\td2\t1\n")
    assert load_retrieval(f"beir:{tmp_path}:dev").queries == ["nobody asks"]
    assert load_retrieval(f"beir:{tmp_path}").queries == ["dogs", "markets"]
    with pytest.raises(InputError, match=r"has no judgements qrels/train\.tsv; choose dev, test"):
        load_retrieval(f"beir:{tmp_path}:train")
    (tmp_path / "qrels/test.tsv").unlink()
    assert load_retrieval(f"beir:{tmp_path}").queries == ["nobody asks"]


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (
            {"qrels": QRELS + "q2\tx\t1\nq2\ty\t1\n"},
            "name the document 'x' and 1 more, which is not there",
        ),
        ({"qrels": QRELS + "q9\td1\t1\n"}, "name the query 'q9', which is not there"),
        (
            {"qrels": QRELS + "q2\td1\t3\n"},
            "'d1' is judged twice for the query 'q2', with the grades 1 and 3; keep one",
        ),
        (
            {"qrels": QRELS + "q2\td2\tgood\n"},
            r"test\.tsv, row 4, column score: 'good' is not a number",
        ),
        (
            {"qrels": QRELS.replace("\t1\n", "\t0\n").replace("\t2\n", "\t0\n")},
            "no query with a relevant document",
        ),
        (
            {"qrels": "query-id\tscore\nq1\t1\n"},
            r"test\.tsv has the columns query-id, score; it needs corpus-id too",
        ),
        ({"corpus": ""}, r"corpus\.jsonl is empty"),
        (
            {"corpus": '{"_id": "d1", "text": "x"}\n{"_id": "d2", "te'},
            r"corpus\.jsonl, row 2 has no _id \(is not JSON",
        ),
        (
            {"corpus": '{"_id": 1, "text": "x"}\n{"_id": "1", "text": "y"}\n'},
            "row 2: the _id '1' occurs twice",
        ),
        ({"queries": "no JSON"}, r"queries\.jsonl holds no rows \(row 1 is not JSON"),
    ],
)
def test_damage_is_one_sentence(tmp_path: Path, files: dict[str, str], told: str):
    with pytest.raises(InputError, match=told) as refused:
        load_retrieval(f"beir:{beir(tmp_path, **files)}")
    assert "\n" not in str(refused.value)


def test_a_missing_file_is_one_sentence(tmp_path: Path):
    for missing, told in {
        "qrels/test.tsv": "which BEIR's",
        "corpus.jsonl": "no file .*corpus",
    }.items():
        (beir(tmp_path) / missing).unlink()
        with pytest.raises(InputError, match=told):
            load_retrieval(f"beir:{tmp_path}")


def test_a_file_of_judgements(tmp_path: Path):
    file = tmp_path / "judged.csv"
    file.write_text('query,document,relevance\ndogs,"Dogs, two.",2\ndogs,Cats.,0\ncats,Cats.,1\n')
    data = load_retrieval(f"beir:{file}")
    assert (data.queries, data.documents) == (["dogs", "cats"], ["Cats.", "Dogs, two."])
    assert data.relevant == [{1: 2.0}, {0: 1.0}]
    file.write_text("Query,Document\ndogs,Dogs.\nкот,Кошки.\n", encoding="windows-1251")
    assert load_retrieval(f"beir:{file}?encoding=windows-1251").relevant == [{0: 1.0}, {1: 1.0}]
    for name in (f"{file}?split=test", f"{file}?scale=0-2", f"{tmp_path}?columns=a,b,c"):
        with pytest.raises(
            InputError, match="holds judgements, which have no such settings; leave them out"
        ):
            load_retrieval(f"beir:{name}")


def test_the_second_sentence_of_a_positive_pair_is_found_by_the_first(tmp_path: Path):
    (tmp_path / "pairs.csv").write_text("sentence1,sentence2,label\na,b,1\na,c,1\nd,c,0\n")
    folder = tmp_path / "data/stsb"
    folder.mkdir(parents=True)
    rows = [f"x\tx\tx\t{i}\t{score}\tfirst {i}\tsecond {i}" for i, score in enumerate((5, 4, 3.9))]
    (folder / "sts-dev.csv").write_text("\n".join(rows))
    for split in ("train", "test"):
        (folder / f"sts-{split}.csv").write_text(rows[0])
    data = load_retrieval("beir:stsb:dev", tmp_path)
    assert (data.name, data.queries, data.documents) == (
        "beir:stsb:dev",
        ["first 0", "first 1"],
        [f"second {i}" for i in range(3)],
    )
    assert data.relevant == [{0: 1.0}, {1: 1.0}]


def test_texts_by_id_are_read_as_sentence_transformers_does():
    data = RetrievalData.from_dicts({"q": "dogs"}, {"b": "B", "a": "A"}, {"q": {"b"}})
    assert (data.documents, data.relevant) == (["A", "B"], [{1: 1.0}])


def test_retrieval_data_is_not_read_for_training(tmp_path: Path):
    for name in (f"beir:{tmp_path}", "nanobeir:SciFact"):
        with pytest.raises(
            InputError, match="holds queries, documents and judgements, which evaluate measures"
        ):
            load_data(name)
