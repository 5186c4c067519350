"""Ratings are on the disk when `rate` returns, and synchronised; the last word counts."""

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from sbert_app.services.annotations.project import MOST_RATERS, ChosenPair, ProjectInfo, Projects
from training.errors import InputError

INFO = ProjectInfo("My pairs", "mine.csv", "all-MiniLM-L6-v2", "minilm-stsb", 0.5, 0, 1.0)
PAIRS = [ChosenPair(f"a {i}", f"b {i}", "random", 0.5, 0.5) for i in range(4)]


@pytest.fixture
def projects(tmp_path):
    return Projects(tmp_path)


@pytest.fixture
def project(projects):
    return projects.open(projects.create(INFO, PAIRS))


def test_a_project_is_read_back_as_it_was_created(projects, project):
    assert project.id == "my-pairs" and project.info == INFO and list(project.pairs) == PAIRS
    assert projects.list() == [("my-pairs", INFO)]
    assert project.ratings() == {}


def test_a_second_project_of_the_same_name_is_refused(projects, project):
    with pytest.raises(InputError, match="there is a project 'my-pairs' already"):
        projects.create(INFO, PAIRS)


def test_the_last_score_of_a_rater_counts_and_undo_takes_back_one(project):
    project.rate("Ann", 0, 3)
    project.rate("Ann", 1, 2)
    project.rate("Ben", 2, 1)
    project.rate(" Ann ", 0, 5)
    assert project.ratings() == {"Ann": {0: 5, 1: 2}, "Ben": {2: 1}}
    assert project.undo("Ann") == 0
    assert project.ratings()["Ann"] == {0: 3, 1: 2}
    assert project.undo("Ann") == 1 and project.undo("Ann") == 0
    assert project.undo("Ann") is None
    assert project.ratings() == {"Ben": {2: 1}}


def test_a_pair_that_cannot_be_judged_is_dealt_with_and_has_no_score(projects, project):
    project.rate("Ann", 0, 3)
    project.rate("Ann", 1, None)
    project.rate("Ann", 0, None)
    again = projects.open(project.id)
    assert again.judgements() == {"Ann": {0: None, 1: None}} and again.ratings() == {}
    assert project.undo("Ann") == 0
    assert project.judgements() == {"Ann": {0: 3, 1: None}} and project.ratings() == {"Ann": {0: 3}}


def test_the_last_agreed_score_counts_until_it_is_taken_back(projects, project):
    project.agree("Ann", 1, 4)
    project.agree("Ben", 1, 2)
    file = project.folder / "agreed.jsonl"
    file.write_bytes(
        file.read_bytes()
        + b'{"pair": 1, "score": 9, "rater": "x"}\n{"pair": 99, "score": 1, "rater": "x"}\n{'
    )
    assert projects.open(project.id).agreed() == {1: 2}
    project.agree("Ben", 1, None)
    assert project.agreed() == {}
    with pytest.raises(InputError, match="from 0 to 5"):
        project.agree("Ben", 1, 6)


@pytest.mark.parametrize(
    "line",
    [
        b"null\n",
        b"[" * 10_000 + b"\n",
        b'{"rater": "Ann", "pair": 1}\n',
        b'{"rater": "Ann", "pair": 999, "score": 3}\n',
        b'{"rater": "Ann", "pair": 1, "score": 99}\n',
        b'{"rater": "Ann", "pair": 1, "score": 3, "at": \xff}\n',
        b'{"rater":"Ann","pair":1,"sc',
    ],
)
def test_a_line_that_is_no_rating_or_was_cut_off_counts_as_not_written(projects, project, line):
    project.rate("Ann", 0, 3)
    file = project.folder / "ratings.jsonl"
    file.write_bytes(file.read_bytes() + line)
    assert project.ratings() == {"Ann": {0: 3}}
    project.rate("Ann", 2, 1)
    assert projects.open(project.id).ratings() == {"Ann": {0: 3, 2: 1}}


def test_separators_of_lines_in_a_sentence_hurt_nothing(projects):
    pairs = [ChosenPair("a\u2028b\u2029c\x85d\x0ce", "b", "random", float("nan"), 0.5), *PAIRS]
    project = projects.open(projects.create(INFO, pairs))
    assert project.pairs[0].first == pairs[0].first
    project.rate("B\u2028", 0, 3)
    assert project.ratings() == {"B": {0: 3}}


def test_half_a_character_is_refused_and_nothing_is_written(projects, project):
    with pytest.raises(InputError, match=r"the pair 'a 1', '\\ud800' has half a character"):
        projects.create(replace(INFO, name="other"), [PAIRS[0], replace(PAIRS[1], second="\ud800")])
    with pytest.raises(InputError, match="the name of a project has half a character"):
        projects.create(replace(INFO, name="other \udfff"), PAIRS)
    with pytest.raises(InputError, match="the name of a rater has half a character"):
        project.rate("An\ud800n", 0, 3)
    assert [each for each, _ in projects.list()] == [project.id] and project.ratings() == {}


def test_a_damaged_project_is_a_sentence_and_hides_no_other(projects, project):
    other = projects.create(replace(INFO, name="other"), PAIRS)
    (project.folder / "pairs.jsonl").write_bytes(b'{"first": "a"')
    with pytest.raises(InputError, match=r"my-pairs/pairs.jsonl: line 1 is damaged"):
        projects.open(project.id)
    (project.folder / "pairs.jsonl").write_bytes(b"")
    with pytest.raises(InputError, match=r"my-pairs/pairs.jsonl holds no pair"):
        projects.open(project.id)
    (project.folder / "project.json").write_bytes(b"[" * 100_000)
    with pytest.raises(InputError, match=r"project.json cannot be read"):
        projects.open(project.id)
    assert [each for each, _ in projects.list()] == [other]
    (error,) = projects.store.list().damaged
    assert "my-pairs/project.json" in str(error)


def test_a_rating_is_synchronised_before_it_counts_as_saved(project, monkeypatch):
    synchronised = []
    monkeypatch.setattr(
        os,
        "fsync",
        lambda number: synchronised.append(Path(f"/proc/self/fd/{number}").resolve().name),
    )
    project.rate("Ann", 0, 3)
    assert synchronised == ["ratings.jsonl"]


def test_several_raters_at_once_lose_nothing(projects):
    pairs = [ChosenPair(f"a {i}", f"b {i}", "random", 0.5, 0.5) for i in range(30)]
    project = projects.open(projects.create(INFO, pairs))
    threads = [
        threading.Thread(
            target=lambda name=name: [
                projects.open(project.id).rate(name, i, i % 6) for i in range(30)
            ]
        )
        for name in ("Ann", "Ben", "Cem")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert project.ratings() == {
        name: {i: i % 6 for i in range(30)} for name in ("Ann", "Ben", "Cem")
    }


@pytest.mark.parametrize(
    ("rater", "pair", "score", "message"),
    [
        ("", 0, 3, "a rater needs a name"),
        ("Ann", 0, 6, "a whole number from 0 to 5"),
        ("Ann", 4, 3, "there is none with number 5"),
    ],
)
def test_a_value_that_is_not_a_rating_is_refused_and_not_written(
    project, rater, pair, score, message
):
    with pytest.raises(InputError, match=message):
        project.rate(rater, pair, score)
    assert not (project.folder / "ratings.jsonl").exists()


def test_no_name_leads_out_of_the_folder(projects):
    for name in ("../x", "/etc", "", "."):
        with pytest.raises(InputError, match="there is no project"):
            projects.open(name)


def test_not_any_number_of_people_judges_a_project(project):
    for number in range(MOST_RATERS):
        project.rate(f"rater {number}", 0, 1)
    with pytest.raises(InputError, match=f"{MOST_RATERS} people have judged"):
        project.rate("one more", 0, 1)
    project.rate("rater 7", 1, 2)
    assert project.ratings()["rater 7"] == {0: 1, 1: 2}
