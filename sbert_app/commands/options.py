"""Options that several commands share, in groups. A command has a parameter for each group.

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
# The endings of tables, for the help of commands.
TABLES = any_of([file_format.suffixes[0] for file_format in FORMATS])
# The name of standard input and standard output.
PIPE = "-"
# The first bytes of JSON, Parquet and workbooks. Other standard input is plain text.
PACKED = (b"{", b"PAR1", b"PK\x03\x04")


def complete_models(incomplete: str) -> list[str]:
    """Returns the built-in models and runs whose names begin with ``incomplete``, for completion by a shell."""
    names = [*ENCODERS, *CROSS_ENCODERS, *BASELINES]
    # The newest runs, as many as the pickers of the app offer.
    for run in RunStore(home_folder()).list(PICKED):
        if run.has_model:
            names.append(str(ModelName.of_run(run.id)))
    return [name for name in names if name.startswith(incomplete)]


def complete_runs(incomplete: str) -> list[str]:
    runs = RunStore(home_folder()).list(PICKED)
    return [run.id for run in runs if run.id.startswith(incomplete)]


Model = Annotated[
    str,
    Option(
        metavar="NAME",
        help="A short name, Hub id, folder, run:ID or scratch:LAYERSxDIM.",
        autocompletion=complete_models,
    ),
]
RunId = Annotated[
    str,
    Argument(
        metavar="RUN", help="Its id, a beginning of it, or its name.", autocompletion=complete_runs
    ),
]
Sentences = Annotated[
    str,
    Argument(
        metavar="IN", help="Sentences: a file (.txt, .csv, …), a data set such as stsb:dev, or -."
    ),
]
Columns = Annotated[
    str | None,
    Option(
        metavar="A,B[,GOLD]",
        help="The columns to read: two sentences and perhaps a score, or one text.",
    ),
]
Encoding = Annotated[str | None, Option(metavar="NAME", help="A text file's encoding. [detected]")]
Home = Annotated[
    Path | None,
    Option(metavar="DIR", help="Models, data and runs. [$SBERT_HOME or the platform's]"),
]
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
KeepUnknown = Annotated[
    bool, Option("--keep-unknown", help="Also score texts that the model has no tokens for.")
]
OFFLINE_HELP = "Ask neither the Hub nor the package index."
EngineName = Annotated[
    str | None, Option(metavar="local|ray", help="What trains. [local; ray where SBERT_RAY is set]")
]
Address = Annotated[
    str | None,
    Option(metavar="ADDRESS", help="Ray: auto, ray://host:10001 or local. [$SBERT_RAY or local]"),
]
Offline = Annotated[bool, Option("--offline", help=OFFLINE_HELP)]
Json = Annotated[bool, Option("--json", help="Print one JSON object.")]


@dataclass(frozen=True)
class ModelOptions:
    """The model, and settings that replace those in its name."""

    model: Model = DEFAULT_MODEL
    pooling: Annotated[
        str | None,
        Option(metavar="mean|max|cls|…", help="How tokens become a vector. [the model's own]"),
    ] = None
    dimension: Annotated[
        int | None,
        Option(
            "--dim",
            metavar="N",
            min=1,
            help="Keep the first N dimensions (Matryoshka). [the model's own]",
        ),
    ] = None
    prompt: Annotated[
        str | None, Option(metavar="TEXT", help="Put TEXT before every sentence.")
    ] = None
    prompt_name: Annotated[
        str | None, Option(metavar="NAME", help="The same by its name in the model's folder.")
    ] = None

    @property
    def name(self) -> str:
        name = ModelName.parse(self.model)
        if self.dimension is not None:
            name = replace(name, dimension=self.dimension)
        # A name may have the text of a prompt or the name of one. Either option replaces both.
        if self.prompt is not None or self.prompt_name is not None:
            name = replace(name, prompt=self.prompt, prompt_name=self.prompt_name)
        return str(name)


@dataclass(frozen=True)
class FileOptions:
    """The options that say how a file is read. The name of the file may contain the same settings."""

    columns: Columns = None
    encoding: Encoding = None
    sheet: Annotated[
        str | None, Option(metavar="NAME", help="The sheet of a workbook. [the longest]")
    ] = None

    def parse(self, source: str) -> tuple[str, Self]:
        """Returns a source without the settings in its name, and these options with those settings.

        The settings, as in FILE?columns=A,B&encoding=NAME, take precedence over the options.
        """
        data = DataName.parse(source)
        if data.objective is not None:
            # NAME=OBJECTIVE is for training only, so the equals sign is part of a URL.
            return source, self
        settings = {}
        for field in fields(self):
            settings[field.name] = getattr(data, field.name) or getattr(self, field.name)
        for key, value in zip(READ_AS, data.read_as, strict=True):
            # There is no option for the split. `FileOptions` also lacks scale, labels and raters.
            if value and key not in settings:
                raise InputError(f"?{key}= is not for this command; leave it out")
        return data.name, replace(self, **settings)

    @property
    def are_given(self) -> bool:
        """Whether any of the options is used."""
        return self != type(self)()

    def with_options(self, name: str) -> str:
        """Returns the name of data unchanged, or with these options if any of them is used."""
        if self.are_given:
            return self.data_name(name)
        return name

    def data_name(self, name: str, option: str = "--data") -> str:
        """Returns a name of data with absolute paths and these options. Settings in the name take precedence.

        The paths are absolute because a run or a sweep may be resumed from another folder.

        Args:
            option: the option that names a file, for the error.

        Raises:
            InputError: options are used without a file.
        """
        settings = asdict(self)
        for key, value in settings.items():
            if value is not None and not names_file(name):
                raise InputError(f"--{key} is an option for files; name one with {option}")
        return absolute_names(name, **settings)


@dataclass(frozen=True)
class PairFileOptions(FileOptions):
    """A file of pairs that may have gold scores or labels."""

    scale: Annotated[
        str | None,
        Option(metavar="LOW-HIGH", help="The ends of the gold scores, as 1-7. [by them]"),
    ] = None
    labels: Annotated[
        str | None, Option(metavar="NAME:1,…", help="The values of the labels. [by their names]")
    ] = None
    raters: Annotated[
        str | None, Option(metavar="NAME,…", help="The people whose judgements count. [all]")
    ] = None


@dataclass(frozen=True)
class Pipe:
    """``-`` in place of a file: standard input and standard output."""

    format: Annotated[
        str | None, Option(metavar="jsonl|csv|…", help="The format of OUT, if that is -. [jsonl]")
    ] = None

    @contextmanager
    def files(
        self, source: str, output: str, as_json: bool, lines: bool = False
    ) -> Iterator[tuple[str, str]]:
        """Yields the names of the input and the output file. If OUT is -, the output file is printed at the end.

        ``lines``: whether plain text on standard input has one sentence per line.
        """
        if output != PIPE:
            if self.format is not None:
                raise InputError(
                    "--format is for standard output, OUT -; the ending of a file states its format"
                )
            with input_file(source, lines) as path:
                yield path, output
            return
        if as_json:
            raise InputError("--json and OUT - both print to standard output; choose one")
        stdout = sys.stdout
        with (
            input_file(source, lines) as path,
            tempfile.TemporaryDirectory(prefix="sbert-lab-") as folder,
        ):
            result = Path(folder) / f"output.{(self.format or 'jsonl').removeprefix('.')}"
            try:
                with clean_stdout():
                    yield path, str(result)
            finally:
                # Printed also if the command was stopped, or a later part of the input is damaged.
                if result.exists():
                    stdout.flush()
                    with result.open("rb") as file:
                        shutil.copyfileobj(file, stdout.buffer)
                    stdout.buffer.flush()


@contextmanager
def input_file(source: str, lines: bool = False) -> Iterator[str]:
    """Yields the name of a file. For ``-`` it is a temporary file with the content of standard input.

    Args:
        lines: whether plain text has one sentence per line. JSON, Parquet and workbooks are
            recognised.
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
            # JSON, Parquet and workbooks begin with one of PACKED. A byte order mark and blank
            # space may come before it.
            is_text = not file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(PACKED)
        if lines and is_text:
            # A .txt file is read as one sentence per line.
            path = path.rename(path.with_suffix(".txt"))
        yield str(path)


@dataclass(frozen=True)
class Computing:
    """The device, the precision and the home folder of a command, and whether it prints JSON."""

    dtype: Annotated[
        str, Option(metavar="|".join(DTYPES), help="Precision; auto is bfloat16 where it is fast.")
    ] = "auto"
    device: Annotated[str, Option(metavar="auto|cpu|cuda|mps", help="Where to compute.")] = "auto"
    home: Home = None
    offline: Offline = False
    as_json: Json = False

    def prepare(self) -> Path:
        return prepare(self.home, self.offline)


def grouped(command: Callable[..., T]) -> Callable[..., T]:
    """Wraps a command so that a parameter with the type of a group, such as `ModelOptions`, becomes its options."""
    signature = inspect.signature(command, eval_str=True)
    # Only keyword-only parameters may have defaults in any order.
    kind = inspect.Parameter.KEYWORD_ONLY
    groups: dict[str, Any] = {}
    parameters = []
    for name, parameter in signature.parameters.items():
        group = parameter.annotation
        if not is_dataclass(group):
            parameters.append(parameter.replace(kind=kind))
            continue
        groups[name] = group
        hints = get_type_hints(group, include_extras=True)
        for field in fields(group):
            annotation = hints[field.name]
            parameters.append(
                inspect.Parameter(field.name, kind, default=field.default, annotation=annotation)
            )

    @wraps(command)
    def run(**values: Any) -> T:
        for name, group in groups.items():
            options_of_group = {field.name: values.pop(field.name) for field in fields(group)}
            values[name] = group(**options_of_group)
        return command(**values)

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    # typer would prefer these to the annotations of the signature.
    run.__annotations__ = {}
    return run


def prepare(home: Path | None, offline: bool = False) -> Path:
    """Returns the home folder. With ``offline``, all later use of the network is forbidden."""
    if offline:
        set_offline(True)
    folder = home_folder(home)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"the home folder {folder} is a file; name a folder with --home")
    return folder


def cluster_of(home: Path, engine: str | None, address: str | None) -> RayCluster | None:
    """Returns the Ray cluster that executes the runs, or None if this process executes them."""
    check_engine(engine)
    if address and engine != "ray":
        raise InputError("--address is an option of --engine ray")
    if engine == "local":
        return None
    # Without an address, $SBERT_RAY decides.
    settings = Settings.gather(home=home, ray=address)
    if engine == "ray" and not settings.ray:
        # This address stands for a Ray cluster on this machine.
        settings = settings.model_copy(update={"ray": "local"})
    return RayCluster.of(settings)


def check_engine(engine: str | None) -> None:
    if engine not in (None, "local", "ray"):
        raise InputError(f"there is no engine {engine!r}; choose local or ray")


def load_model(model: ModelOptions, computing: Computing) -> AnyModel:
    """Opens a model of any kind."""
    home = computing.prepare()
    return open_model(model.name, model.pooling, computing.dtype, computing.device, home)


def load_encoder(model: ModelOptions, computing: Computing) -> VectorModel:
    """Opens a model. Raises InputError if it has no sentence vectors."""
    return required(load_model(model, computing), VectorModel)


def load_cross_encoder(name: str | None, computing: Computing) -> PairModel | None:
    """Opens the cross-encoder of this name, if there is a name."""
    if not name:
        return None
    model = open_model(
        name, dtype=computing.dtype, device=computing.device, home=computing.prepare()
    )
    return required(model, PairModel)


def open_corpus(source: str, file: FileOptions, home: Path) -> Corpus:
    """Opens the sentences of a file, or of a data set by name."""
    source, file = file.parse(source)
    if not Path(source).is_file():
        return Corpus.from_data(file.data_name(source, "IN"), home)
    has_pairs = file.columns is not None and len(split_names(file.columns)) > 1
    if has_pairs:
        # The corpus has the distinct sentences of the pairs.
        return Corpus.from_dataset(load_data(file.data_name(source), home))
    return Corpus.from_file(source, file.columns, file.encoding, sheet=file.sheet)


def embed(corpus: Corpus, encoder: VectorModel, home: Path, bar: ProgressBar) -> EmbeddedCorpus:
    """Returns a corpus with its vectors, which are cached in the home folder."""
    return encode(corpus, encoder, DiskCache(home / "cache"), Watch.of(bar))
