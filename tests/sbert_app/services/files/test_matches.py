"""A threshold applied: the column match, groups of duplicates as connected components, one sentence of each."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from bag_encoder import BagEncoder
from command_line import read_csv
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components

from sbert_app.services.background.watch import Watch
from sbert_app.services.files.matches import MatchOutputs, apply_threshold
from sbert_app.services.files.score import score_file
from training.data.tables.columns import PairColumns
from training.errors import InputError, StoppedError

# d-e-f are connected through e; b has the same text in two rows; a row without text has no score.
ROWS = [
    ("a", "x", 0.1),
    ("d", "e", 0.9),
    ("b", "c", 0.95),
    ("e", "f", 0.8),
    ("b", "g", 0.2),
    ("h", "", None),
]


@pytest.fixture
def scored(tmp_path) -> Path:
    path = tmp_path / "scored.csv"
    lines = [f"{a},{b},{'' if score is None else score}" for a, b, score in ROWS]
    path.write_text("left,right,cosine\n" + "\n".join(lines) + "\n")
    return path


def outputs(folder: Path) -> MatchOutputs:
    return MatchOutputs(
        [folder / "m.csv", folder / "m.parquet"], folder / "g.csv", folder / "d.csv"
    )


def applied(scored: Path, threshold: float = 0.8):
    return apply_threshold(
        scored, PairColumns("left", "right"), "cosine", threshold, outputs(scored.parent)
    )


def test_every_row_says_whether_it_matches(scored):
    summary = applied(scored)
    matches = [row["match"] for row in read_csv(scored.with_name("m.csv"))]
    assert matches == ["false", "true", "true", "true", "false", ""]
    assert pq.read_table(scored.with_name("m.parquet"))["match"].to_pylist() == [
        False,
        True,
        True,
        True,
        False,
        None,
    ]
    assert (summary.pairs, summary.matches) == (5, 3)


def test_matches_that_are_none_by_their_label_are_counted_and_listed(tmp_path, scored):
    assert applied(scored).false is None, "without labels"
    labels = ["1", "0", "1", "1", "0", ""]
    path = tmp_path / "judged.csv"
    lines = [
        f"{line},{label}"
        for line, label in zip(scored.read_text().split("\n")[1:], labels, strict=False)
    ]
    path.write_text("left,right,cosine,same\n" + "\n".join(lines) + "\n")
    found = apply_threshold(
        path, PairColumns("left", "right", "same"), "cosine", 0.8, outputs(tmp_path)
    )
    assert (found.matches, found.false, found.false_pairs) == (3, 1, [(2, "d", "e")])


def test_groups_are_connected_components_the_largest_first_of_none_to_all(scored):
    summary = applied(scored)
    rows = [
        (row["group"], row["size"], row["sentence"]) for row in read_csv(scored.with_name("g.csv"))
    ]
    assert rows == [
        ("1", "3", "d"),
        ("1", "3", "e"),
        ("1", "3", "f"),
        ("2", "2", "b"),
        ("2", "2", "c"),
    ]
    assert (summary.groups, summary.sentences, summary.remaining) == (2, 9, 6)
    assert [(group.size, group.sentences) for group in summary.largest] == [
        (3, ("d", "e", "f")),
        (2, ("b", "c")),
    ]
    assert (applied(scored, 2).groups, applied(scored, 2).remaining) == (0, 9)
    everything = applied(scored, -1)
    assert (everything.groups, everything.matches) == (3, 5)


def test_the_first_sentence_of_each_group_is_kept_in_the_order_of_the_file(scored):
    applied(scored)
    names = ("sentence", "row", "group", "stands_for")
    rows = [tuple(row[name] for name in names) for row in read_csv(scored.with_name("d.csv"))]
    assert rows == [
        ("a", "1", "", "1"),
        ("x", "1", "", "1"),
        ("d", "2", "1", "3"),
        ("b", "3", "2", "2"),
        ("g", "5", "", "1"),
        ("h", "6", "", "1"),
    ]


@given(
    st.lists(
        st.tuples(st.integers(0, 12), st.integers(0, 12), st.booleans()), min_size=1, max_size=30
    )
)
def test_groups_are_those_of_scipy(tmp_path_factory, rows):
    """Against a graph whose nodes are the sentences themselves."""
    folder = tmp_path_factory.mktemp("graph")
    path = folder / "scored.csv"
    path.write_text(
        "s1,s2,cosine\n" + "".join(f"t{a},t{b},{1 if linked else 0}\n" for a, b, linked in rows)
    )
    texts = sorted({text for a, b, _ in rows for text in (a, b)})
    graph = np.zeros((13, 13))
    for a, b, linked in rows:
        graph[a, b] = max(graph[a, b], linked)
    _, component = connected_components(graph, directed=False)
    outputs = MatchOutputs([], folder / "g.csv", folder / "d.csv")
    found = apply_threshold(path, PairColumns("s1", "s2"), "cosine", 0.5, outputs)
    assert found.remaining == len({component[text] for text in texts})
    members = {int(row["sentence"][1:]): row["group"] for row in read_csv(folder / "g.csv")}
    assert len({*members.values()}) == len(
        {(group, component[text]) for text, group in members.items()}
    )
    assert len({*members.values()}) == len({component[text] for text in members})


def test_stop_and_a_folder_that_does_not_exist_leave_nothing(scored):
    with pytest.raises(StoppedError):
        stopped = Watch(should_stop=lambda: True)
        apply_threshold(
            scored, PairColumns("left", "right"), "cosine", 0.8, outputs(scored.parent), stopped
        )
    with pytest.raises(InputError, match="There is no folder"):
        apply_threshold(
            scored, PairColumns("left", "right"), "cosine", 0.8, outputs(scored.parent / "none")
        )
    assert [file.name for file in scored.parent.iterdir()] == ["scored.csv"]


class TestGold:
    def file(self, tmp_path: Path, header: str, labels: list[str]) -> Path:
        path = tmp_path / "pairs.csv"
        rows = [f"the dog {i},the dog {i} runs,{label}" for i, label in enumerate(labels)]
        path.write_text(f"{header}\n" + "\n".join(rows) + "\n")
        return path

    @pytest.mark.parametrize(
        ("header", "labels", "meaning"),
        [
            (
                "premise,hypothesis,label",
                ["entailment", "neutral", "contradiction"],
                "entailment is a match, neutral",
            ),
            ("premise,hypothesis,label", ["0", "1", "2"], "entailment is a match, neutral"),
            ("sentence1,sentence2,label", ["1", "0", "0"], "1 is a match, 0 is not"),
            ("question1,question2,is_duplicate", ["yes", "no", "no"], "yes is a match, no is not"),
            (
                "sentence1,sentence2,score",
                ["4.5", "2", "0"],
                "a gold score of at least 4 (of 5) is a match",
            ),
            (
                "sentence1,sentence2,score",
                ["0.9", "0.2", "0.5"],
                "a gold score of at least 0.8 (of 1) is a match",
            ),
        ],
    )
    def test_labels_and_scores_say_what_matches(self, tmp_path, header, labels, meaning):
        summary = score_file(
            self.file(tmp_path, header, labels * 6), [tmp_path / "out.csv"], BagEncoder()
        )
        decision = summary.report.decision
        assert pytest.approx((18, 6)) == (decision.decision.n, decision.decision.matches)
        assert decision.meaning.startswith(meaning)
        assert summary.bad_gold == 0

    def test_labels_that_say_nothing_are_ignored(self, tmp_path):
        summary = score_file(
            self.file(tmp_path, "sentence1,sentence2,label", ["spam", "ham"]),
            [tmp_path / "out.csv"],
            BagEncoder(),
        )
        assert (summary.bad_gold, summary.report.decision, summary.report.cosine_gold) == (
            0,
            None,
            None,
        )

    def test_a_label_that_is_not_known_is_noted(self, tmp_path):
        path = self.file(tmp_path, "sentence1,sentence2,label", ["entailment"] * 60 + ["perhaps"])
        summary = score_file(path, [tmp_path / "out.csv"], BagEncoder())
        assert summary.bad_gold == 1
        assert "'perhaps' is none of entailment, neutral, contradiction" in summary.notes[0][1]
