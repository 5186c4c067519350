"""Real full disks and read-only homes: one clear sentence, nothing left, older outputs kept.

The disks are file systems in memory that only the tested process sees (``unshare``); where Linux
does not allow that, the tests are skipped. The process does all commands one after the other, as
each would import torch anew.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from paths import ROOT

SCRATCH = ("--model", "scratch:1x32")
TRAIN = (
    "train",
    "--objective",
    "regression",
    "--base",
    "scratch:1x32",
    "--eval-data",
    "none",
    "--max-steps",
    "2",
)
SPACE = ("space", "full", "room")
ROWS = range(6_000)
COMMANDS = """
import contextlib, io, json, sys
from sbert_app.cli import main
answers = []
for arguments in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
        code = main(arguments)
    answers.append((code, errors.getvalue()))
print(json.dumps(answers))"""
Commands = dict[str, tuple[object, ...]]


class Answer(NamedTuple):
    """What a command ended with: its exit code, and its line of error in lower case."""

    code: int
    error: str


def answers(
    prefix: list[str], home: Path, commands: Commands
) -> tuple[dict[str, Answer], list[str]]:
    """What each command ended with, in one process, and the lines that were printed after them.

    A command that fails has one line of error, and none a traceback.
    """
    done = subprocess.run(
        [*prefix, sys.executable, "-c", COMMANDS],
        cwd=ROOT,
        env={**os.environ, "SBERT_HOME": str(home), "HF_HUB_OFFLINE": "1"},
        input=json.dumps([list(map(str, arguments)) for arguments in commands.values()]),
        capture_output=True,
        text=True,
        check=True,
    )
    printed, *after = done.stdout.splitlines()
    ends = {}
    for name, (code, errors) in zip(commands, json.loads(printed), strict=True):
        assert "Traceback" not in errors
        lines = [
            line for line in errors.replace("\r", "\n").splitlines() if line.startswith("error: ")
        ]
        assert len(lines) == (1 if code else 0), errors
        ends[name] = Answer(code, "".join(lines).lower())
    return ends, after


def private_mounts() -> list[str] | None:
    """The command that runs another one with mounts of its own; None where there is none."""
    for options in (["--mount"], ["--map-root-user", "--mount"]):
        argv = ["unshare", *options]
        if not shutil.which("unshare"):
            return None
        probe = subprocess.run(
            [*argv, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False
        )
        if probe.returncode == 0:
            return argv
    return None


OUTPUTS: Commands = {
    "score.csv": ("score", *SCRATCH, "pairs.csv"),
    "encode.npy": ("encode", *SCRATCH, "lines.txt"),
    "score.parquet": ("score", *SCRATCH, "pairs.csv"),
    "encode.parquet": ("encode", *SCRATCH, "lines.txt"),
}
AT_HOME: Commands = {"train": TRAIN, "serve": ("serve", "--port", "0"), "worker": ("worker",)}


@pytest.fixture(scope="module")
def on_disks(
    home: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Answer], list[str]]:
    """What commands answer on full and read-only disks, and what is on the small one afterwards.

    ``NAME.ENDING`` is written onto a disk where that name has an older file, ``full`` trains in a
    home without room, and the others have a home that may only be read.
    """
    unshare = private_mounts()
    if unshare is None:
        pytest.skip("no mounts of one's own here")
    folder = tmp_path_factory.mktemp("disks")
    small, full, read_only = (folder / name for name in ("small", "full", "read-only"))
    (folder / "pairs.csv").write_text(
        "sentence1,sentence2\n" + "".join(f"Row {i}.,And {i}.\n" for i in ROWS)
    )
    (folder / "lines.txt").write_text("".join(f"This is sentence {i}.\n" for i in ROWS))
    links = f'ln -s "{home}/models" "{home}/data"'
    script = [
        *(
            f'mkdir "{disk}" && mount -t tmpfs -o size=64k tmpfs "{disk}"'
            for disk in (small, full, read_only)
        ),
        *(f"echo old > {small / name}" for name in OUTPUTS),
        f'{links} "{full}" && (head -c 1M /dev/zero > "{full}/ballast" || true)',
        f'{links} "{read_only}" && mount -o remount,ro "{read_only}"',
        f'"$@" && cd "{small}" && cat * && ls -A',
    ]
    commands = {
        **{
            name: (*options, folder / file, small / name)
            for name, (*options, file) in OUTPUTS.items()
        },
        "full": (*TRAIN, "--home", full),
        **{name: (*arguments, "--home", read_only) for name, arguments in AT_HOME.items()},
    }
    return answers([*unshare, "sh", "-ec", "\n".join(script), "sh"], home, commands)


@pytest.mark.slow
def test_an_output_that_does_not_fit_leaves_the_older_one_and_nothing_else(on_disks):
    ends, contents_and_names = on_disks
    for name in (*OUTPUTS, "full"):
        assert ends[name].code in (1, 2)
        assert any(word in ends[name].error for word in SPACE), ends[name]
    assert contents_and_names == ["old"] * len(OUTPUTS) + sorted(OUTPUTS)


@pytest.mark.parametrize("name", AT_HOME)
def test_a_home_that_may_only_be_read_is_named(on_disks, name):
    code, error = on_disks[0][name]
    assert (code, "read-only" in error) == (2, True)
