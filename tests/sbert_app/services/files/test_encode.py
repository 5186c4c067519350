"""Files of sentences in, files of vectors out: every format, every row, and nothing more in memory than a chunk."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from depth import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_models import make_model

from sbert_app.services.background.watch import Watch
from sbert_app.services.files.encode import encode_file, open_sentences
from sbert_app.services.files.writers import VECTORS, check_output
from training.data.tables.cells import NO_TEXT
from training.errors import InputError, StoppedError
from training.models.encoder import Encoder

STOP = Watch(should_stop=lambda: True)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    return Encoder.load(
        str(make_model(tmp_path_factory.mktemp("models") / "tiny")), dtype="float32"
    )


def sentences_of(source: Path) -> list[Any]:
    table, column = open_sentences(source)
    return [cell for batch in table.batches() for cell in batch.rows[column]]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["Unix", "Windows", "old Mac"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_a_line_is_a_sentence_whatever_is_in_it(tmp_path: Path, end: str, encoding: str):
    lines = ["Größe zählt, öfter.", '"Hello," she said.', "It rains; I stay.", "It shines;\tI go."]
    (tmp_path / "x.txt").write_bytes(end.join(lines).encode(encoding))
    assert sentences_of(tmp_path / "x.txt") == lines


@given(
    lines=st.lists(
        st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"])), min_size=1
    )
)
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_row_i_is_line_i(tmp_path: Path, lines: list[str]):
    lines = ["a first line", *lines, "a last line"]
    (tmp_path / "x.txt").write_text("\n".join(lines) + "\n\n\n", encoding="utf-8")
    assert sentences_of(tmp_path / "x.txt") == [
        None if NO_TEXT.fullmatch(line) else line for line in lines
    ]


def test_what_is_not_text_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="There is no file"):
        open_sentences(tmp_path / "x.txt")
    for content in (b"", b"\n\n", bytes(range(32)) * 99):
        (tmp_path / "x.txt").write_bytes(content)
        with pytest.raises(InputError, match=r"x\.txt"):
            open_sentences(tmp_path / "x.txt")


def test_the_header_of_a_table_is_known_by_its_name(tmp_path: Path):
    (tmp_path / "x.csv").write_text("Sentence\nthe cat sat\n")
    assert sentences_of(tmp_path / "x.csv") == ["the cat sat"]
    (tmp_path / "x.txt").write_text("sentence\n")
    assert sentences_of(tmp_path / "x.txt") == ["sentence"]


@pytest.mark.parametrize("suffix", [".npy", ".NPY", ".parquet"])
def test_row_i_of_the_output_is_row_i_of_the_input(tmp_path: Path, encoder: Encoder, suffix: str):
    lines = [f"the cat {'is ' * (i % 7)}{i % 50}" for i in range(300)]
    (tmp_path / "x.txt").write_text("\n".join(lines))
    output = tmp_path / f"x{suffix}"
    summary = encode_file(*open_sentences(tmp_path / "x.txt"), output, encoder)
    if suffix == ".parquet":
        vectors = np.stack(
            pq.read_table(output)["embedding"].combine_chunks().to_numpy(zero_copy_only=False)
        )
    else:
        vectors = np.load(output)
    np.testing.assert_allclose(vectors, encoder.encode(lines), rtol=0, atol=1e-5)
    assert (summary.rows, summary.dimension, summary.missing_text) == (300, encoder.dimension, 0)


def test_a_column_called_embedding_keeps_its_name(tmp_path: Path, encoder: Encoder):
    (tmp_path / "x.csv").write_text("embedding,n\nthe cat,1\nthe dog,2\n")
    encode_file(*open_sentences(tmp_path / "x.csv", "embedding"), tmp_path / "x.parquet", encoder)
    assert pq.read_table(tmp_path / "x.parquet").column_names == ["embedding", "embedding_2"]


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_stop_leaves_nothing_behind(tmp_path: Path, encoder: Encoder, suffix: str):
    (tmp_path / "x.txt").write_text("the cat\nthe dog\n")
    with pytest.raises(StoppedError):
        encode_file(
            *open_sentences(tmp_path / "x.txt"), tmp_path / f"out{suffix}", encoder, watch=STOP
        )
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.txt"]


def test_an_output_is_checked_before_the_work(tmp_path: Path):
    source = tmp_path / "in.parquet"
    source.touch()
    (tmp_path / "folder.npy").mkdir()
    for name, said in {
        "x.txt": "has to end with one of .npy, .jsonl, .parquet",
        "folder.npy": "is a folder",
        "none/x.npy": "no folder",
        "in.parquet": "the input itself",
        f"{'x' * 300}.npy": "cannot be written: File name too long",
    }.items():
        with pytest.raises(InputError, match=said):
            check_output(tmp_path / name, VECTORS, source)
    check_output(tmp_path / "x.npy", VECTORS, source)
