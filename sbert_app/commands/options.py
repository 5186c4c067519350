"""Options that several commands share, in groups: a command has a parameter for each group.

@grouped
def encode(source: …, *, model: ModelOptions, computing: Computing) -> None:
    encoder = load_encoder(model, computing)
"""

from __future__ import annotations

import inspect
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar, get_type_hints

from typer import Argument, Option

from sbert_app.services.background.ray_cluster import RayCluster
from sbert_app.services.background.watch import Watch
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.embedded import EmbeddedCorpus, encode
from sbert_app.services.runs.store import PICKED, RunStore
from sbert_app.services.store.cache import DiskCache
from sbert_app.settings import Settings
from sbert_app.terminal import ProgressBar, clean_stdout
from training.catalogue import BASELINES, CROSS_ENCODERS, DEFAULT_MODEL, DTYPES, ENCODERS
from training.data.load import load_data
from training.data.tables.columns import split_names
from training.data.tables.table import FORMATS, any_of
from training.errors import InputError
from training.models.model import Model as AnyModel
from training.models.model import PairModel, VectorModel, open_model, required
from training.names import READ_AS, DataName, ModelName, absolute_names, names_file
from training.sources.home import home_folder, set_offline

T = TypeVar("T")
# In the help of commands.
TABLES = any_of([file_format.suffixes[0] for file_format in FORMATS])
# The name of standard input and of standard output.
PIPE = "-"
# JSON, Parquet and workbooks begin so; other standard input is plain text.
PACKED = (b"{", b"PAR1", b"PK\x03\x04")


def complete_models(incomplete: str) -> list[str]:
    """The names that a shell completes: those of built-in models and of runs."""
    runs = [str(ModelName.of_run(run.id)) for run in RunStore(home_folder()).list(PICKED) if run.has_model]
    return [name for name in (*ENCODERS, *CROSS_ENCODERS, *BASELINES, *runs) if name.startswith(incomplete)]


def complete_runs(incomplete: str) -> list[str]:
    return [run.id for run in RunStore(home_folder()).list(PICKED) if run.id.startswith(incomplete)]


Model = Annotated[
    str,
    Option(
        metavar="NAME",
        help="A short name, Hub id, folder, run:ID or scratch:LAYERSxDIM.",
        autocompletion=complete_models,
    ),
]
RunId = Annotated[
    str, Argument(metavar="RUN", help="Its id, a beginning of it, or its name.", autocompletion=complete_runs)
]
Sentences = Annotated[
    str, Argument(metavar="IN", help="Sentences: a file (.txt, .csv, …), a data set such as stsb:dev, or -.")
]
Columns = Annotated[str | None, Option(metavar="A,B[,GOLD]", help="The columns of a pair, perhaps a score, or a text.")]
Encoding = Annotated[str | None, Option(metavar="NAME", help="A text file's encoding. [detected]")]
Home = Annotated[Path | None, Option(metavar="DIR", help="Models, data and runs. [$SBERT_HOME or the platform's]")]
Threshold = Annotated[
    str | None,
    Option(
        metavar="best-f1|precision=0.95|NUMBER",
        help="From which score on a pair is a match: chosen by labels or gold scores, or given; several with commas.",
    ),
]
MatchFrom = Annotated[
    float | None,
    Option(
        metavar="SCORE",
        help="The gold score (0 to 5) from which a pair is a match [4], or a grade from which a document is.",
    ),
]
KeepUnknown = Annotated[bool, Option("--keep-unknown", help="Also score texts that the model has no tokens for.")]
OFFLINE_HELP = "Ask neither the Hub nor the package index."
EngineName = Annotated[str | None, Option(metavar="local|ray", help="What trains. [local; ray where SBERT_RAY is set]")]
Address = Annotated[
    str | None, Option(metavar="ADDRESS", help="Ray: auto, ray://host:10001 or local. [$SBERT_RAY or local]")
]
Offline = Annotated[bool, Option("--offline", help=OFFLINE_HELP)]
Json = Annotated[bool, Option("--json", help="Print one JSON object.")]


@dataclass(frozen=True)
class ModelOptions:
    """The model, and settings that replace those in its name."""

    model: Model = DEFAULT_MODEL
    pooling: Annotated[
        str | None, Option(metavar="mean|max|cls|…", help="How tokens become a vector. [the model's own]")
    ] = None
    dimension: Annotated[
        int | None,
        Option("--dim", metavar="N", min=1, help="Keep the first N dimensions (Matryoshka). [the model's own]"),
    ] = None
    prompt: Annotated[str | None, Option(metavar="TEXT", help="Put TEXT before every sentence.")] = None
    prompt_name: Annotated[str | None, Option(metavar="NAME", help="The same by its name in the model's folder.")] = (
        None
    )

    @property
    def name(self) -> str:
        name = ModelName.parse(self.model)
        if self.dimension is not None:
            name = replace(name, dimension=self.dimension)
        if self.prompt is not None or self.prompt_name is not None:
            name = replace(name, prompt=self.prompt, prompt_name=self.prompt_name)
        return str(name)


@dataclass(frozen=True)
class FileOptions:
    columns: Columns = None
    encoding: Encoding = None
    sheet: Annotated[str | None, Option(metavar="NAME", help="The sheet of a workbook. [the longest]")] = None

    def of(self, source: str) -> tuple[str, Self]:
        """The name of a file, and how it is read. Options in its name come first: FILE?columns=A,B&encoding=NAME."""
        data = DataName.parse(source)
        # In a URL there may be an equals sign.
        if data.objective is not None:
            return source, self
        own = {field.name: getattr(data, field.name) or getattr(self, field.name) for field in fields(self)}
        if unread := [key for key, value in zip(READ_AS, data.read_as, strict=True) if value and key not in own]:
            raise InputError(f"?{unread[0]}= is not for this command; leave it out")
        return data.name, replace(self, **own)

    def data(self, name: str, option: str = "--data") -> str:
        """Names of data, with whole paths of files, and with these options if they have none of their own.

        InputError if the options are used without a file.
        """
        settings = asdict(self)
        for own, value in settings.items():
            if value is not None and not names_file(name):
                raise InputError(f"--{own} is that of a file; name one with {option}")
        return absolute_names(name, **settings)


@dataclass(frozen=True)
class PairFileOptions(FileOptions):
    """A file of pairs that may have gold scores or labels."""

    scale: Annotated[str | None, Option(metavar="LOW-HIGH", help="The ends of the gold scores, as 1-7. [by them]")] = (
        None
    )
    labels: Annotated[str | None, Option(metavar="NAME:1,…", help="The values of the labels. [by their names]")] = None
    raters: Annotated[str | None, Option(metavar="NAME,…", help="The people whose judgements count. [all]")] = None


@dataclass(frozen=True)
class Pipe:
    """``-`` in place of a file: standard input and standard output."""

    format: Annotated[str | None, Option(metavar="jsonl|csv|…", help="Of the output, where OUT is -. [jsonl]")] = None

    @contextmanager
    def files(self, source: str, output: str, as_json: bool, lines: bool = False) -> Iterator[tuple[str, str]]:
        """Yields the names of input and output. A file that stands for standard output is printed at the end."""
        if output != PIPE:
            if self.format is not None:
                raise InputError("--format is that of standard output, OUT -; the ending of a file says its own")
            with received(source, lines) as path:
                yield path, output
            return
        if as_json:
            raise InputError("--json and OUT - both print to standard output; choose one")
        stdout = sys.stdout
        with received(source, lines) as path, tempfile.TemporaryDirectory(prefix="sbert-lab-") as folder:
            result = Path(folder) / f"output.{(self.format or 'jsonl').removeprefix('.')}"
            try:
                with clean_stdout():
                    yield path, str(result)
            finally:
                # Also when it was stopped, or the input is damaged further down.
                if result.exists():
                    stdout.flush()
                    with result.open("rb") as file:
                        shutil.copyfileobj(file, stdout.buffer)
                    stdout.buffer.flush()


@contextmanager
def received(source: str, lines: bool = False) -> Iterator[str]:
    """Yields the name of a file; for ``-`` that of a file with the content of standard input.

    With ``lines`` it holds a sentence a line, unless it begins as JSON, Parquet or a workbook do.
    """
    if source != PIPE:
        yield source
        return
    with tempfile.TemporaryDirectory(prefix="sbert-lab-") as folder:
        path = Path(folder) / "standard-input"
        if sys.stdin.isatty():
            print("Type the input, and end it with Ctrl-D on a line of its own.", file=sys.stderr)
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        with path.open("rb") as file:
            is_text = not file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(PACKED)
        yield str(path.rename(path.with_suffix(".txt")) if lines and is_text else path)


@dataclass(frozen=True)
class Computing:
    """The device, the precision and the home folder of a command, and whether it prints JSON."""

    dtype: Annotated[str, Option(metavar="|".join(DTYPES), help="Precision; auto is bfloat16 where it is fast.")] = (
        "auto"
    )
    device: Annotated[str, Option(metavar="auto|cpu|cuda|mps", help="Where to compute.")] = "auto"
    home: Home = None
    offline: Offline = False
    as_json: Json = False

    def prepare(self) -> Path:
        return prepare(self.home, self.offline)


def grouped(command: Callable[..., T]) -> Callable[..., T]:
    """Wraps a command: a parameter whose type is a group, such as `ModelOptions`, stands for the options in it."""
    whole = inspect.signature(command, eval_str=True)
    annotations: dict[str, Any] = {name: parameter.annotation for name, parameter in whole.parameters.items()}
    groups: dict[str, Any] = {name: group for name, group in annotations.items() if is_dataclass(group)}
    parameters = []
    for name, parameter in whole.parameters.items():
        if name not in groups:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        hints = get_type_hints(groups[name], include_extras=True)
        parameters += [
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
            )
            for field in fields(groups[name])
        ]

    @wraps(command)
    def run(**values: Any) -> T:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        return command(**values)

    run.__signature__ = whole.replace(parameters=parameters)  # type: ignore[attr-defined]
    # Those of the signature count.
    run.__annotations__ = {}
    return run


def prepare(home: Path | None, offline: bool) -> Path:
    """The home folder; with ``offline``, the network is forbidden from now on."""
    if offline:
        set_offline(True)
    folder = home_folder(home)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"the home folder {folder} is a file; name a folder with --home")
    return folder


def cluster_of(home: Path, engine: str | None, address: str | None) -> RayCluster | None:
    """The Ray cluster that executes the runs; None if this process does."""
    check_engine(engine)
    if address and engine != "ray":
        raise InputError("--address is an option of --engine ray")
    settings = Settings.gather(home=home, ray=address)
    if engine == "ray" and not settings.ray:
        settings = settings.model_copy(update={"ray": "local"})
    return None if engine == "local" else RayCluster.of(settings)


def check_engine(engine: str | None) -> None:
    if engine not in (None, "local", "ray"):
        raise InputError(f"there is no engine {engine!r}; choose local or ray")


def load_model(model: ModelOptions, computing: Computing) -> AnyModel:
    """The model, of any kind."""
    return open_model(model.name, model.pooling, computing.dtype, computing.device, computing.prepare())


def load_encoder(model: ModelOptions, computing: Computing) -> VectorModel:
    """The model. InputError if it has no sentence vectors."""
    return required(load_model(model, computing), VectorModel)


def load_cross_encoder(name: str | None, computing: Computing) -> PairModel | None:
    """The cross-encoder of this name; None for none."""
    # It imports torch, which takes seconds.

    if not name:
        return None
    return required(open_model(name, None, computing.dtype, computing.device, computing.prepare()), PairModel)


def open_corpus(source: str, file: FileOptions, home: Path) -> Corpus:
    """The sentences of a file, or of a data set by name."""
    source, file = file.of(source)
    if not Path(source).is_file():
        return Corpus.from_data(file.data(source, "IN"), home)
    if file.columns is not None and split_names(file.columns)[1:]:
        return Corpus.from_dataset(load_data(file.data(source), home))
    return Corpus.from_file(source, file.columns, file.encoding, sheet=file.sheet)


def embed(corpus: Corpus, encoder: VectorModel, home: Path, bar: ProgressBar) -> EmbeddedCorpus:
    """The vectors of a corpus, which are kept in the home folder."""
    return encode(corpus, encoder, DiskCache(home / "cache"), Watch.of(bar))
