"""Transfer: classification of frozen vectors, the data it needs, the genres of STSb."""

import csv
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from sbert_app.pages.evaluate.labels import score_table
from sbert_app.services.background.watch import Watch
from sbert_app.services.results.transfer import (
    ClassificationData,
    _splits,
    load_task,
    pairs_by_genre,
    read_labelled,
    score_transfer,
    sentences_by_genre,
)
from training.errors import InputError, StoppedError
from training.models.model import VectorModel
from training.names import ModelName


class Fixed(VectorModel):
    """A model whose vectors say what the test wants them to say."""

    name = "fixed"
    pooling = "mean"

    def __init__(self, vector_of):
        self.vector_of = vector_of
        self.dimension = len(vector_of("a"))

    def encode_batch(self, sentences):
        return np.array([self.vector_of(sentence) for sentence in sentences])


def write(path: Path, header: list[str], rows: list[list[object]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def noise(sentence: str) -> np.ndarray:
    return np.random.default_rng(crc32(sentence.encode())).standard_normal(8)


def test_a_class_encoded_in_the_vectors_is_learned_and_noise_gives_chance():
    labels = ["a" if number % 3 else "b" for number in range(300)]
    sentences = [f"{label} {number}" for number, label in enumerate(labels)]
    data = ClassificationData("toy", (sentences,), labels)

    def telling(sentence: str) -> np.ndarray:
        return noise(sentence) + 8 * (sentence[0] == "a")

    found = score_transfer(Fixed(telling), data)
    assert found.mean > 0.98
    assert len(found.accuracies) == 10
    assert found.majority == pytest.approx(2 / 3)
    assert score_transfer(Fixed(noise), data).mean == pytest.approx(found.majority, abs=0.06)


def test_pairs_are_classified_by_their_difference():
    columns = [f"{i}" for i in range(200)], [f"{i if i % 2 else i + 500}" for i in range(200)]
    data = ClassificationData("pairs", columns, ["same" if i % 2 else "other" for i in range(200)])
    assert score_transfer(Fixed(noise), data).mean > 0.95


def with_a_small_class() -> ClassificationData:
    sentences = [f"x {number}" for number in range(40)]
    return ClassificationData("toy", (sentences,), ["rare"] * 3 + ["common"] * 37)


def test_a_small_class_gives_fewer_folds_and_the_same_figures_again():
    data = with_a_small_class()
    first, second = (score_transfer(Fixed(noise), data) for _ in range(2))
    assert len(first.accuracies) == 3
    assert first.accuracies == second.accuracies


def test_a_stop_ends_the_measurement():
    with pytest.raises(StoppedError):
        score_transfer(Fixed(noise), with_a_small_class(), watch=Watch(should_stop=lambda: True))


def test_rows_of_unknown_text_or_without_numbers_are_left_out_and_counted():
    labels = ["a" if number % 3 else "b" for number in range(100)]
    sentences = [f"{label} {number}" for number, label in enumerate(labels)]

    class Blind(Fixed):
        def is_unknown(self, sentences):
            return [sentence.startswith("?") for sentence in sentences]

    model = Blind(lambda sentence: noise(sentence) * (np.nan if sentence == "nan" else 1))
    usable = ClassificationData("toy", (sentences,), labels)
    more = ClassificationData("toy", (["?", *sentences, "? ?", "nan"],), ["b", *labels, "a", "b"])
    score = score_transfer(model, more)
    assert score.accuracies == score_transfer(model, usable).accuracies
    assert score.note.startswith(
        "3 of 103 rows are left out: in 2 there is a text of which fixed knows no token"
    )
    assert score.note in score_table([ModelName("fixed")], more, [score])
    assert score_transfer(model, usable).note == ""
    for texts in (["a 1", "a 2", "? 3"], ["a 1", "a 2", "? 3", "b 4"]):
        classes = ["a", "a", "b", "b"][: len(texts)]
        with pytest.raises(
            InputError, match=f"two classes of two rows remain: 1 of {len(texts)} rows"
        ):
            score_transfer(model, ClassificationData("toy", (texts,), classes))


def test_gaps_in_a_file_of_sentences_are_left_out_and_counted(tmp_path):
    rows = [["good", 1], ["bad", 0], ["fine", 1], ["", 1], ["awful", 0], ["none", ""]]
    found = read_labelled(write(tmp_path / "a.csv", ["text", "label"], rows))
    assert (len(found), found.classes) == (4, [("1", 2), ("0", 2)])
    assert found.notes == ("2 rows without text or label left out",)


def test_a_file_of_pairs_has_two_columns_of_sentences(tmp_path):
    pairs = [["a", "b", "yes"], ["c", "d", "no"]] * 2
    assert (
        len(
            read_labelled(
                write(tmp_path / "b.csv", ["sentence1", "sentence2", "label"], pairs)
            ).columns
        )
        == 2
    )


@pytest.mark.parametrize(
    ("header", "rows", "complaint"),
    [
        (["text", "class name"], [["a", "b"]], "needs sentence and label"),
        (["text", "label"], [["a", "x"], ["b", "x"]], "two classes"),
        (["text", "label"], [[f"s{i}", f"l{i}"] for i in range(200)], "200 different labels"),
    ],
)
def test_unusable_data_gives_one_clear_sentence(tmp_path, header, rows, complaint):
    with pytest.raises(InputError, match=complaint):
        read_labelled(write(tmp_path / "file.csv", header, rows))


def test_a_task_of_the_paper_is_taken_from_the_home_folder(tmp_path):
    folder = tmp_path / "data" / "SetFit" / "TREC-QC"
    folder.mkdir(parents=True)
    write(
        folder / "train.csv",
        ["text", "label", "label_coarse_text"],
        [["who", 3, "HUM"], ["where", 4, "LOC"]] * 3,
    )
    found = load_task("trec", tmp_path)
    assert dict(found.classes) == {"HUM": 3, "LOC": 3}
    with pytest.raises(InputError, match="there is no task"):
        load_task("nothing", tmp_path)


def test_the_genres_of_stsb(home):
    found = sentences_by_genre(home)
    assert {label for label, _ in found.classes} == {"captions", "forums", "news"}
    with pairs_by_genre(home).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 1_500
    assert {row["topic"] for row in rows} == {"captions", "forums", "news"}


class TestGroups:
    """Rows that are related stay in one fold."""

    def test_rows_with_the_same_sentence_and_declared_pairs_are_one_group(self):
        data = ClassificationData("t", (["a", "b", "a", "c", "d"],), list("xyxyx"), pairs=((3, 4),))
        assert data.groups[0] == data.groups[2]
        assert data.groups[3] == data.groups[4]
        assert len(set(data.groups.tolist())) == 3
        of_pairs = ClassificationData("t", (["a", "b", "c"], ["x", "a", "y"]), list("xyx"))
        assert of_pairs.groups[0] == of_pairs.groups[1] != of_pairs.groups[2]

    def test_sentences_of_a_pair_are_never_in_both_training_and_test(self, home):
        data = sentences_by_genre(home)
        assert len(data.pairs) > 1_000
        targets = np.unique(data.labels, return_inverse=True)[1]
        for train, test in _splits(targets, data.groups, 10):
            in_test = np.zeros(len(data), dtype=bool)
            in_test[test] = True
            assert all(in_test[a] == in_test[b] for a, b in data.pairs)
            assert len(train) + len(test) == len(data)
