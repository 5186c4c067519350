"""Files in, scored files out: nothing of the input changes, nothing is lost, and Stop keeps what is done."""

import csv
import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bag_encoder import BagEncoder, OverlapCrossEncoder
from command_line import read_csv
from depth import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats

from sbert_app.services.background.watch import Watch
from sbert_app.services.files.report import ReportBuilder
from sbert_app.services.files.score import PairScorer, RecentEmbeddings, score_file
from training.data.gold import GoldColumn
from training.data.tables.columns import PairColumns
from training.data.tables.table import open_table
from training.errors import InputError

TEXT = "the a man woman dog plays runs guitar piano in park slowly fast and sings while child"
WORDS = TEXT.split()


@pytest.fixture
def pairs(tmp_path):
    """1,000 pairs whose gold score is the share of words in common, but for row 500, whose gold score is absurd."""
    random = np.random.default_rng(0)
    path = tmp_path / "pairs.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "sentence1", "sentence2", "score"])
        for row in range(1, 1_001):
            first = random.choice(WORDS, 6)
            second = np.concatenate([first[: random.integers(0, 6)], random.choice(WORDS, 3)])
            share = 5 * len({*first} & {*second}) / len({*first} | {*second})
            texts = [" ".join(first), " ".join(second), f"{share:.2f}"]
            writer.writerow(
                [row, *(texts if row != 500 else ["the dog runs", "the dog runs", "0"])]
            )
    return path


class TestScoreFile:
    def test_the_scores_stand_beside_the_untouched_input(self, pairs, tmp_path):
        out = tmp_path / "out.csv"
        typed = tmp_path / "out.parquet"
        summary = score_file(pairs, [out, typed], BagEncoder(), OverlapCrossEncoder())
        rows = read_csv(out)
        before = read_csv(pairs)
        assert [{name: row[name] for name in before[0]} for row in rows] == before
        assert list(rows[0]) == [
            "id",
            "sentence1",
            "sentence2",
            "score",
            "cosine",
            "cross_encoder",
            "note",
        ]
        encoder = BagEncoder()
        u, v = (
            encoder.encode([row[name] for row in before]) for name in ("sentence1", "sentence2")
        )
        assert np.allclose([float(row["cosine"]) for row in rows], (u * v).sum(1), atol=1e-6)
        table = pq.read_table(typed)
        assert np.allclose(table["cosine"].to_numpy(), (u * v).sum(1), atol=1e-6)
        assert str(table.schema.field("cosine").type) == "float"
        assert (summary.rows, summary.scored, summary.stopped_at) == (1_000, 1_000, None)

    def test_each_sentence_is_encoded_once(self, tmp_path):
        path = tmp_path / "pairs.csv"
        path.write_text(
            "s1,s2\n" + "".join(f"query {i % 7},passage {i % 11}\n" for i in range(5_000))
        )
        encoder = BagEncoder()
        summary = score_file(path, [tmp_path / "out.csv"], encoder)
        assert sorted(encoder.seen) == sorted(
            {f"query {i}" for i in range(7)} | {f"passage {i}" for i in range(11)}
        )
        assert summary.encoded == 18

    def test_statistics_are_those_of_scipy(self, pairs, tmp_path):
        out = tmp_path / "out.csv"
        report = score_file(pairs, [out], BagEncoder(), OverlapCrossEncoder()).report
        rows = read_csv(out)
        cosine, cross, gold = (
            np.array([float(row[name]) for row in rows])
            for name in ("cosine", "cross_encoder", "score")
        )
        assert report.cosine_gold.spearman == pytest.approx(
            stats.spearmanr(cosine, gold).statistic, abs=1e-3
        )
        assert report.cosine_gold.pearson == pytest.approx(
            stats.pearsonr(cosine, gold).statistic, abs=1e-5
        )
        assert report.cross_gold.spearman == pytest.approx(
            stats.spearmanr(cross, gold).statistic, abs=1e-5
        )
        low, high = report.cosine_gold.spearman_interval
        assert low < report.cosine_gold.spearman < high
        assert sum(report.counts) == 1_000
        assert report.mean == pytest.approx(cosine.mean(), abs=1e-6)
        assert len(report.scatter) == 1_000

    def test_the_worst_disagreement_is_the_planted_one(self, pairs, tmp_path):
        worst = score_file(pairs, [tmp_path / "out.csv"], BagEncoder()).report.gold_disagreements[0]
        assert (worst.row, worst.sentence1, worst.sentence2, worst.other) == (
            500,
            "the dog runs",
            "the dog runs",
            0.0,
        )
        assert worst.cosine_rank > 0.95

    def test_columns_may_be_named_keep_their_values_and_need_no_gold(self, tmp_path):
        path = tmp_path / "pairs.csv"
        path.write_text("s1,s2\na b,a c\nd,e\n")
        report = score_file(path, [tmp_path / "out.csv"], BagEncoder()).report
        assert (report.cosine_gold, report.scatter, report.gold_disagreements) == (None, [], [])
        assert sum(report.counts) == 2
        path = tmp_path / "pairs.csv"
        path.write_text("x,y,z\na b,c,a b\n")
        summary = score_file(path, [tmp_path / "out.csv"], BagEncoder(), columns=["x", "z"])
        assert summary.columns == PairColumns("x", "z")
        assert read_csv(tmp_path / "out.csv")[0]["cosine"] == "1.000000"
        path = tmp_path / "pairs.csv"
        path.write_text("s1,s2,Cosine,note\na,a,mine,keep\n")
        summary = score_file(path, [tmp_path / "out.csv"], BagEncoder())
        assert summary.added == {"cosine": "cosine_2", "note": "note_2"}
        row = read_csv(tmp_path / "out.csv")[0]
        assert (row["Cosine"], row["note"], row["cosine_2"]) == ("mine", "keep", "1.000000")

    def test_progress_ends_at_the_last_row_and_the_summary_is_json(self, pairs, tmp_path):
        reports: list[tuple[float, float]] = []
        score_file(
            pairs,
            [tmp_path / "out.csv"],
            BagEncoder(),
            watch=Watch.of(lambda *report: reports.append(report)),
        )
        assert reports[-1] == (1_000, 1_000)
        assert reports == sorted(reports)
        summary = score_file(pairs, [tmp_path / "out.csv"], BagEncoder())
        again = json.loads(json.dumps(summary.to_dict(), allow_nan=False))
        assert again["columns"]["score"] == "score"
        assert again["head"]["id"] == [str(i) for i in range(1, 11)]
        assert summary.sentence.startswith("1,000 rows: 1,000 scored in ")

    def test_a_sentence_that_is_cut_is_said_by_row_and_in_the_summary(self, tmp_path):
        long = "word " * 600
        path = tmp_path / "long.csv"
        rows = [
            (long, "word", "the first of"),
            ("a", "b", ""),
            ("c", long, "again, found in the cache or not"),
        ]
        path.write_text("s1,s2\n" + "".join(f"{one},{two}\n" for one, two, _ in rows))
        summary = score_file(path, [tmp_path / "out.jsonl"], BagEncoder(), OverlapCrossEncoder())
        notes = [
            json.loads(line)["note"] for line in (tmp_path / "out.jsonl").read_text().splitlines()
        ]
        assert notes == ["sentence 1 cut at 512 tokens", None, "sentence 2 cut at 512 tokens"]
        assert (summary.truncated, summary.notes[0]) == (2, (1, notes[0]))
        assert "marked in note: 2 cut, as they are longer than the model reads" in summary.sentence


class TestStop:
    def test_what_is_done_is_kept_whole(self, pairs, tmp_path):
        outputs = [tmp_path / "out.csv", tmp_path / "out.parquet"]
        done = [0.0]
        summary = score_file(
            pairs,
            outputs,
            BagEncoder(),
            watch=Watch.of(lambda rows, _: done.append(rows), lambda: done[-1] >= 128),
        )
        assert 100 <= summary.stopped_at < 1_000
        assert (
            len(read_csv(outputs[0]))
            == pq.read_table(outputs[1]).num_rows
            == summary.stopped_at
            == summary.rows
        )
        assert sum(summary.report.counts) == summary.rows
        assert f"stopped at row {summary.rows}" in summary.sentence
        out = tmp_path / "header.csv"
        assert (
            score_file(pairs, [out], BagEncoder(), watch=Watch(should_stop=lambda: True)).stopped_at
            == 0
        )
        assert out.read_text() == "id,sentence1,sentence2,score,cosine,note\n"


class TestOutputs:
    def test_only_formulas_get_an_apostrophe_and_only_in_the_csv(self, tmp_path):
        unseen = (
            " ",
            "\ufeff",
            "\ufeff\ufeff",
            "\u200b",
            "\xa0 ",
            "\x00",
            "\x0b",
            "\u2028",
            "\u202e",
        )
        signs = ["=1+1", "+49 170", "-ask", "@me", "\tx", "\rx", "=", "-", "＝1", "﹣1"]
        formulas = [*signs, *(text + "=1" for text in unseen)]
        plain = [
            "-1.5",
            "+3",
            "-1,5",
            "-.5",
            "-1e-3",
            " -1.5",
            "a=b",
            "'=x",
            "\ufeff",
            "\ufeff\u4e2d=",
            "\u200bx",
        ]
        path = tmp_path / "pairs.jsonl"
        outputs = [tmp_path / "out.csv", tmp_path / "out.parquet"]
        path.write_text(
            "".join(json.dumps({"s1": cell, "s2": "b"}) + "\n" for cell in [*formulas, *plain])
        )
        summary = score_file(path, outputs, BagEncoder())
        assert [row["s1"] for row in read_csv(outputs[0])] == [
            *("'" + cell for cell in formulas),
            *plain,
        ]
        assert pq.read_table(outputs[1])["s1"].to_pylist() == [*formulas, *plain]
        assert summary.guarded == len(formulas)

    @settings(
        max_examples=examples(50),
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(
        st.lists(
            st.tuples(*[st.text(st.characters(exclude_categories=["Cs"]), max_size=20)] * 2),
            min_size=1,
            max_size=8,
        )
    )
    def test_any_text_goes_through_csv_and_parquet(self, tmp_path, rows):
        path = tmp_path / "pairs.parquet"
        outputs = [tmp_path / "out.csv", tmp_path / "out.parquet"]
        pq.write_table(pa.table({"s1": [a for a, _ in rows], "s2": [b for _, b in rows]}), path)
        score_file(path, outputs, BagEncoder())
        assert (
            list(
                zip(
                    *pq.read_table(outputs[1], columns=["s1", "s2"]).to_pydict().values(),
                    strict=True,
                )
            )
            == rows
        )
        unguarded = [
            tuple(row[name].removeprefix("'") for name in ("s1", "s2"))
            for row in read_csv(outputs[0])
        ]
        assert unguarded == [tuple(text.removeprefix("'") for text in row) for row in rows]

    def test_parquet_keeps_the_types_of_the_input(self, tmp_path):
        path = tmp_path / "pairs.parquet"
        table = pa.table(
            {"s1": ["a"], "s2": ["b"], "n": pa.array([7], pa.int16()), "tags": [["x", "y"]]}
        )
        pq.write_table(table, path)
        score_file(path, [tmp_path / "out.parquet", tmp_path / "out.csv"], BagEncoder())
        written = pq.read_table(tmp_path / "out.parquet")
        assert written.select(table.column_names).equals(table)
        assert read_csv(tmp_path / "out.csv")[0]["tags"] == '["x", "y"]'

    def test_a_header_that_is_a_formula_gets_an_apostrophe(self, tmp_path):
        path = tmp_path / "pairs.csv"
        path.write_text("s1,s2,=cmd\na,b,c\n")
        score_file(path, [tmp_path / "out.csv"], BagEncoder())
        assert list(read_csv(tmp_path / "out.csv")[0])[2] == "'=cmd"

    def test_two_outputs_of_the_same_name_are_refused(self, pairs, tmp_path):
        with pytest.raises(InputError, match="same name"):
            score_file(pairs, [tmp_path / "out.csv", tmp_path / "." / "out.csv"], BagEncoder())

    def test_an_output_that_cannot_be(self, pairs, tmp_path):
        (tmp_path / "folder.csv").mkdir()
        for name, words in {
            "out.txt": r"has to end with one of \.csv, \.tsv, \.jsonl, \.parquet",
            "nowhere/out.csv": "There is no folder",
            "pairs.csv": "is the input itself",
            "folder.csv": "is a folder",
        }.items():
            with pytest.raises(InputError, match=words):
                score_file(pairs, [tmp_path / name], BagEncoder())

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
    def test_a_full_disk_is_one_clear_sentence_and_leaves_nothing(
        self, pairs, tmp_path, monkeypatch
    ):
        monkeypatch.setattr(Path, "open", _open_full)
        with pytest.raises(
            InputError, match=r"out\.csv cannot be written: No space left on device"
        ):
            score_file(pairs, [tmp_path / "out.csv"], BagEncoder())
        assert [path.name for path in tmp_path.iterdir()] == ["pairs.csv"]

    def test_an_older_result_survives_a_failure(self, tmp_path):
        out = tmp_path / "out.csv"
        out.write_text("older")
        path = tmp_path / "pairs.csv"
        path.write_text("s1,s2\na,b\n")

        class Failing(BagEncoder):
            def encode(self, *_, **__):
                raise RuntimeError("out of memory")

        with pytest.raises(RuntimeError, match="out of memory"):
            score_file(path, [out], Failing())
        assert out.read_text() == "older"
        assert len(list(tmp_path.iterdir())) == 2

    def test_a_file_that_breaks_off_keeps_the_rows_before(self, tmp_path, monkeypatch):
        path = tmp_path / "pairs.csv"
        path.write_text("s1,s2\n" + "a,b\n" * 1_000)
        table = open_table(path)
        whole = type(table)._read

        def breaks_off(table, size):
            for number, batch in enumerate(whole(table, 100)):
                if number == 5:
                    raise OSError(5, "Input/output error")
                yield batch

        monkeypatch.setattr(type(table), "_read", breaks_off)
        with pytest.raises(
            InputError, match=r"Input/output error\. The 500 rows before are scored in .*out\.csv"
        ):
            score_file(table, [tmp_path / "out.csv"], BagEncoder())
        assert len(read_csv(tmp_path / "out.csv")) == 500


CHANGES = {
    "written on": lambda path: path.write_bytes(path.read_bytes() + b"one,more\n"),
    "touched": lambda path: os.utime(path, (0, 0)),
    "replaced": lambda path: (path.unlink(), path.write_text("other,content\n")),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_file_that_somebody_changes_while_it_is_read_is_one_sentence(tmp_path, change):
    path = tmp_path / "pairs.csv"
    path.write_text("s1,s2\n" + "".join(f"sentence {i},another {i}\n" for i in range(30_000)))

    class Changing(BagEncoder):
        def encode(self, *args, **options):
            if not self.seen:
                change(path)
            return super().encode(*args, **options)

    says = r"^pairs\.csv changed while it was read: .*, and start again\. The [\d,]+ rows before are scored in "
    with pytest.raises(InputError, match=says):
        score_file(path, [tmp_path / "out.csv"], Changing())
    assert len(read_csv(tmp_path / "out.csv")) >= 8_000


def test_the_time_of_reading_alone_is_no_change(pairs, tmp_path):
    os.utime(pairs, ns=(0, pairs.stat().st_mtime_ns))
    assert score_file(pairs, [tmp_path / "out.csv"], BagEncoder()).rows == 1_000


def _open_full(path: Path, mode: str = "r", *args, _open=Path.open, **kwargs):
    """`Path.open` on a full disk: a file can be created, and nothing can be written to it."""
    if "x" not in mode and "w" not in mode:
        return _open(path, mode, *args, **kwargs)
    path.touch()
    return _open(Path("/dev/full"), "w", buffering=1)


class TestRecentEmbeddings:
    def test_recent_embeddings_forget_the_oldest(self):
        recent = RecentEmbeddings(64, capacity=3)
        encoder = BagEncoder()
        for texts in (["a", "b"], ["c", "d"], ["b", "c", "d"], ["a"]):
            assert np.array_equal(recent.get(texts, encoder.encode), BagEncoder().encode(texts))
        assert encoder.seen == ["a", "b", "c", "d", "a"]

    def test_recent_embeddings_keep_no_long_sentence(self):
        recent = RecentEmbeddings(64)
        encoder = BagEncoder()
        for _ in range(2):
            recent.get(["word " * 200], encoder.encode)
        assert len(encoder.seen) == 2

    def test_no_pairs_have_no_scores(self):
        cosine, cross, *_ = PairScorer(BagEncoder()).score([], [])
        assert (cosine.shape, cross) == ((0,), None)

    @settings(max_examples=examples(60), deadline=None)
    @given(
        st.lists(st.lists(st.text("abc", max_size=2), unique=True, max_size=8), max_size=12),
        st.integers(1, 9),
    )
    def test_what_it_gives_is_what_the_encoder_gives(self, calls, capacity):
        recent = RecentEmbeddings(64, capacity)
        encoder = BagEncoder()
        for texts in calls:
            assert np.array_equal(recent.get(texts, encoder.encode), BagEncoder().encode(texts))


class TestReport:
    def test_beyond_its_capacity_it_looks_at_a_uniform_sample(self, tmp_path):
        with ReportBuilder(tmp_path, capacity=1_000) as builder:
            for start in range(0, 20_000, 500):
                rows = np.arange(start, start + 500, dtype=np.float64)
                texts = [f"row {start + at + 1}" for at in range(500)]
                builder.add(
                    start + 1, (texts, texts), (rows / 20_000).astype(np.float32), rows % 100, None
                )
            report = builder.finish()
        assert report.sampled
        assert report.cosine_gold.n == 1_000
        assert 0.45 < np.mean([cosine for _, cosine in report.scatter]) < 0.55, (
            "of the rows, early and late alike"
        )
        assert all(worst.sentence1 == f"row {worst.row}" for worst in report.gold_disagreements)

    def test_labels_are_counted_by_hundredths_of_the_cosine(self, tmp_path):
        cosine = np.array([0.62, 0.619, -1.0, 1.0, 0.95, 0.1], dtype=np.float32)
        texts = [f"row {row}" for row in range(1, 7)]
        with ReportBuilder(tmp_path) as builder:
            builder.add(1, (texts, texts), cosine, np.array([1.0, 1, 0, 1, 0, 1]), None)
            report = builder.finish(GoldColumn("duplicate", scale=(0, 1)))
        matches, others = report.by_label
        assert [at for at, count in enumerate(matches) if count] == [110, 161, 162, 199]
        assert [at for at, count in enumerate(others) if count] == [0, 195]
        assert [pair.row for pair in report.low_matches] == [6, 2, 1, 4]
        assert [pair.row for pair in report.high_others] == [5, 3]
        assert report.gold_disagreements == []

    def test_rows_without_scores_do_not_count(self, tmp_path):
        nan = np.nan
        with ReportBuilder(tmp_path) as builder:
            cosine = np.array([0.1, nan, 0.5, 0.9])
            gold = np.array([1.0, 2.0, nan, 3.0])
            builder.add(1, (["a"] * 4, ["b"] * 4), cosine, gold, None)
            report = builder.finish()
        assert (sum(report.counts), len(report.scatter)) == (3, 2)
