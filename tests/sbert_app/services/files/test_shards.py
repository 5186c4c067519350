"""Many files into a folder of parts: every row once, in parts that do not depend on who computes them, or when."""

import csv
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shard_files import pairs, parts, together
from tiny_models import make_model

from sbert_app.services.background.watch import Watch
from sbert_app.services.files.blocks import FILE_ROWS, Block, ShardJob, find_files, read_blocks
from sbert_app.services.files.score import score_file
from sbert_app.services.files.shards import OutputFolder, compute_here, run_job
from training.errors import InputError, StoppedError
from training.models.encoder import Encoder

ROWS = (70, 1, 25)  # of three files


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """Three files of three formats; the second row of the first has no text."""
    folder = tmp_path / "in"
    (folder / "deep").mkdir(parents=True)
    tables = [pairs(count, number) for number, count in enumerate(ROWS)]
    tables[0]["sentence1"][1] = None
    pq.write_table(pa.table(tables[0]), folder / "a.parquet")
    with (folder / "b.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([list(tables[1]), *zip(*tables[1].values(), strict=True)])
    rows = [dict(zip(tables[2], row, strict=True)) for row in zip(*tables[2].values(), strict=True)]
    (folder / "deep/c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / ".hidden.csv").write_text("no table")
    (folder / "_SUCCESS").write_text("")
    return folder


@pytest.fixture
def job(tmp_path: Path, model: Path) -> ShardJob:
    return ShardJob("score", str(tmp_path / "out"), str(model), dtype="float32", block_rows=20)


def first_part(folder: str | Path) -> pa.Table:
    return next(iter(parts(folder).values()))


@pytest.mark.parametrize("keep", [False, True])
def test_a_text_of_unknown_tokens_has_a_score_if_it_is_asked_for(
    tmp_path: Path, job: ShardJob, keep: bool
):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.csv").write_text(
        "id,sentence1,sentence2\nx,the cat,the dog\ny,🚀,🐱\n", encoding="utf-8"
    )
    run_job(dataclasses.replace(job, keep_unknown=keep), str(tmp_path / "in"))
    part = first_part(job.output)
    assert [cosine is None for cosine in part["cosine"].to_pylist()] == [False, not keep]
    assert part.column_names == ["id", "sentence1", "sentence2", "cosine", "note"]


def test_every_row_is_in_one_block_and_has_an_id(inputs: Path, job: ShardJob):
    files = find_files(str(inputs))
    assert [Path(file).name for file in files] == ["a.parquet", "b.csv", "c.jsonl"]
    blocks = {
        block.part[5:16]: [row for batch in block.table.batches() for row in batch.rows["row_id"]]
        for number, file in enumerate(files)
        for block in read_blocks(job, number, file, {"part-00000-00001.parquet"})
    }
    ids = [
        [number * FILE_ROWS + row for row in range(1, count + 1)]
        for number, count in enumerate(ROWS)
    ]
    assert blocks == {
        "00000-00000": ids[0][:20],
        "00000-00002": ids[0][40:60],
        "00000-00003": ids[0][60:],
        "00001-00000": ids[1],
        "00002-00000": ids[2][:20],
        "00002-00001": ids[2][20:],
    }


def test_the_parts_hold_what_one_file_would(
    inputs: Path, job: ShardJob, model: Path, tmp_path: Path
):
    result = run_job(job, str(inputs))
    assert (result.files, result.blocks, result.rows, result.computed) == (3, 7, 96, 96)
    scored = together(job.output)
    assert first_part(job.output).column_names == [
        "sentence1",
        "sentence2",
        "score",
        "row_id",
        "cosine",
        "note",
    ]
    encoder = Encoder.load(str(model), dtype="float32")
    score_file(inputs / "a.parquet", [tmp_path / "a.parquet"], encoder)
    alone = pq.read_table(tmp_path / "a.parquet")
    np.testing.assert_allclose(
        scored["cosine"].slice(0, 70).to_numpy(zero_copy_only=False),
        alone["cosine"].to_numpy(),
        atol=1e-6,
    )
    assert scored["note"][1].as_py() == alone["note"][1].as_py() == "no text in sentence1"
    assert first_part(job.output)["score"].equals(alone["score"].slice(0, 20))


def test_a_stopped_job_resumes_where_it_stopped(inputs: Path, job: ShardJob, tmp_path: Path):
    stops = iter([False] * 12 + [True] * 100)
    with pytest.raises(StoppedError):
        run_job(job, str(inputs), watch=Watch(should_stop=lambda: next(stops)))
    first = {name: (Path(job.output) / name).stat().st_mtime_ns for name in parts(job.output)}
    assert 0 < len(first) < 7
    result = run_job(job, str(inputs))
    assert (result.resumed, result.rows) == (len(first), 96)
    assert result.computed < 96
    assert {name: (Path(job.output) / name).stat().st_mtime_ns for name in first} == first
    straight = run_job(
        ShardJob(**{**job.__dict__, "output": str(tmp_path / "straight")}), str(inputs)
    )
    assert together(straight.output).equals(together(job.output))


@pytest.mark.parametrize("kind", ["score", "encode"])
def test_of_a_file_that_changes_meanwhile_nothing_is_kept(inputs: Path, job: ShardJob, kind: str):
    job = dataclasses.replace(job, kind=kind)

    def change_first(
        job: ShardJob, files: list[str], finished: set[str], watch: Watch
    ) -> Iterator[Block]:
        for block in compute_here(job, files, finished, watch):
            if len(parts(job.output)) == 2:
                pq.write_table(
                    pq.read_table(inputs / "a.parquet").slice(0, 30), inputs / "a.parquet"
                )
            yield block

    with pytest.raises(InputError, match=r"a\.parquet changed while it was read"):
        run_job(job, str(inputs), change_first)
    assert {name[:10] for name in parts(job.output)} == {"part-00001", "part-00002"}
    again = run_job(job, str(inputs))
    assert (again.rows, again.computed) == (30 + 1 + 25, 30)


def test_an_output_belongs_to_one_job(inputs: Path, job: ShardJob):
    run_job(job, str(inputs))
    other = ShardJob(**{**job.__dict__, "pooling": "max"})
    with pytest.raises(
        InputError, match=r"holds the parts of another job, with pooling null; name a new folder"
    ):
        run_job(other, str(inputs))
    with pytest.raises(InputError, match="of another job, with other files"):
        run_job(job, str(inputs / "b.csv"))


def test_an_output_that_is_not_a_new_folder_is_refused(inputs: Path, job: ShardJob, tmp_path: Path):
    Path(job.output).mkdir()
    (Path(job.output) / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="holds other files; name a new folder"):
        run_job(job, str(inputs))
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file; name a folder"):
        run_job(ShardJob("score", str(tmp_path / "file"), job.model), str(inputs))
    with pytest.raises(InputError, match="lies inside"):
        run_job(ShardJob("score", str(inputs / "out"), job.model), str(inputs))


def test_an_input_that_names_no_file_is_refused(job: ShardJob, tmp_path: Path):
    for source, words in {
        str(tmp_path / "none/*.csv"): "names no file",
        str(tmp_path / "missing.csv"): "names no file",
        "nosuch://bucket/x.csv": "cannot be opened: Protocol not known: nosuch",
    }.items():
        with pytest.raises(InputError, match=words):
            run_job(job, source)


def test_of_files_that_cannot_be_read_the_others_are_finished(inputs: Path, job: ShardJob):
    (inputs / "broken.parquet").write_bytes(b"PAR1 not really")
    (inputs / "other.csv").write_text("title\nno pair\n")
    with pytest.raises(
        InputError, match=r"2 of 5 files could not be read.* The others are finished in .*out"
    ):
        run_job(job, str(inputs))
    assert together(job.output).num_rows == 96
    (inputs / "broken.parquet").unlink()
    (inputs / "other.csv").unlink()
    # The numbers of files, and so of parts, are others now.
    with pytest.raises(InputError, match="other files"):
        run_job(job, str(inputs))


def test_remote_folders_are_read_and_written(inputs: Path, model: Path):
    """By any fsspec file system: here the one in memory, which has nothing of a local one."""
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.put(f"{inputs}/", "/in/", recursive=True)
    job = ShardJob("score", "memory://out", str(model), dtype="float32", block_rows=20)
    try:
        assert run_job(job, "memory://in/*.csv").rows == 1
        again = run_job(job, "memory://in/*.csv")
        assert (again.resumed, again.computed, again.rows) == (1, 0, 1)
        assert sorted(name.rsplit("/", 1)[1] for name in memory.ls("/out", detail=False)) == [
            "_job.json",
            "part-00000-00000.parquet",
        ]
    finally:
        memory.store.clear()


def test_encoding_keeps_every_column(inputs: Path, model: Path, tmp_path: Path):
    job = ShardJob(
        "encode",
        str(tmp_path / "vectors"),
        str(model),
        columns=("sentence1",),
        dtype="float32",
        block_rows=30,
    )
    assert run_job(job, str(inputs / "a.parquet")).sentence.startswith(
        "70 rows of 1 file encoded in "
    )
    table = together(job.output)
    assert first_part(job.output).column_names == [
        "sentence1",
        "sentence2",
        "score",
        "row_id",
        "embedding",
    ]
    assert table["embedding"][1].as_py() is None
    texts = table["sentence1"].to_pylist()
    expected = Encoder.load(str(model), dtype="float32").encode(
        [texts[0], texts[2]], normalize=True
    )
    np.testing.assert_allclose(
        [table["embedding"][row].as_py() for row in (0, 2)], expected, atol=1e-6
    )


def test_outcomes_in_any_order_are_counted_once(inputs: Path, job: ShardJob):
    """As an engine on several machines gives them."""

    def reversed_engine(job, files, finished, watch):
        return reversed([*compute_here(job, files, finished, watch)])

    seen: list[tuple[float, float]] = []
    result = run_job(
        job, str(inputs), reversed_engine, Watch.of(lambda done, total: seen.append((done, total)))
    )
    assert result.rows == 96
    assert seen[-1][0] == 96
    assert OutputFolder(job.output).start(job.description(find_files(str(inputs)))) == set(
        parts(job.output)
    )
