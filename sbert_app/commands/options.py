"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from training.data.reference import absolute_names, names_file
from training.errors import InputError
from training.sources.home import home_folder, set_offline

if TYPE_CHECKING:
    from training.models.encoder import Encoder
    from training.models.scorer import Scorer

Model = Annotated[
    str, typer.Option("--model", metavar="NAME", help="A short name, Hub id, folder, run:ID or scratch:LAYERSxDIM.")
]
Pooling = Annotated[
    str | None,
    typer.Option("--pooling", metavar="mean|max|cls|…", help="How tokens become a vector. [the model's own]"),
]
Dimension = Annotated[
    int | None,
    typer.Option("--dim", metavar="N", min=1, help="Keep the first N dimensions (Matryoshka). [the model's own]"),
]
Prompt = Annotated[str | None, typer.Option("--prompt", metavar="TEXT", help="Put TEXT before every sentence.")]
PromptName = Annotated[
    str | None, typer.Option("--prompt-name", metavar="NAME", help="The same by its name in the model's folder.")
]
Column = Annotated[
    str | None, typer.Option("--column", metavar="NAME", help="The column with the sentences. [sentence, text, …]")
]
Encoding = Annotated[
    str | None,
    typer.Option("--encoding", metavar="NAME", help="Of a text file: windows-1251, shift_jis, … [found out]"),
]
Dtype = Annotated[
    str,
    typer.Option("--dtype", metavar="auto|float32|bfloat16|int8", help="Precision; auto is bfloat16 where it is fast."),
]
Device = Annotated[str, typer.Option("--device", metavar="auto|cpu|cuda|mps", help="Where to compute.")]
Home = Annotated[
    Path | None, typer.Option("--home", metavar="DIR", help="Models, data and runs. [$SBERT_HOME or the platform's]")
]
Threshold = Annotated[
    str | None,
    typer.Option(
        "--threshold",
        metavar="best-f1|precision=0.95|NUMBER",
        help="From which score on a pair is a match: chosen by labels or gold scores, or given; several with commas.",
    ),
]
MatchFrom = Annotated[
    float, typer.Option("--match-from", metavar="SCORE", help="The gold score (0 to 5) from which a pair is a match.")
]
OFFLINE_HELP = "Ask neither the Hub nor the package index."
Offline = Annotated[bool, typer.Option("--offline", help=OFFLINE_HELP)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def prepare(home: Path | None, offline: bool) -> Path:
    """Return the home folder; with ``offline``, forbid the network."""
    if offline:
        set_offline(True)
    folder = home_folder(home)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"the home folder {folder} is a file; name a folder with --home")
    return folder


def with_settings(model: str, dimension: int | None, prompt: str | None, prompt_name: str | None) -> str:
    """The name of a model with these settings in place of those that it states."""
    from training.models.reference import parse_reference

    stated = parse_reference(model)
    if dimension is not None:
        stated = stated._replace(dimension=dimension)
    if prompt is not None or prompt_name is not None:
        stated = stated._replace(prompt=prompt, prompt_name=prompt_name)
    return str(stated)


def data_names(name: str, encoding: str | None, option: str = "--data") -> str:
    """Names of data with the files by their whole paths, and with ``encoding`` where they name none.

    Raises:
        InputError: there is an encoding, and no file.
    """
    if encoding is not None and not names_file(name):
        raise InputError(f"--encoding is that of a file; name one with {option}")
    return absolute_names(name, encoding)


def load_encoder(model: str, pooling: str | None, dtype: str, device: str, home: Path) -> Encoder:
    """The bi-encoder. Imports torch, which takes seconds."""
    from training.models.encoder import Encoder

    return Encoder.load(model, pooling, dtype, device, home)


def load_scorer(model: str, pooling: str | None, dtype: str, device: str, home: Path) -> Scorer:
    """A bi-encoder, a baseline such as tfidf, or a cross-encoder."""
    from training.models.scorer import load_scorer

    return load_scorer(model, pooling, dtype, device, home)
