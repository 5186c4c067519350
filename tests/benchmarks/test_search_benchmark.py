"""The benchmark of search in its small form: each index finds the nearest, and its row says what it costs."""

import pytest

from benchmarks.search import INDEXES, run


@pytest.mark.slow
def test_every_index_has_its_row():
    found = run(rounds=20, small=True)
    assert [row["sentences"] for row in found["rows"]] == [found["vectors"]] == [1_000]
    rows = {row["index"]: row for row in found["indexes"]}
    assert rows.keys() == INDEXES.keys()
    assert rows["flat (exact)"]["recall_at_10"] == 1
    for row in rows.values():
        assert row["recall_at_10"] > 0.98
        assert 0 < row["ms"] <= row["ms_p95"]
        assert row["build_seconds"] >= 0
