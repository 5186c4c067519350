"""Data sets by name and from files, and the views that objectives need."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.catalogue import LABELLED, NLI_LABELS, PAIRS, SCORED, SENTENCES, TRIPLETS
from training.data.dataset import Dataset, join, parse_dataset
from training.data.load import check_data_name, load_data
from training.data.tables import table as table_module
from training.data.transforms import EXAMPLES, FORMS, NEAREST_FORM
from training.errors import InputError
from training.objectives import OBJECTIVES, training_data
from training.sources import hub_dataset, resolve


def transformed(data: Dataset, objective: str, seed: int = 0) -> Dataset:
    return OBJECTIVES[objective].transform(data, seed)


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def pairs(n: int, **more) -> Dataset:
    return Dataset("toy", ([f"a{i}" for i in range(n)], [f"b{i}" for i in range(n)]), **more)


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with a tiny STS benchmark, taken for whole: an odd quotation mark, a row with licence columns."""
    folder = tmp_path / "data/stsb"
    folder.mkdir(parents=True)
    rows = {
        "train": ['main-news\tMSRpar\t2012\t1\t4.500\tHe said "no.\tHe refused.'],
        "dev": ["main\tx\t2012\t1\t0.000\tA cat sits.\tPrices fell.\tlicence\tmore"],
        "test": ["main\tx\t2012\t1\t5.000\tSame.\tSame.", "main\tx\t2012\t2\t2.5\tA dog.\tA wolf."],
    }
    for split, lines in rows.items():
        (folder / f"sts-{split}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    monkeypatch.setattr(
        resolve,
        "stsb_folder",
        lambda home: resolve.ResolvedFolder(Path(home) / "data/stsb", "here"),
    )
    return tmp_path


def test_the_sts_benchmark_is_read_as_it_is_written(tiny):
    train, dev, test = (load_data(f"stsb:{split}", tiny) for split in ("train", "dev", "test"))
    assert train.columns == (['He said "no.'], ["He refused."])
    assert (train.scores, dev.scores, test.scores) == ([4.5], [0.0], [5.0, 2.5])
    assert (train.kind, train.name, train.source) == (SCORED, "stsb:train", "here")
    assert load_data("stsb", tiny).name == "stsb:train"
    assert load_data("stsb", tiny, split="test").name == "stsb:test"


def test_unknown_names_and_splits_are_refused_with_what_there_is(tiny):
    with pytest.raises(InputError, match="no split 'validation'; choose train, dev, test"):
        load_data("stsb:validation", tiny)
    with pytest.raises(InputError, match="sts12 has no split 'dev'; choose test"):
        load_data("sts12:dev")
    with pytest.raises(InputError, match=r"neither a file nor a known set.*sts12.*wiki-sections"):
        load_data("stbs", tiny)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch):
    """The Hub replaced by columns of rows; the list that it returns has the questions that were asked."""

    def replace(**columns: list) -> list[tuple]:
        questions: list[tuple] = []

        def read_dataset(repo_id, selectors, split, wanted, home=None):
            questions.append((repo_id, selectors, split))
            assert list(wanted(list(columns))) == list(columns)
            return hub_dataset.HubRows(columns, selectors[0], split, "Hub", ())

        monkeypatch.setattr(hub_dataset, "read_dataset", read_dataset)
        return questions

    return replace


@pytest.mark.parametrize("setting", ["encoding=cp1252", "scale=1-7"])
def test_settings_of_a_file_are_refused_beside_a_named_set(tiny, setting):
    with pytest.raises(InputError, match="stsb:dev is a set and not a file, so its"):
        load_data(f"stsb:dev?{setting}", tiny)


def test_named_sets_of_the_hub_drop_rows_without_a_gold_label(hub):
    questions = hub(premise=["p", "q", "r"], hypothesis=["h", "i", "j"], label=[0, -1, 2])
    snli = load_data("snli")
    assert questions == [("stanfordnlp/snli", ("plain_text", "train"), "train")]
    assert snli.columns == (["p", "r"], ["h", "j"])
    assert (snli.labels, snli.label_names) == ([0, 2], NLI_LABELS)
    assert snli.notes[0] == "1 row without a gold label left out"
    assert list(snli.rows) == [1, 3]
    questions = hub(anchor=["a", "b"], positive=["p", "q"], negative=["n", "m"])
    sections = load_data("wiki-sections:dev")
    assert questions[0][1:] == (("triplet", "validation"), "validation")
    assert (sections.kind, sections.name, sections.columns[0]) == (
        TRIPLETS,
        "wiki-sections:dev",
        ["a", "b"],
    )


def test_the_columns_of_a_file_say_its_form(tmp_path):
    mine = load_data(
        write(tmp_path, "mine.csv", "sentence1,sentence2,score\nOne.,Two.,4\nThree.,Four.,1.5\n")
    )
    assert (mine.kind, mine.name, mine.scores) == (SCORED, "mine.csv", [4.0, 1.5])
    assert load_data(write(tmp_path, "t.csv", "anchor,positive,negative\na,p,n\n")).kind == TRIPLETS
    assert load_data(write(tmp_path, "s.csv", "sentence\nHello there.\n")).kind == SENTENCES
    assert parse_dataset("x", {"left": ["a"], "right": ["b"]}).kind == PAIRS
    with pytest.raises(
        InputError, match=r"odd.csv has the columns id, headline, score; it needs sentence1"
    ):
        load_data(write(tmp_path, "odd.csv", "id,headline,score\n1,Hello.,3\n"))


def test_rows_that_cannot_be_used_are_left_out_and_counted_or_named():
    mine = parse_dataset(
        "mine",
        {
            "sentence1": ["a", "", "c", "d"],
            "sentence2": ["b", "x", None, "e"],
            "score": [1, 2, 3, ""],
        },
    )
    assert mine.columns == (["a"], ["b"])
    assert mine.notes[:2] == (
        "2 rows with an empty sentence left out",
        "1 row without a score left out",
    )
    assert list(mine.rows) == [1]
    with pytest.raises(InputError, match=r"mine, row 2, column score: 'high'"):
        parse_dataset(
            "mine", {"sentence1": ["a", "b"], "sentence2": ["c", "d"], "score": ["1", "high"]}
        )
    with pytest.raises(
        InputError, match="holds no usable row; 1 row with an empty sentence left out"
    ):
        parse_dataset("mine", {"sentence1": [" "], "sentence2": ["b"]})
    with pytest.raises(
        InputError,
        match=r"scores from -40 to 7, which no usual scale has; .scale=-40..7 names theirs",
    ):
        parse_dataset("mine", {"sentence1": ["a", "b"], "sentence2": ["c", "d"], "score": [-40, 7]})


def test_sets_of_one_form_and_its_labels_join(tmp_path):
    a = write(tmp_path, "a.csv", "sentence1,sentence2,score\na,b,1\nc,d,5\n")
    b = write(tmp_path, "b.csv", "sentence1,sentence2,score\ne,f,3\n")
    both = load_data(f"{a}+{b}")
    assert (both.name, both.scores) == ("a.csv+b.csv", [1, 5, 3])
    assert both.notes[1::2] == ("a.csv: 2 rows", "b.csv: 1 rows")
    assert both.notes[0] == "a.csv: read as: scores from 0 to 5; ?scale=1-5 reads them otherwise"
    assert len(load_data(write(tmp_path, "a+b.csv", "sentence1,sentence2\na,b\n"))) == 1
    with pytest.raises(InputError, match="holds scored pairs and toy pairs"):
        join([pairs(1, scores=[1.0]), pairs(1)])
    with pytest.raises(InputError, match="labels of toy are no, yes, those of toy low, high"):
        join(
            [
                pairs(1, labels=[0], label_names=("no", "yes")),
                pairs(1, labels=[0], label_names=("low", "high")),
            ]
        )


def test_scores_become_thirds_or_pairs_that_belong_together():
    scored = pairs(6, scores=[0.0, 1.66, 1.67, 3.33, 3.34, 5.0])
    seen = transformed(scored, "classification")
    assert seen.labels == [0, 0, 1, 1, 2, 2]
    assert seen.label_names == ("low", "middle", "high")
    assert seen.notes == ("labels are the thirds of the gold scores 0–5: 2 low, 2 middle, 2 high",)
    seen = transformed(pairs(4, scores=[5.0, 4.0, 3.99, 0.0]), "mnrl")
    assert (seen.kind, seen.columns[0]) == (PAIRS, ["a0", "a1"])
    assert "2 of 4 with a gold score of at least 4" in seen.notes[0]


def test_a_negative_of_the_same_anchor_is_preferred_to_a_drawn_one():
    scored = Dataset(
        "toy",
        (["a", "a", "b", "c"], ["near", "far", "close", "other"]),
        scores=[4.5, 1.0, 5.0, 2.5],
    )
    seen = transformed(scored, "triplet")
    assert seen.kind == TRIPLETS
    assert [column[0] for column in seen.columns] == ["a", "near", "far"]
    assert seen.columns[2][1] in {"near", "far", "other"}
    assert (
        seen.notes[-1]
        == "2 triplets; negatives: 1 with a gold score of at most 1.5, 1 drawn at random"
    )


@given(
    st.integers(0, 1000),
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("wxyz")), min_size=1),
)
def test_a_drawn_negative_is_never_a_positive_of_its_anchor(seed, rows):
    data = Dataset("toy", ([a for a, _ in rows], [b for _, b in rows]))
    try:
        seen = transformed(data, "triplet", seed)
    except InputError:
        return
    together = set(rows)
    assert all((a, n) not in together and a != n for a, _, n in zip(*seen.columns, strict=True))
    assert seen == transformed(data, "triplet", seed)


def test_data_that_an_objective_cannot_learn_from_is_refused():
    with pytest.raises(InputError, match="too few different sentences"):
        transformed(Dataset("toy", (["a"], ["b"])), "triplet")
    with pytest.raises(
        InputError, match=r"spam.*name them entailment and contradiction, or 1 and 0"
    ):
        transformed(pairs(2, labels=[0, 1], label_names=("ham", "spam")), "triplet")
    with pytest.raises(
        InputError, match=r"classification needs pairs with a label.*toy holds pairs; mnrl learns"
    ):
        transformed(pairs(3), "classification")
    with pytest.raises(InputError, match="gives no rows for mnrl"):
        transformed(pairs(2, scores=[0.0, 1.0]), "mnrl")


NLI = Dataset(
    "nli",
    (["p", "p", "p", "q", "q", "r"], ["yes1", "no", "yes2", "yes3", "maybe", "not"]),
    labels=[0, 2, 0, 0, 1, 2],
    label_names=NLI_LABELS,
)


@pytest.mark.parametrize("objective", ["triplet", "mnrl"])
def test_entailment_and_contradiction_of_one_premise_make_triplets(objective):
    seen = transformed(NLI, objective)
    assert list(zip(*seen.columns, strict=True)) == [("p", "yes1", "no"), ("p", "yes2", "no")]
    assert seen.notes == (
        "2 triplets from 6 pairs: a sentence, its entailment and its contradiction",
    )
    assert seen.labels is None


def test_mnrl_takes_the_positive_pairs_of_labels_that_it_understands():
    seen = transformed(NLI.select([0, 3, 4]), "mnrl")
    assert seen.columns == (["p", "q"], ["yes1", "yes3"])
    data = pairs(3, labels=[1, 0, 1], label_names=("0", "1"))
    assert transformed(data, "mnrl").columns[0] == ["a0", "a2"]


def test_contrastive_takes_the_clear_pairs_and_two_of_a_triplet():
    seen = transformed(pairs(5, scores=[5.0, 4.0, 3.9, 1.5, 0.0]), "contrastive")
    assert (seen.columns[0], seen.labels) == (["a0", "a1", "a3", "a4"], [1, 1, 0, 0])
    assert seen.label_names == ("apart", "together")
    assert (
        "2 pairs belong together (a gold score of at least 4), 2 do not (of at most 1.5); 1 of 5"
        in seen.notes[-1]
    )
    seen = transformed(NLI, "contrastive")
    assert list(zip(*seen.columns, seen.labels, strict=True))[:2] == [
        ("p", "yes1", 1),
        ("p", "no", 0),
    ]
    assert len(seen) == 5  # without the neutral pair
    seen = transformed(Dataset("toy", (["a", "b"], ["p", "q"], ["n", "m"])), "contrastive")
    assert list(zip(*seen.columns, seen.labels, seen.rows, strict=True)) == [
        *(("a", "p", 1, 1), ("b", "q", 1, 2), ("a", "n", 0, 1), ("b", "m", 0, 2))
    ]


@pytest.mark.parametrize("objective", ["cosent", "angle"])
def test_labels_with_an_order_are_scores_for_a_ranking(objective):
    seen = transformed(NLI, objective)
    assert seen.scores == [5.0, 0.0, 5.0, 5.0, 2.5, 0.0]
    assert seen.kind == SCORED
    assert (
        seen.notes[-1]
        == "scores are made of the labels: entailment 5, neutral 2.5, contradiction 0"
    )
    assert transformed(pairs(2, labels=[0, 1], label_names=("0", "1")), objective).scores == [
        0.0,
        5.0,
    ]


def test_simcse_takes_each_sentence_twice():
    data = Dataset("toy", (["a", "b", "a"], ["c", "a", "d"]), scores=[1.0, 2.0, 3.0])
    seen = transformed(data, "simcse")
    assert seen.columns == (["a", "b", "c", "d"], ["a", "b", "c", "d"])
    assert (list(seen.rows), seen.kind) == ([1, 2, 1, 3], PAIRS)
    assert transformed(Dataset("toy", (["a", "b"],)), "simcse").columns == (["a", "b"], ["a", "b"])


def test_distillation_does_not_use_gold_scores():
    seen = transformed(pairs(2, scores=[1.0, 2.0]), "mse")
    assert (seen.kind, seen.notes[-1]) == (
        PAIRS,
        "the gold scores are not used: the teacher gives the target",
    )
    assert transformed(Dataset("toy", (["a", "b"],)), "mse").kind == SENTENCES
    assert transformed(NLI, "margin-mse") == transformed(NLI, "triplet")


def test_every_objective_and_form_is_decided():
    assert (
        set(FORMS)
        == set(NEAREST_FORM)
        == set(EXAMPLES)
        == {SENTENCES, PAIRS, SCORED, LABELLED, TRIPLETS}
    )
    for kind, example in EXAMPLES.items():
        assert example.kind == kind
        for objective in OBJECTIVES.values():
            if kind in objective.rows.of:
                made = objective.transform(example)
                assert objective.rows.example(kind) == (
                    len(made.columns),
                    len(made) == len(example),
                )
            else:
                with pytest.raises(
                    InputError, match=f"{objective.name} needs .* but example holds {kind}; "
                ):
                    objective.transform(example)


def test_parts_join_where_the_objective_can_use_both(tmp_path):
    scored = write(tmp_path, "s.csv", "sentence1,sentence2,score\na,b,5\nc,d,0\n")
    plain = write(tmp_path, "p.csv", "sentence1,sentence2\ne,f\n")
    assert training_data(f"{scored}+{plain}", "mnrl").columns == (["a", "e"], ["b", "f"])


def test_names_of_data_sets_are_told_from_paths():
    for name in (
        "stsb",
        "stsb:dev",
        "sts12",
        "hf:org/name",
        "hf:org/name:config:split+stsb:train",
        "snli + mnli",
    ):
        assert check_data_name(name) == name
    for name in ("/etc/passwd", "mine.csv", "stsb:dev+../x.csv", "stbs", ""):
        with pytest.raises(
            InputError, match=r"is no data set that is known by name; .* stsb, .* hf:org/name"
        ):
            check_data_name(name)


def test_a_gzip_bomb_is_refused_and_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(table_module, "MOST_UNPACKED", 1 << 20)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    file = tmp_path / "bomb.csv.gz"
    file.write_bytes(gzip.compress(b"sentence1,sentence2,score\n" + b"A b.,C d.,1\n" * 1_000_000))
    with pytest.raises(InputError, match=r"bomb.csv.gz unpacks to more than"):
        load_data(str(file))
    assert not list((tmp_path / "tmp").iterdir())


@pytest.mark.parametrize(
    "content",
    [b"\x1f\x8b", gzip.compress(b"sentence1,sentence2\na,b\n", mtime=0)[:-6]],
    ids=["two bytes", "cut off"],
)
def test_a_damaged_gzip_file_is_one_sentence(tmp_path, content):
    file = tmp_path / "pairs.csv.gz"
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"pairs.csv.gz is no complete gzip file"):
        load_data(str(file))
