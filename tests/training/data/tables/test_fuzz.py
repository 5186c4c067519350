"""`tables/table.py`: any bytes under any name are read or refused in one line, within time and memory."""

import json
from contextlib import contextmanager

from depth import FUZZ_EXAMPLES, examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from training.data.load import load_data
from training.data.tables.table import open_table
from training.errors import InputError

NAMES = st.sampled_from(
    ["a.csv", "a.tsv", "a.txt", "a.jsonl", "a.json", "a.parquet", "a.xlsx", "a", "a.csv.gz"]
)
PIECES = st.sampled_from(
    [
        *(bytes([sign]) for sign in b'",\t\r\n\0{}[]:'),
        *(b"\xef\xbb\xbf", b"\xff\xfe", b"\r\n", b"sep=;\n", b"PAR1", b"PK\x03\x04", b"\x1f\x8b"),
        *(b"a b c", b"1e999", b"NaN", b"\x1b$B%F%9\x1b(B", b"+AOk-", b"=1+1"),
        *("é".encode(), "é".encode("cp1252"), "привет".encode("cp1251")),
        *(b"sentence1,sentence2,score\n", b'{"sentence1": "a", "sentence2": "b"}\n'),
    ]
)
CONTENT = st.one_of(st.binary(max_size=400), st.lists(PIECES, max_size=30).map(b"".join))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=12,
)
ENCODINGS = st.text(max_size=12) | st.sampled_from(["utf-8", "cp1252", "utf-16", "gb18030", "hex"])
FUZZED = settings(
    max_examples=examples(FUZZ_EXAMPLES), suppress_health_check=[HealthCheck.too_slow]
)


@contextmanager
def reading_or_refusing():
    try:
        yield
    except InputError as error:
        assert "\n" not in str(error)


def read(path):
    table = open_table(path)
    assert sum(len(batch) for batch in table.batches()) >= 1
    assert all(
        len(values) == len(batch) for batch in table.batches(3) for values in batch.rows.values()
    )


@FUZZED
@given(name=NAMES, content=CONTENT, encoding=ENCODINGS)
def test_any_bytes_are_read_or_refused_in_any_format_and_encoding(
    tmp_path_factory, name, content, encoding
):
    path = tmp_path_factory.mktemp("fuzz") / name
    path.write_bytes(content)
    with reading_or_refusing():
        read(path)
    with reading_or_refusing():
        assert len(load_data(str(path))) >= 1
    with reading_or_refusing():
        assert list(open_table(path, lines=True).batches())
    with reading_or_refusing():
        assert all(map(len, open_table(path, encoding).batches()))


@FUZZED
@given(value=VALUES, lines=st.integers(1, 3))
def test_any_json_is_read_or_refused(tmp_path_factory, value, lines):
    path = tmp_path_factory.mktemp("fuzz") / "a.jsonl"
    path.write_text("\n".join([json.dumps(value)] * lines), encoding="utf-8")
    with reading_or_refusing():
        read(path)
