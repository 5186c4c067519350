"""Every shell and Python block of README and docs is executed, in a folder with the files of docs/examples.

What is not executed is marked in the page, by ``<!-- not run: REASON -->`` before the block. A home
folder of its own has the default model, small cuts of the data sets that are named, and tiny random
models under the names of others. A training takes two steps, and one by a command starts from
random weights unless the page says from what.
"""

import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from command_line import Run
from paths import ROOT
from remote import NO_INDEX
from running_app import RunningApp, running_app

from sbert_app.cli import GOOD
from sbert_app.server import run as server
from training.device import has_native_bfloat16
from training.sources.resolve import EMBEDDED

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *ROOT.glob("*/README.md")])
FENCE = re.compile(
    r"^(?:( *)<!-- not run: ([^>]+) -->\n\n)?( *)```(\w*)\n(.*?)^\3```", re.DOTALL | re.MULTILINE
)
EXECUTED = ("sh", "python")
MOST_MARKED = 9
PROMISED = re.compile(r"^print\(.*#.*?\b(\d+\.(\d+))", re.MULTILINE)
USUAL_APP = "127.0.0.1:7860"
# Of a cut of the STS benchmark; a threshold needs many.
ROWS = {"train": 120, "dev": 500, "test": 120}
SMALL = {  # what replaces the options of a command that would train for long
    "train": {"--max-steps": "2", "--base": "scratch:1x128"},
    "ablate": {"--max-steps": "1", "--base": "scratch:1x128", "--seeds": "1"},
}
ENCODERS = ("all-mpnet-base-v2", "Qwen/Qwen3-Embedding-0.6B")


class Block(NamedTuple):
    page: Path
    number: int  # among the page's blocks that are executed or marked
    language: str
    code: str
    why_not: str

    @property
    def name(self) -> str:
        return f"{self.page.name}-{self.number}"


def blocks() -> Iterator[Block]:
    for page in PAGES:
        found = [match for match in FENCE.finditer(page.read_text(encoding="utf-8")) if match[4]]
        for number, match in enumerate(found, start=1):
            yield Block(page, number, match[4], textwrap.dedent(match[5]), match[2] or "")


BLOCKS = list(blocks())
RUN = [block for block in BLOCKS if block.language in EXECUTED and not block.why_not]


def test_few_blocks_are_marked_as_not_run_and_none_is_forgotten():
    assert {block.language for block in BLOCKS} == {*EXECUTED, "csv", "toml"}
    marked = [block.name for block in BLOCKS if block.why_not]
    assert len(marked) <= MOST_MARKED, marked
    assert len(RUN) > 3 * len(marked)
    written = sum(
        len(re.findall(r"^ *```\w+$", page.read_text(encoding="utf-8"), re.MULTILINE))
        for page in PAGES
    )
    assert written == len(BLOCKS)


@pytest.fixture(scope="module")
def own_home(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home folder with small things under the names that the pages use."""
    from tiny_models import make_model
    from transformers import AutoConfig, AutoModelForSequenceClassification

    from training import Encoder

    own = tmp_path_factory.mktemp("home")
    (own / "numba").symlink_to(home / "numba")
    (own / "data/stsb").mkdir(parents=True)
    for split, rows in ROWS.items():
        lines = (home / f"data/stsb/sts-{split}.csv").read_text(encoding="utf-8").split("\n")
        (own / f"data/stsb/sts-{split}.csv").write_text(
            "\n".join(lines[:: len(lines) // rows]), encoding="utf-8"
        )
    default = own / "models/all-MiniLM-L6-v2"
    default.parent.mkdir()
    default.symlink_to(home / "models/all-MiniLM-L6-v2")
    encoder = Encoder.load(str(make_model(own / "tiny", hidden_size=256)))
    for name in ENCODERS:
        encoder.save(own / "models" / name)
        # Without one of them it is not taken for whole.
        for file in EMBEDDED["all-mpnet-base-v2"].files:
            if not (own / "models" / name / file).exists():
                shutil.copy(default / file, own / "models" / name / file)
    settings = own / "models/Qwen/Qwen3-Embedding-0.6B/config_sentence_transformers.json"
    settings.write_text(json.dumps({"prompts": {"query": "Query:"}}), encoding="utf-8")
    folder = make_model(own / "models/cross-encoder/ms-marco-MiniLM-L6-v2")
    shape = AutoConfig.from_pretrained(folder, num_labels=1)
    AutoModelForSequenceClassification.from_config(shape).save_pretrained(folder)
    _small_sets(own / "data")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**NO_INDEX, "SBERT_HOME": str(own), "HF_HUB_OFFLINE": "1"}.items():
            patch.setenv(name, value)
        yield own


def _small_sets(data: Path) -> None:
    """Cuts of sets of the Hub, in the layouts that they have there, of made-up rows."""
    pairs = {
        "sentence1": [f"A man holds {i} guitars." for i in range(90)],
        "sentence2": [f"Somebody has {i} things." for i in range(90)],
    }
    snli = data / "stanfordnlp/snli/plain_text"
    snli.mkdir(parents=True)
    rows = {
        "premise": pairs["sentence1"],
        "hypothesis": pairs["sentence2"],
        "label": [i % 3 for i in range(90)],
    }
    pq.write_table(pa.table(rows), snli / "train-00000-of-00001.parquet")
    hub = data / "sentence-transformers"
    (hub / "stsb").mkdir(parents=True)
    scored = pa.table({**pairs, "score": [i % 6 / 5 for i in range(90)]})
    pa_csv.write_csv(scored, hub / "stsb/test.csv")
    (hub / "quora-duplicates/pair-class").mkdir(parents=True)
    labelled = pa.table({**pairs, "label": [i % 2 for i in range(90)]})
    pa_csv.write_csv(labelled, hub / "quora-duplicates/pair-class/train.csv")
    config = "---\nconfigs:\n- config_name: pair-class\n  data_files: pair-class/train.csv\n---\n"
    (hub / "quora-duplicates/README.md").write_text(config, encoding="utf-8")


@pytest.fixture
def workplace(tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which a block is executed."""
    folder = tmp_path / "work"
    shutil.copytree(ROOT / "docs/examples", folder)
    (folder / "assets").symlink_to(ROOT / "assets")
    (folder / "my-home").mkdir()
    (folder / "my-home/numba").symlink_to(own_home / "numba")
    judged = folder / "scifact/qrels"  # a folder in BEIR's layout
    judged.mkdir(parents=True)
    texts = (folder / "sentences.txt").read_text(encoding="utf-8").splitlines()
    for name in ("corpus", "queries"):
        lines = "".join(
            json.dumps({"_id": str(i), "text": text}) + "\n" for i, text in enumerate(texts)
        )
        (folder / f"scifact/{name}.jsonl").write_text(lines, encoding="utf-8")
    answers = "".join(f"{i}\t{i}\t1\n" for i in range(len(texts)))
    (judged / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + answers, encoding="utf-8")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(scope="module")
def app(own_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApp]:
    with running_app(own_home, tmp_path_factory.mktemp("app")) as app:
        yield app


def small(line: str) -> str:
    """A training of a few steps from random weights, unless the line itself names other weights."""
    for name, value in SMALL.get(line.split()[1], {}).items():
        line = re.sub(rf" {name} (scratch:)?\d\S*", "", line)
        line += "" if name in line else f" {name} {value}"
    return line


def is_plain(line: str) -> bool:
    """Whether it is one command of ours, with nothing that a shell would have to do."""
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    is_ours = line.startswith("sbert-lab ") and not line.startswith("sbert-lab --")
    return is_ours and "$" not in line and not any(set(word) <= set("();<>|&") for word in words)


def in_shell(line: str, folder: Path, address: str) -> None:
    """By bash, with the commands of this environment, and with ``folder`` as the user's own."""
    line = line.replace(USUAL_APP, address)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HOME": str(folder), "SHELL": "/bin/bash"}
    environment |= {"PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"}
    # With a second command bash stays the parent, as it is for a user: a single one would take its
    # place.
    command = ["bash", "-o", "pipefail", "-ec", f"{line}\n:"]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{line}\n{done.stderr}"
    if line.startswith("curl"):
        assert "error" not in json.loads(done.stdout), done.stdout


def run_shell(code: str, folder: Path, address: str, run: Run) -> None:
    for line in code.replace("\\\n", " ").splitlines():
        line = re.sub(r"^SBERT_TOKEN=\$\(.*\) ", "", line)
        if not is_plain(line):
            in_shell(line, folder, address)
            continue
        answer = run(*shlex.split(small(line.partition("  #")[0]))[1:])
        assert answer.code == GOOD, f"{line}\n{answer.err}"
        assert answer.out, f"{line} says nothing"


def run_python(code: str, address: str) -> None:
    """A decimal number in the comment behind a print is what it prints, rounded."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with redirect_stdout(io.StringIO()) as output:
        exec(compile(code.replace(USUAL_APP, address), "snippet", "exec"), names)  # noqa: S102
    printed = [float(number) for number in re.findall(r"-?\d+\.\d+", output.getvalue())]
    for number, decimals in PROMISED.findall(code):
        assert float(number) in [round(value, len(decimals)) for value in printed], number


@pytest.mark.slow
@pytest.mark.parametrize("block", RUN, ids=lambda block: block.name)
def test_each_block_of_the_docs_runs(
    block: Block,
    workplace: Path,
    run: Run,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(server, "serve", print)
    asks_app = USUAL_APP in block.code
    address = f"127.0.0.1:{request.getfixturevalue('app').port}" if asks_app else USUAL_APP
    if block.language == "python":
        run_python(re.sub(r"max_steps=\d+", "max_steps=2", block.code), address)
    else:
        run_shell(block.code, workplace, address, run)


@pytest.mark.slow
@pytest.mark.skipif(
    not has_native_bfloat16("cpu"),
    reason="the guides have figures of bfloat16, the usual precision",
)
def test_the_figures_of_the_guides_are_those_of_their_example(workplace: Path, run: Run):
    tutorial, decision = (
        " ".join((ROOT / f"docs/{name}.md").read_text(encoding="utf-8").split())
        for name in ("tutorial", "decision")
    )
    example = "assets/examples/bulk-example.csv"
    measured = run("evaluate", "--data", example, "--json").json
    rho, low, high = (
        100 * value
        for value in (measured["spearman"]["cosine"], *list(measured["interval"].values())[:2])
    )
    assert (
        f"Spearman's ρ ×100 = {rho:.1f}, with a 95% interval from {low:.0f} to {high:.0f}"
        in tutorial
    )
    assert f"reaches ρ ×100 = {rho:.1f} (95% interval {low:.0f} to {high:.0f})" in decision
    matches = run("score", example, "scored.csv", "--threshold", "0.7", "--json").json["matches"][
        "matches"
    ]
    assert f"{matches} pairs are matches" in tutorial and f"{matches} of 58 pairs match" in decision
    measured = run(
        "evaluate", example, "--threshold", "best-f1", "--match-from", "4", "--json"
    ).json
    [choice] = measured["choices"]
    precision = choice["precision"]
    recall = choice["recall"]
    assert (
        f"at a cosine of {choice['threshold']['value']:.3f}, chosen on {choice['chosen_on']} pairs"
        in decision
    )
    share, low, high = (100 * precision[name] for name in ("value", "low", "high"))
    assert f"{share:.0f}% of what it calls a match is one ({low:.0f} to {high:.0f}%)" in decision
    assert f"it finds {100 * recall['value']:.0f}% of the matches" in decision
