"""People's work as one archive: what is lost comes back, what is there stays, and a bad archive changes nothing."""

import json
import shutil
import stat
from pathlib import Path
from zipfile import ZipFile, ZipInfo

import pytest

from sbert_app.cli import main
from sbert_app.services.annotations.project import ChosenPair, ProjectInfo, Projects
from sbert_app.services.runs.backup import back_up, files_of, restore
from sbert_app.services.runs.store import RunStore
from training.errors import InputError
from training.trainer.config import RunConfig

CONFIG = RunConfig("regression", base="scratch:1x32")


@pytest.fixture
def lab(tmp_path) -> Path:
    """A home folder of two runs, a project, an upload and some caches."""
    home = tmp_path / "lab"
    store = RunStore(home)
    for name in ("one", "two"):
        (store.create(CONFIG.replace(name=name), queue=False).folder / "model").mkdir()
    projects = Projects(home)
    info = ProjectInfo("News", "pairs.csv", "all-MiniLM-L6-v2", "minilm-stsb", 0.5, 0, 1.0)
    projects.open(projects.create(info, [ChosenPair("a", "b", "random", 0.5, 0.5)])).rate(
        "Ann", 0, 3
    )
    for name in (
        "data/uploads/0123456789ab/pairs.csv",
        "cache/a.npz",
        "tmp/x.csv",
        "worker-0.log",
        "data/stsb/sts-dev.csv",
    ):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(name)
    return home


def contents(home: Path) -> dict[str, bytes]:
    return {file.relative_to(home).as_posix(): file.read_bytes() for file in files_of(home)}


def test_restoring_brings_back_lost_files_and_keeps_those_that_are_there(lab, tmp_path):
    archive = tmp_path / "lab.zip"
    before = contents(lab)
    saved = back_up(lab, archive)
    assert (saved.left_out, saved.at_work) == ((), ())
    work = {
        name: data
        for name, data in before.items()
        if name.startswith(("runs/", "annotations/", "data/uploads/"))
    }
    assert set(ZipFile(archive).namelist()) == {name for name in work if not name.endswith("/lock")}
    one, two = sorted(RunStore(lab).list(), key=lambda run: run.name)
    shutil.rmtree(one.folder)
    RunStore(lab).rename(two.id, "renamed since")
    (lab / "annotations" / "news" / "ratings.jsonl").unlink()
    there = ["annotations/news", "data/uploads/0123456789ab", f"runs/{two.id}"]
    assert restore(lab, archive) == ([f"runs/{one.id}"], there)
    assert {run.name for run in RunStore(lab).list()} == {"one", "renamed since"}
    assert not (lab / "annotations" / "news" / "ratings.jsonl").exists()
    elsewhere = tmp_path / "elsewhere"
    assert restore(elsewhere, archive)[1] == []
    assert contents(elsewhere) == {
        name: data for name, data in work.items() if not name.endswith("/lock")
    }
    assert Projects(elsewhere).open("news").ratings() == {"Ann": {0: 3}}


def test_a_run_at_work_is_saved_without_what_changes(lab, tmp_path):
    store = RunStore(lab)
    run = store.create(CONFIG)
    with store.lease(run.id) as lease:
        (lease.run.folder / "model").mkdir()
        for name in ("model/model.safetensors", "events.jsonl"):
            (lease.run.folder / name).write_bytes(b"")
        assert back_up(lab, tmp_path / "lab.zip").at_work == (run.id,)
    restore(tmp_path / "elsewhere", tmp_path / "lab.zip")
    saved = RunStore(tmp_path / "elsewhere").get(run.id)
    assert (saved.state, saved.has_model, (saved.folder / "events.jsonl").exists()) == (
        "interrupted",
        False,
        True,
    )


def test_a_file_that_cannot_be_read_costs_itself_alone(lab, tmp_path, monkeypatch, capsys):
    [lost] = lab.glob("data/uploads/*/*")
    read = Path.open

    def failing(path, *arguments, **options):
        if path == lost:
            raise OSError(5, "Input/output error")
        return read(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", failing)
    assert main(["home", "backup", str(tmp_path / "lab.zip"), "--home", str(lab)]) == 1
    assert (
        f"{lost} cannot be read: Input/output error; it is not in the backup"
        in capsys.readouterr().err
    )
    assert restore(tmp_path / "elsewhere", tmp_path / "lab.zip")[0][0] == "annotations/news"


def archive_of(path: Path, **members: str) -> Path:
    with ZipFile(path, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return path


@pytest.mark.parametrize(
    "name",
    [
        "../runs/a/run.json",
        "/runs/a/run.json",
        "runs/a/../../x",
        "runs/a/.hidden",
        "runs/a\\..\\..\\x",
        "runs/C:/x",
        "runs/run.json",
        "worker-0.log",
        "data/stsb/sts-dev.csv",
    ],
)
def test_no_other_file_is_restored(tmp_path, name):
    archive = archive_of(tmp_path / "lab.zip", **{"experiments/x.json": "{}", name: "x"})
    with pytest.raises(InputError, match="is no backup of a home folder"):
        restore(tmp_path / "home", archive)
    assert contents(tmp_path) == {"lab.zip": archive.read_bytes()}


def test_no_link_no_name_twice_and_nothing_that_does_not_fit_is_restored(tmp_path, monkeypatch):
    link = ZipInfo("experiments/x.json")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with ZipFile(tmp_path / "link.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")
    with (
        ZipFile(tmp_path / "twice.zip", "w") as archive,
        pytest.warns(UserWarning, match="Duplicate"),
    ):
        for text in "ab":
            archive.writestr("experiments/x.json", text)
    archive_of(tmp_path / "both.zip", **{"experiments/x": "a", "experiments/x/y": "b"})
    for name in ("link", "twice", "both"):
        with pytest.raises(InputError, match="is no backup of a home folder"):
            restore(tmp_path / "home", tmp_path / f"{name}.zip")
    archive = archive_of(tmp_path / "lab.zip", **{"experiments/x.json": "{}" * 100_000})
    monkeypatch.setattr("shutil.disk_usage", lambda _: shutil._ntuple_diskusage(0, 0, 100_000))
    with pytest.raises(InputError, match="are free; nothing is restored"):
        restore(tmp_path / "home", archive)
    assert contents(tmp_path / "home") == {}


def test_a_damaged_archive_changes_nothing(lab, tmp_path):
    archive = tmp_path / "lab.zip"
    back_up(lab, archive)
    whole = archive.read_bytes()
    for at in range(0, len(whole), 97):
        for data in (whole[:at], whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :]):
            archive.write_bytes(data)
            try:
                restore(tmp_path / "new", archive)
            except InputError:
                assert contents(tmp_path / "new") == {}, at
            else:  # a time, or an attribute
                shutil.rmtree(tmp_path / "new")


def test_the_command_shows_saves_and_restores(lab, tmp_path, capsys):
    archive = str(tmp_path / "lab.zip")
    assert main(["home", "--home", str(lab), "--json"]) == 0
    sizes = {each["name"]: each for each in json.loads(capsys.readouterr().out)["kept"]}
    assert (sizes["tmp/"]["bytes"], sizes["tmp/"]["can_be_deleted"]) == (9, True)
    assert not sizes["runs/"]["can_be_deleted"]
    assert main(["home", "backup", archive, "--home", str(lab)]) == 0
    assert main(["home", "backup", archive, "--home", str(lab)]) == 2
    assert "exists already; name a new file" in capsys.readouterr().err
    assert main(["home", "restore", archive, "--home", str(tmp_path / "new"), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["restored"]) == 4
    assert main(["home", "restore", archive, "--home", str(lab)]) == 0
    said = capsys.readouterr()
    assert "restored 0, and 4 were there already" in said.out and "stays as it is" in said.err
    for wrong in (str(lab / "no.zip"), str(lab / "worker-0.log"), str(lab)):
        assert main(["home", "restore", wrong, "--home", str(lab)]) == 2
