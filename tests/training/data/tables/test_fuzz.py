"""Any bytes under any name are read or refused in one line: within time and memory, and never with another error."""

import json

from depth import FUZZ_EXAMPLES, examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from training.data.load import load_data
from training.data.tables.table import open_table
from training.errors import InputError

NAMES = st.sampled_from(["a.csv", "a.tsv", "a.txt", "a.jsonl", "a.json", "a.parquet", "a.xlsx", "a", "a.csv.gz"])
PIECES = st.sampled_from(
    [
        *(
            b"sentence1,sentence2,score\n",
            b"\xef\xbb\xbf",
            b"\xff\xfe",
            b'"',
            b",",
            b"\t",
            b"\r\n",
            b"\r",
            b"\n",
            b"\0",
        ),
        *(
            b"\0",
            b"sep=;\n",
            b"PAR1",
            b"PK\x03\x04",
            b"\x1f\x8b",
            b"{",
            b"[",
            b"}",
            b"]",
            b":",
            b"a b c",
            b"1e999",
            b"NaN",
        ),
        *("é".encode(), "é".encode("cp1252"), "привет".encode("cp1251"), b"\x1b$B%F%9\x1b(B", b"+AOk-", b"=1+1"),
        b'{"sentence1": "a", "sentence2": "b"}\n',
    ]
)
CONTENT = st.one_of(st.binary(max_size=400), st.lists(PIECES, max_size=30).map(b"".join))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=12,
)
FUZZED = settings(max_examples=examples(FUZZ_EXAMPLES), suppress_health_check=[HealthCheck.too_slow])


def read_or_refuse(path):
    try:
        table = open_table(path)
        rows = sum(len(batch) for batch in table.batches())
        assert rows >= 1
        assert all(len(values) == len(batch) for batch in table.batches(3) for values in batch.rows.values())
    except InputError as error:
        assert "\n" not in str(error)


@FUZZED
@given(name=NAMES, content=CONTENT)
def test_any_bytes(tmp_path_factory, name, content):
    path = tmp_path_factory.mktemp("fuzz") / name
    path.write_bytes(content)
    read_or_refuse(path)


@FUZZED
@given(name=NAMES, content=CONTENT)
def test_any_bytes_as_data_and_as_lines(tmp_path_factory, name, content):
    path = tmp_path_factory.mktemp("fuzz") / name
    path.write_bytes(content)
    try:
        assert len(load_data(str(path))) >= 1
    except InputError as error:
        assert "\n" not in str(error)
    try:
        assert list(open_table(path, lines=True).batches())
    except InputError as error:
        assert "\n" not in str(error)


@FUZZED
@given(value=VALUES, lines=st.integers(1, 3))
def test_any_json(tmp_path_factory, value, lines):
    path = tmp_path_factory.mktemp("fuzz") / "a.jsonl"
    path.write_text("\n".join([json.dumps(value)] * lines), encoding="utf-8")
    read_or_refuse(path)


@FUZZED
@given(
    encoding=st.text(max_size=12) | st.sampled_from(["utf-8", "cp1252", "utf-16", "gb18030", "hex"]), content=CONTENT
)
def test_any_name_of_an_encoding(tmp_path_factory, encoding, content):
    path = tmp_path_factory.mktemp("fuzz") / "a.csv"
    path.write_bytes(content)
    try:
        for batch in open_table(path, encoding).batches():
            assert len(batch)
    except InputError as error:
        assert "\n" not in str(error)
