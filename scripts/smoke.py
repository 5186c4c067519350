"""Does in at most three minutes what every machine has to do: python -m scripts.smoke

Compares two sentences, scores a file, trains ten steps, serves one page and asks it for an answer,
each by the command that a user types. It needs the packages and the default model, and no make; the
gate of CI's other systems.
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
    """The JSON that a command prints."""
    command = [*COMMAND, *map(str, arguments), "--json"]
    done = subprocess.run(
        command,
        env=environment(home),
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=600,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def compare(folder: Path, home: Path) -> str:
    result = run("compare", *PAIRS[0][:2], "--cross-encoder", "none", home=home)
    assert 0.5 < result["cosine"] < 1, result
    return f"cosine {result['cosine']:.3f}"


def score(folder: Path, home: Path) -> str:
    pairs, scored = folder / "pairs.csv", folder / "scored.csv"
    with pairs.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("sentence1", "sentence2", "score"), *PAIRS])
    assert run("score", pairs, scored, home=home)["scored"] == len(PAIRS)
    with scored.open(encoding="utf-8", newline="") as file:
        assert [float(row["cosine"]) <= 1 for row in csv.DictReader(file)] == [True] * len(PAIRS)
    return f"{len(PAIRS)} pairs scored"


def train(folder: Path, home: Path) -> str:
    data = (
        "--train-data",
        folder / "pairs.csv",
        "--eval-data",
        folder / "pairs.csv",
        "--epochs",
        10,
        "--batch-size",
        3,
    )
    settings = (
        "--objective",
        "regression",
        "--base",
        "scratch:1x32",
        "--name",
        "smoke",
        "--max-steps",
        10,
    )
    result = run("train", *settings, *data, home=home)
    # Moments of another day are written in another way.
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
            body = json.dumps(
                {"sentence_a": "A cat.", "sentence_b": "A kitten.", "cross_encoder": "none"}
            ).encode()
            request = Request(f"{address}api/compare", body, {"Content-Type": "application/json"})
            with urlopen(request, timeout=120) as answer:
                assert json.load(answer)["cosine"] > 0.5
        finally:
            app.terminate()
    return f"page and answer of {address}"


def _address(app: subprocess.Popen[bytes], log: Path) -> str:
    ends = time.monotonic() + WAIT
    while time.monotonic() < ends and app.poll() is None:
        lines = [
            line
            for line in log.read_text(encoding="utf-8", errors="replace").splitlines()
            if " is at http" in line
        ]
        if lines:
            return lines[0].rpartition(" is at ")[2].strip().rstrip("/") + "/"
        time.sleep(0.2)
    raise SystemExit(
        f"the app did not start: {log.read_text(encoding='utf-8', errors='replace')[-2000:]}"
    )


STEPS: dict[str, Callable[[Path, Path], str]] = {
    "compare": compare,
    "score": score,
    "train": train,
    "page": page,
}


def main() -> None:
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
