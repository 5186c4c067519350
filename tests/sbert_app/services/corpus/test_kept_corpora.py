"""`corpus/open_corpora.py` and `corpus.py`: an opened file is read again by its id; vectors beside a file."""

import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sbert_app.services.corpus.corpus import OWN, Corpus, read_vectors, vector_columns
from sbert_app.services.corpus.open_corpora import EmbeddingCache, KeptCorpora, KeptCorpus
from sbert_app.services.store.temp_folder import TempFolder
from training.data.tables.table import open_table
from training.errors import InputError

VECTORS = np.array([[3, 4], [0, 2], [9, 9], [5, 0]], dtype=np.float64)


@pytest.fixture
def kept(tmp_path):
    return KeptCorpora(TempFolder(tmp_path / "tmp"), 100)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "reviews.csv"
    path.write_text("id,text\n1,A dog.\n2,A cat.\n3,\n4,A fish.\n")
    return path


def test_a_corpus_is_read_again_after_its_upload_is_gone(kept, file):
    key, corpus = kept.keep(file, KeptCorpus("reviews.csv", time.time(), "text"))
    file.unlink()
    again = KeptCorpora(kept.temp, 100).read(key)
    assert (
        again.sentences == corpus.sentences == ["A dog.", "A cat.", "A fish."]
        and again.name == "reviews.csv"
    )
    assert again.columns == {"id": ["1", "2", "4"]}
    assert kept.list([key, "0" * 16])[key].sentences == 3
    kept.records.delete(key)
    with pytest.raises(InputError, match="no longer kept: corpora are deleted after a day"):
        kept.read(key)


def test_a_file_that_cannot_be_read_leaves_nothing(kept, file):
    with pytest.raises(InputError, match="nothing"):
        kept.keep(file, KeptCorpus("reviews.csv", time.time(), "nothing"))
    assert list((kept.temp.path / "corpora").iterdir()) == []


def test_vectors_beside_a_file_are_those_of_its_rows_with_text(kept, file, tmp_path):
    np.save(tmp_path / "v.npy", VECTORS)
    key, _ = kept.keep(file, KeptCorpus("reviews.csv", time.time(), "text"), tmp_path / "v.npy")
    found = kept.read(key).vectors
    np.testing.assert_allclose(found, [[0.6, 0.8], [0, 1], [1, 0]], rtol=1e-6)


def test_a_column_of_a_parquet_file_holds_them_too(kept, tmp_path):
    path = tmp_path / "mine.parquet"
    table = pa.table(
        {
            "text": ["A dog.", "A cat.", None, "A fish."],
            "embedding": VECTORS.tolist(),
            "n": [1, 2, 3, 4],
        }
    )
    pq.write_table(table, path)
    assert vector_columns(open_table(path)) == ["embedding"]
    key, corpus = kept.keep(
        path, KeptCorpus("mine.parquet", time.time(), "text", vectors="embedding")
    )
    np.testing.assert_allclose(corpus.vectors, [[0.6, 0.8], [0, 1], [1, 0]], rtol=1e-6)
    assert list(kept.read(key).columns) == ["n"], "vectors are no column to colour by"


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (VECTORS[:3], "3 vectors, and reviews.csv has 4 rows"),
        (VECTORS[:, 0], "of the shape"),
        (np.array([["a", "b"]]), "of the shape"),
        (np.array([[1, 2], [0, 0], [1, 1], [2, 2]]), "the vector of row 2 is zero"),
        (np.array([[1, 2], [1, np.nan], [1, 1], [2, 2]]), "the vector of row 2"),
    ],
)
def test_vectors_that_do_not_fit_the_rows_of_a_file_are_refused(kept, file, tmp_path, array, words):
    np.save(tmp_path / "v.npy", array)
    with pytest.raises(InputError, match=words):
        kept.keep(file, KeptCorpus("reviews.csv", time.time(), "text"), tmp_path / "v.npy")


def test_no_pickle_and_no_list_of_other_lengths_is_read(tmp_path):
    np.save(tmp_path / "v.npy", np.array([{}, 1], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="cannot be read"):
        read_vectors(tmp_path / "v.npy")
    pq.write_table(
        pa.table({"text": ["A dog.", "A cat."], "v": [[1.0], [1.0, 2.0]]}), tmp_path / "v.parquet"
    )
    for column in ("v", "text"):
        with pytest.raises(InputError, match="a vector for each row"):
            Corpus.from_file(tmp_path / "v.parquet", vectors=column)


def test_own_vectors_need_no_model(tmp_path):
    embeddings = EmbeddingCache(None, tmp_path)
    np.save(tmp_path / "v.npy", VECTORS)
    own = read_vectors(tmp_path / "v.npy")
    key = embeddings.add(Corpus("mine", list("abcd"), vectors=own))
    assert key != embeddings.add(Corpus("mine", list("abcd"), vectors=own[::-1].copy()))
    found = embeddings.embed(key, OWN)
    assert found.vectors is own and embeddings.embed(key, OWN).index is found.index
    with pytest.raises(InputError, match="no vectors of its own"):
        embeddings.embed(embeddings.add(Corpus("other", ["a"])), OWN)
