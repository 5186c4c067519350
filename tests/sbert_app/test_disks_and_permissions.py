"""Real full disks, read-only homes and homes of others: one clear sentence, nothing left, older outputs kept.

The disks are file systems in memory that only the tested process sees (``unshare``); where Linux does not allow that,
the tests are skipped. Permissions count for the superuser too once a process has dropped its powers (``setpriv``).
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from depth import first
from paths import ROOT, linked_home

NOBODY = 65_534
SCRATCH = ("--model", "scratch:1x32")
TRAIN = ("train", "--objective", "regression", "--base", "scratch:1x32", "--eval-data", "none", "--max-steps", "2")
WORDS = "space|full|room"


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "sbert_app", *map(str, arguments)]


def ended(argv: list[str], home: Path) -> tuple[int, str]:
    """Run it -> its exit code, and its line of error. There is one such line, and no traceback."""
    environment = {**os.environ, "SBERT_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert "Traceback" not in done.stderr
    errors = [line for line in done.stderr.replace("\r", "\n").splitlines() if line.startswith("error: ")]
    assert len(errors) == (1 if done.returncode else 0), done.stderr
    return done.returncode, errors[0] if errors else done.stdout


def private_mounts() -> list[str] | None:
    """The command that runs another one with mounts of its own; None where there is none."""
    for options in (["--mount"], ["--map-root-user", "--mount"]):
        argv = ["unshare", *options]
        if not shutil.which("unshare"):
            return None
        probe = subprocess.run([*argv, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False)
        if probe.returncode == 0:
            return argv
    return None


UNSHARE = private_mounts()
full = pytest.mark.skipif(UNSHARE is None, reason="no mounts of one's own here")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    rows = range(20_000)
    (folder / "pairs.csv").write_text("sentence1,sentence2\n" + "".join(f"Row {i}.,And {i}.\n" for i in rows))
    (folder / "lines.txt").write_text("".join(f"This is sentence {i}.\n" for i in rows))
    return folder


def on_small_disk(disk: Path, size: str, before: str, argv: list[str], options: str = "") -> list[str]:
    """``argv`` with ``disk`` of that size; ``before`` is a command in it. What is left there is listed on stdout."""
    script = (
        f'mount -t tmpfs -o size={size}{options} tmpfs "$0" && cd "$0" && {before} && cd "$OLDPWD" && "$@"; code=$?; '
        'echo "left:" $(ls -A "$0"); exit $code'
    )
    return [*(UNSHARE or []), "sh", "-c", script, str(disk), *argv]


@full
@pytest.mark.parametrize(
    ("name", "arguments"),
    first(
        2,
        [
            ("o.csv", ("score", *SCRATCH, "pairs.csv")),
            ("o.npy", ("encode", *SCRATCH, "lines.txt")),
            ("o.parquet", ("score", *SCRATCH, "pairs.csv")),
            ("o.parquet", ("encode", *SCRATCH, "lines.txt")),
        ],
    ),
)
def test_an_output_that_does_not_fit_leaves_the_older_one_and_nothing_else(home, files, tmp_path, name, arguments):
    disk = tmp_path / "disk"
    disk.mkdir()
    argv = command(*arguments[:-1], files / arguments[-1], disk / name)
    listed = [*on_small_disk(disk, "128k", f"echo old > {name}", argv)]
    environment = {**os.environ, "SBERT_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(listed, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode in (1, 2)
    errors = [line for line in done.stderr.replace("\r", "\n").splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and any(word in errors[0] for word in WORDS.split("|")), done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout.splitlines()[-1] == f"left: {name}"


@full
def test_a_run_in_a_full_home_is_refused_or_fails_with_the_reason(home, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    links = f'ln -s "{home}/models" "{home}/data" . && (head -c 1M /dev/zero > ballast; true)'
    code, line = ended(on_small_disk(disk, "64k", links, command(*TRAIN, "--home", disk)), disk)
    assert code in (1, 2)
    assert any(word in line for word in WORDS.split("|"))


@full
@pytest.mark.parametrize("arguments", [TRAIN, ("serve", "--port", "0"), ("worker",)])
def test_a_home_that_may_only_be_read_is_named(home, tmp_path, arguments):
    disk = tmp_path / "disk"
    disk.mkdir()
    links = f'ln -s "{home}/models" "{home}/data" . && mount -o remount,ro .'
    code, line = ended(on_small_disk(disk, "64k", links, command(*arguments, "--home", disk)), disk)
    assert code == 2
    assert "read-only" in line.lower()


def without_powers(argv: list[str]) -> list[str]:
    """The command as somebody for whom permissions count."""
    if os.geteuid() != 0:
        return argv
    if not shutil.which("setpriv"):
        pytest.skip("the superuser may do everything, and nothing here takes that away")
    return ["setpriv", "--bounding-set=-all", "--inh-caps=-all", *argv]


def closed(path: Path, mode: int) -> Path:
    """``path`` as somebody else's."""
    path.chmod(mode)
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)
    return path


@pytest.mark.parametrize(
    ("arguments", "mode"),
    [
        (TRAIN, 0o555),
        (("serve", "--port", "0"), 0o555),
        (("worker",), 0o000),
        (("runs", "list"), 0o555),
        (("runs", "list"), 0o000),
    ],
)
def test_a_home_of_another_is_named(home, tmp_path, arguments, mode):
    theirs = closed(linked_home(home, tmp_path / "theirs"), mode)
    try:
        code, line = ended(without_powers(command(*arguments, "--home", theirs)), theirs)
    finally:
        theirs.chmod(0o755)
    if arguments[0] == "runs" and mode:  # nothing has to be written
        assert code == 0
        return
    assert code == 2
    assert "permission" in line.lower() or "not readable" in line.lower()


def test_a_closed_file_and_a_closed_folder_are_named(home, tmp_path):
    secret, folder = tmp_path / "secret.csv", tmp_path / "folder"
    secret.write_text("sentence1,sentence2\na,b\n")
    folder.mkdir()
    shutil.copy(secret, tmp_path / "mine.csv")
    closed(secret, 0o000)
    closed(folder, 0o555)
    try:
        for source, target in ((secret, tmp_path / "o.csv"), (tmp_path / "mine.csv", folder / "o.csv")):
            code, line = ended(without_powers(command("score", *SCRATCH, source, target)), home)
            assert code == 2
            assert "permission" in line.lower() or "not readable" in line.lower()
        assert list(folder.iterdir()) == []
    finally:
        folder.chmod(0o755)
