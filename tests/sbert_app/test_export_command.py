"""`sbert-lab export` writes the columns that embedding-atlas reads, into a new file."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from command_line import Run
from tiny_models import WORDS

ROWS = 40
NEIGHBORS = pa.struct([("ids", pa.list_(pa.int64())), ("distances", pa.list_(pa.float32()))])


def test_it_writes_the_columns_that_embedding_atlas_reads(
    run: Run, tmp_path: Path, model: Path, home: Path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home").mkdir()
    (tmp_path / "home/numba").symlink_to(home / "numba")  # what UMAP has compiled
    lines = [f"{WORDS[n % 14]} {WORDS[n % 9]} {WORDS[n % 5]},{n}" for n in range(ROWS)]
    (tmp_path / "in.csv").write_text("\n".join(["text,n", *lines]))
    options = ("--model", model, "--clusters", "3", "--home", tmp_path / "home")
    opened = "embedding-atlas out.parquet --text sentence --x projection_x --y projection_y --neighbors neighbors"
    answer = run("export", "in.csv", "out.parquet", *options, "--json").json
    assert answer == {"output": "out.parquet", "rows": ROWS, "drawn": ROWS, "command": opened}
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column_names == ["sentence", "projection_x", "projection_y", "cluster", "neighbors", "n"]
    assert table.schema.field("projection_x").type == table.schema.field("projection_y").type == pa.float32()
    assert table.schema.field("cluster").type == pa.string()
    assert table.schema.field("neighbors").type == NEIGHBORS
    assert table["n"].to_pylist() == [str(n) for n in range(ROWS)]
    assert len(set(table["cluster"].to_pylist())) == 3
    assert {entry.name for entry in tmp_path.iterdir()} == {"in.csv", "home", "out.parquet"}
