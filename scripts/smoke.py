"""Checks in at most three minutes that the app works on this machine: python -m scripts.smoke

Compares two sentences, scores a file, trains ten steps, serves one page and asks it for an answer,
each by the command that a user types. It needs the packages and the default model, but not make. CI
runs it on several systems.
"""

import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

ROOT = Path(__file__).parents[1]
COMMAND = [sys.executable, "-m", "sbert_app"]
PAIRS = [
    ("A cat sleeps.", "A kitten is asleep.", 4.5),
    ("A cat sleeps.", "Prices rose.", 0.2),
    ("Rain.", "It rains.", 4),
]
DAY = 86_400
# The seconds within which the app has to start.
WAIT = 120.0


def environment(home: Path) -> dict[str, str]:
    """The environment of a command."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "SBERT_HOME": str(home), "PYTHONUTF8": "1"}


def run(*arguments: object, home: Path) -> Any:
    """Runs a command, and returns the JSON that it prints."""
    command = [*COMMAND, *map(str, arguments), "--json"]
    process = subprocess.run(
        command,
        env=environment(home),
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=600,
    )
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}: {process.stderr}")
    return json.loads(process.stdout)


def compare(folder: Path, home: Path) -> str:
    result = run("compare", *PAIRS[0][:2], "--cross-encoder", "none", home=home)
    assert 0.5 < result["cosine"] < 1, result
    return f"cosine {result['cosine']:.3f}"


def score(folder: Path, home: Path) -> str:
    pairs = folder / "pairs.csv"
    scored = folder / "scored.csv"
    with pairs.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("sentence1", "sentence2", "score"), *PAIRS])
    assert run("score", pairs, scored, home=home)["scored"] == len(PAIRS)
    with scored.open(encoding="utf-8", newline="") as file:
        cosines = [float(row["cosine"]) for row in csv.DictReader(file)]
    assert len(cosines) == len(PAIRS)
    assert max(cosines) <= 1
    return f"{len(PAIRS)} pairs scored"


def train(folder: Path, home: Path) -> str:
    settings = {
        "objective": "regression",
        "base": "scratch:1x32",
        "name": "smoke",
        # `score` has written this file.
        "train-data": folder / "pairs.csv",
        "eval-data": folder / "pairs.csv",
        "epochs": 10,
        "batch-size": 3,
        "max-steps": 10,
    }
    arguments: list[object] = []
    for name, value in settings.items():
        arguments += [f"--{name}", value]
    result = run("train", *arguments, home=home)
    # The run becomes a day old, because the times of other days are written in another way.
    record = home / "runs" / result["id"] / "run.json"
    values = json.loads(record.read_text(encoding="utf-8"))
    record.write_text(json.dumps({**values, "created": values["created"] - DAY}), encoding="utf-8")
    report = folder / "report.html"
    run("report", f"run:{result['id']}", report, home=home)
    assert "smoke" in report.read_text(encoding="utf-8")
    run("runs", "delete", result["id"], "--yes", home=home)
    assert (result["status"], result["steps"]) == ("finished", 10), result
    return "10 steps trained, and reported a day later"


def page(folder: Path, home: Path) -> str:
    command = [*COMMAND, "serve", "--port", "0", "--no-open"]
    log = folder / "serve.txt"
    with (
        log.open("wb") as file,
        subprocess.Popen(command, env=environment(home), stdout=file, stderr=file) as app,
    ):
        try:
            address = _address(app, log)
            with urlopen(address, timeout=60) as answer:
                assert b"SBERT Lab" in answer.read()
            pair = {"sentence_a": "A cat.", "sentence_b": "A kitten.", "cross_encoder": "none"}
            body = json.dumps(pair).encode()
            request = Request(f"{address}api/compare", body, {"Content-Type": "application/json"})
            with urlopen(request, timeout=120) as answer:
                assert json.load(answer)["cosine"] > 0.5
        finally:
            app.terminate()
    return f"page and answer of {address}"


def _address(app: subprocess.Popen[bytes], log: Path) -> str:
    """Waits until the app listens, and returns the address that it has printed."""
    end = time.monotonic() + WAIT
    is_waiting = True
    while is_waiting:
        is_waiting = time.monotonic() < end and app.poll() is None
        time.sleep(0.2)
        text = log.read_text(encoding="utf-8", errors="replace")
        for line in text.splitlines():
            if " is at http" in line:
                return line.rpartition(" is at ")[2].strip().rstrip("/") + "/"
    raise SystemExit(f"the app did not start: {text[-2000:]}")


STEPS: dict[str, Callable[[Path, Path], str]] = {
    "compare": compare,
    "score": score,
    "train": train,
    "page": page,
}


def main() -> None:
    # The script may be run without installing the package.
    sys.path.insert(0, str(ROOT))
    from training.sources.home import home_folder

    home = home_folder()
    with tempfile.TemporaryDirectory() as folder:
        for name, step in STEPS.items():
            started = time.monotonic()
            result = step(Path(folder), home)
            print(f"{name:8} {time.monotonic() - started:6.1f} s  {result}", flush=True)


if __name__ == "__main__":
    main()
