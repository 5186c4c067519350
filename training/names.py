"""The names of models, runs and data that people type. Text is parsed where it enters the program.

all-mpnet-base-v2?dim=256                        the first 256 dimensions of a model
all-MiniLM-L6-v2:cls                             the same weights with CLS pooling; also :mean, :max, …
google/embeddinggemma-300m?prompt_name=query     a prompt of the folder before every sentence, by its name
intfloat/e5-base-v2?prompt=query%3A+             the text of a prompt
all-MiniLM-L6-v2?dtype=int8                      computed in 8-bit integers
maxsim:all-MiniLM-L6-v2                          late interaction with the token vectors of an encoder
run:20261121-collapse                            the model of a run, by its id or its name
scratch:6x384                                    a transformer with random weights: layers, dimension
endpoint:http://localhost:11434/v1#nomic-embed   a model behind an OpenAI-compatible server, which pools itself
endpoint:https://HOST/v1#NAME?batch=8&timeout=9  with the number of texts in a request, and the seconds to wait
tfidf, glove, minilm-stsb, a Hub id, a folder, a file of word vectors
all-MiniLM-L6-v2+bm25                            retrieval: the rankings of a model and of BM25, fused
bm25?rerank=minilm-stsb                          BM25, and a cross-encoder that reranks its best documents

stsb:dev                                         data: a built-in set and its split
hf:org/name:config:split                         any set of the Hub
reviews.csv?encoding=windows-1251                a file, with the encoding of its text if it is not to be detected
pairs.csv?columns=left,right,gold                a file, with its columns if they have other names
pairs.csv?split=test                             the rows with this value in the column split
pairs.csv?scale=1-7                              with the scale of its scores
pairs.csv?labels=similar:1,different:0           with the values of its labels
pairs.csv?raters=anna,boris                      with the judgements of these raters
pairs.xlsx?sheet=Pairs                           a sheet of a workbook
a.csv?encoding=koi8-r+b.csv                      several, joined
stsb:train=cosent+pairs.csv=mnrl                 several to train on, with an objective each
beir:scifact:test                                retrieval: a folder in BEIR's layout and its split
beir:judged.csv, beir:stsb:dev                   a file of query, document, relevance; a set of pairs
nanobeir:SciFact                                 a set of NanoBEIR, on the Hub

A path that exists may contain these marks. Records on disk, addresses and requests contain the
text.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

from training.catalogue import DATA_SETS, DEFAULT_MODEL, MODEL_LABELS, DataSet
from training.errors import InputError
from training.pooling import POOLINGS, pooling_label, poolings

RUN = "run:"
SCRATCH = "scratch:"
ENDPOINT = "endpoint:"
HUB = "hf:"
MTEB = "mteb:"
MAXSIM = "maxsim:"
# The names of renamed runs, by id. The store of runs keeps them up to date.
RENAMED_RUNS: dict[str, str] = {}
BEIR = "beir:"
NANOBEIR = "nanobeir:"
# Stands for the model's prompts for queries on one side, and for documents on the other.
BY_ROLE = "query|document"
DIMENSION = "dim"
PROMPT = "prompt"
PROMPT_NAME = "prompt_name"
DTYPE = "dtype"
SETTINGS = (DIMENSION, PROMPT, PROMPT_NAME, DTYPE)
# The settings of requests to an endpoint, and their largest values.
REQUEST_SETTINGS = {"batch": 2_048, "timeout": 600}
MOST_DIMENSIONS = 1_000_000
# The characters of a path and of the name of a file, which the system limits.
LONGEST_PATH = 4_000
LONGEST_PART = 250

_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,127}", re.ASCII)
_SHAPE = re.compile(r"scratch:(\d{1,2})x(\d{1,4})", re.ASCII)
# The settings of a file of data.
READ_AS = ("encoding", "columns", "split", "scale", "labels", "raters", "sheet")
_SETTING = f"(?:{'|'.join(READ_AS)})=[^&]*"
_READ_AS = re.compile(rf"(.+)\?({_SETTING}(?:&{_SETTING})*)", re.DOTALL)
# The name of data and its objective. The equals sign after a setting's name belongs to the setting.
_NO_SETTING = "".join(f"(?<![?&]{key})" for key in READ_AS)
_WITH_OBJECTIVE = re.compile(rf"(.+{_NO_SETTING})=([a-z]+(?:-[a-z]+)*)", re.DOTALL)
# Written as %2B, … in the names of columns.
_MARKS = re.compile(r"[%+&=?]")
# The rule of the Hub: no "..", no "--", no mark at an end.
_REPO_PART = r"[A-Za-z0-9](?:\w|[.-](?=\w)){0,95}"
_REPO_ID = re.compile(rf"(?!.*\.git$){_REPO_PART}(?:/{_REPO_PART})?", re.ASCII)
# Without credentials and query, so that the text shows where the program connects to.
_ENDPOINT = re.compile(
    r"(https?)://([\w.-]+|\[[\da-f:.]+])(?::(\d{1,5}))?((?:/[\w.~:-]+)*)/?#([^\s?#]+)", re.A | re.I
)


def is_id(text: str) -> bool:
    """Tells whether a text can be the id of a run, an experiment or another record, the name of its folder or file."""
    return _ID.fullmatch(text) is not None


def slug(text: str) -> str:
    """Converts a text to a part of a file name: at most 40 lower-case letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:40].strip("-")


def is_repo_id(text: str) -> bool:
    """Tells whether a text can be the name of a repository on the Hub: name or org/name."""
    return _REPO_ID.fullmatch(text) is not None


@dataclass(frozen=True)
class Endpoint:
    """A model behind an OpenAI-compatible server. Its texts leave this program, and usually this machine.

    ``/embeddings`` is added to the ``url``. The ``address`` is host:port in lower case, and
    ``model`` the name of the model on the server.
    """

    url: str
    address: str
    model: str


@dataclass(frozen=True)
class ModelName:
    """A model and its settings. None stands for the setting of its folder."""

    name: str
    dimension: int | None = None
    prompt: str | None = None
    prompt_name: str | None = None
    dtype: str | None = None
    pooling: str | None = None
    # Whether the token vectors of this encoder are compared, in late interaction.
    maxsim: bool = False
    # The number of texts in a request to an endpoint, and the seconds to wait for its answer.
    batch: int | None = None
    timeout: int | None = None

    @staticmethod
    def parse(text: ModelName | Path | str) -> ModelName:
        """Reads a model's name, with its settings and pooling. InputError if it is empty, or a setting is wrong."""
        if isinstance(text, ModelName):
            return text
        text = str(text)
        # The name of a folder may itself contain these marks.
        if ("?" in text or ":" in text) and _is_folder(text):
            return ModelName(text)
        if text.strip().startswith(MAXSIM):
            return replace(ModelName.parse(text.lstrip().removeprefix(MAXSIM)), maxsim=True)
        whole = text.strip()
        pooling = None
        before, _, last = whole.rpartition(":")
        # A pooling alone names no model, with or without a colon. `poolings` loads the plug-ins, so
        # it is called only if there is a colon.
        is_pooling = last in POOLINGS or (before != "" and last in poolings())
        # An endpoint pools by itself, and the name of its model may contain a colon.
        if is_pooling and not whole.startswith(ENDPOINT):
            whole = before
            pooling = last
        if not whole:
            raise InputError(
                f"{text!r} names no model; write a name such as {DEFAULT_MODEL} or {DEFAULT_MODEL}:cls"
            )
        name, mark, query = whole.partition("?")
        if len(name) > LONGEST_PATH or max(map(len, name.split("/"))) > LONGEST_PART:
            raise InputError(f"model {text[:80]!r} … cannot be used here: the name is too long")
        if name.startswith(ENDPOINT):
            # Raises InputError for a wrong address.
            _read_endpoint(name)
        # The question mark may be a part of a folder's name. Without a pooling, ``whole`` is not a
        # folder, as the text was checked above.
        if not mark or (pooling and _is_folder(whole)):
            return ModelName(whole, pooling=pooling)
        settings = dict(parse_qsl(query, keep_blank_values=True))
        has_last_prompt = bool(settings.get(PROMPT)) and list(settings)[-1] == PROMPT
        if has_last_prompt and not pooling:
            # `strip` has removed a space at the end, which separates the prompt from the text.
            settings[PROMPT] += text[len(text.rstrip()) :]
        allowed = (*SETTINGS, *REQUEST_SETTINGS) if name.startswith(ENDPOINT) else SETTINGS
        if unknown := set(settings) - set(allowed):
            raise InputError(
                f"{text!r}: {min(unknown)!r} is no setting of a model; choose {', '.join(allowed)}"
            )
        values: dict[str, Any] = {key: settings.get(key) for key in (PROMPT, PROMPT_NAME, DTYPE)}
        for key in (DIMENSION, *REQUEST_SETTINGS):
            if key not in settings:
                continue
            most = REQUEST_SETTINGS.get(key, MOST_DIMENSIONS)
            value = settings[key][:80]
            # int() of a very long text raises an error of its own.
            is_number = value.isdecimal() and len(value) <= len(str(most))
            if not is_number or not 1 <= int(value) <= most:
                raise InputError(
                    f"{text!r}: {key} is {value!r}, but must be a whole number from 1 to {most:,}"
                )
            # The other settings have the names of their fields.
            values["dimension" if key == DIMENSION else key] = int(value)
        return ModelName(name, **values, pooling=pooling)

    @staticmethod
    def of_run(run_id: str) -> ModelName:
        return ModelName(f"{RUN}{run_id}")

    def __str__(self) -> str:
        values = {
            DIMENSION: self.dimension,
            PROMPT: self.prompt,
            PROMPT_NAME: self.prompt_name,
            DTYPE: self.dtype,
            "batch": self.batch,
            "timeout": self.timeout,
        }
        settings = urlencode({key: value for key, value in values.items() if value is not None})
        text = f"{MAXSIM}{self.name}" if self.maxsim else self.name
        if settings:
            text += f"?{settings}"
        if self.pooling:
            text += f":{self.pooling}"
        return text

    @property
    def label(self) -> str:
        """The name in words, such as "all-mpnet-base-v2, 256 dimensions, CLS pooling"."""
        name = MODEL_LABELS.get(self.name, self.name)
        if self.run_id:
            # The id of a run consists of its day, its time and the name that it began with.
            name = RENAMED_RUNS.get(self.run_id) or re.sub(r"^\d{8}-\d{6}-", "", self.run_id)
        if self.maxsim:
            name = f"MaxSim of {name}"
        parts = [name]
        if self.dimension is not None:
            parts.append(f"{self.dimension} dimensions")
        if self.prompt_name == BY_ROLE:
            parts.append("query and document prompts")
        elif self.states_prompt:
            parts.append(f"prompt {self.prompt_name or self.prompt or 'none'}")
        if self.dtype is not None:
            parts.append(self.dtype)
        if self.pooling is not None:
            parts.append(f"{pooling_label(self.pooling)} pooling")
        return ", ".join(parts)

    @property
    def run_id(self) -> str | None:
        """The id or the name of the run, as it was typed; None if this is not a run."""
        return self.name.removeprefix(RUN) if self.name.startswith(RUN) else None

    @property
    def is_scratch(self) -> bool:
        """Whether the weights are random."""
        return self.name.startswith(SCRATCH)

    @property
    def scratch_shape(self) -> tuple[int, int] | None:
        """The layers and the dimension of a transformer with random weights; None for any other model."""
        match = _SHAPE.fullmatch(self.name)
        if match is None:
            return None
        return int(match[1]), int(match[2])

    @property
    def endpoint(self) -> Endpoint | None:
        """The server and the model of ``endpoint:URL#model``; None for any other model."""
        return _read_endpoint(self.name) if self.name.startswith(ENDPOINT) else None

    def with_pooling(self, pooling: str | None) -> ModelName:
        """Returns the name with another pooling. None and "" change nothing."""
        return replace(self, pooling=pooling) if pooling else self

    @property
    def weights(self) -> ModelName:
        """The name of the copy of the weights in memory. It is the same for all dimensions, prompts and poolings.

        Opening an endpoint requests a vector, so the name includes the seconds to wait for an answer.
        """
        return ModelName(self.name, dtype=self.dtype, maxsim=self.maxsim, timeout=self.timeout)

    @property
    def states_prompt(self) -> bool:
        """Whether the name states a prompt, even an empty one."""
        return self.prompt is not None or self.prompt_name is not None


@dataclass(frozen=True)
class DataName:
    """One data set or file, and how it is used.

    Attributes:
        name: a name, a Hub id or a path.
        encoding: the encoding of a file; None detects it, as for the following settings.
        objective: the objective of a run on this data; None is the run's.
        columns: the names of the columns, separated by commas.
        rows: the split to read from a file with a column of splits; None reads all rows.
        scale: the lowest and the highest gold score, such as 1-7.
        labels: the values of labels, such as similar:1,different:0.
        raters: the raters whose judgements count.
        sheet: the sheet of a workbook.
    """

    name: str
    encoding: str | None = None
    objective: str | None = None
    columns: str | None = None
    rows: str | None = None
    scale: str | None = None
    labels: str | None = None
    raters: str | None = None
    sheet: str | None = None

    @staticmethod
    def parse(text: DataName | Path | str) -> DataName:
        """Reads the name of one set or file. A path that exists may itself contain ``?encoding=``, ``=``, …"""
        if isinstance(text, DataName):
            return text
        text = str(text)
        objective = None
        match = _WITH_OBJECTIVE.fullmatch(text)
        if match and not os.path.lexists(text):
            text, objective = match.groups()
        read_as = _READ_AS.fullmatch(text)
        # lexists is False for a text that cannot be a path.
        if not read_as or os.path.lexists(text):
            return DataName(text, objective=objective)
        settings = dict(setting.split("=", 1) for setting in read_as[2].split("&"))
        values = [unquote(settings.get(key, "")).strip() or None for key in READ_AS]
        # The fields have the order of `READ_AS`, but with the objective after the encoding.
        encoding, *others = values
        return DataName(read_as[1], encoding, objective, *others)

    @staticmethod
    def parse_joined(text: Path | str) -> tuple[DataName, ...]:
        """Reads "snli+mnli" as two names. A path that exists may itself contain a plus."""
        text = str(text)
        whole = DataName.parse(text)
        if os.path.lexists(whole.name):
            return (whole,)
        parts = [part.strip() for part in text.split("+") if part.strip()]
        # "" and "+" have no parts; the caller refuses the whole name.
        return tuple(map(DataName.parse, parts)) or (whole,)

    def __str__(self) -> str:
        text = self.name
        separator = "?"
        for key, value in zip(READ_AS, self.read_as, strict=True):
            if value:
                text += f"{separator}{key}={_MARKS.sub(lambda mark: quote(mark[0]), value)}"
                separator = "&"
        if self.objective:
            text += f"={self.objective}"
        return text

    @property
    def read_as(self) -> tuple[str | None, ...]:
        """The settings of a file, in the order of `READ_AS`. The setting split is the field ``rows``."""
        return (
            self.encoding,
            self.columns,
            self.rows,
            self.scale,
            self.labels,
            self.raters,
            self.sheet,
        )

    @property
    def built_in(self) -> DataSet | None:
        """The built-in set; None for other data."""
        return DATA_SETS.get(self.name.partition(":")[0])

    @property
    def split(self) -> str:
        """The split of a built-in set; "" if the name does not state one."""
        return self.name.partition(":")[2]

    @property
    def hub_parts(self) -> list[str] | None:
        """The id, and the configuration and the split if there are any, of ``hf:``; None for any other name."""
        return self.name.removeprefix(HUB).split(":") if self.name.startswith(HUB) else None

    @property
    def mteb_task(self) -> str | None:
        """The task of ``mteb:``; None for any other name."""
        return self.name.removeprefix(MTEB) if self.name.startswith(MTEB) else None

    @property
    def is_retrieval(self) -> bool:
        """Whether the data is queries, documents and judgements: ``beir:`` or ``nanobeir:``."""
        return self.name.startswith((BEIR, NANOBEIR))

    @property
    def judged(self) -> tuple[DataName, str]:
        """The folder, file or set of ``beir:``, and the split of a folder, "" if the name does not state one."""
        whole = replace(self, name=self.name.removeprefix(BEIR))
        folder, _, split = whole.name.rpartition(":")
        has_split = not whole.exists and is_id(split) and _is_folder(folder)
        if has_split:
            return replace(whole, name=folder), split
        return whole, ""

    @property
    def is_set(self) -> bool:
        """Whether it is a built-in set or a set on the Hub, not a path."""
        return self.built_in is not None or self.name.startswith((HUB, NANOBEIR))

    @property
    def path(self) -> Path:
        return Path(self.name).expanduser()

    @property
    def exists(self) -> bool:
        """Whether it is a file or a folder on this machine."""
        return os.path.lexists(self.path)

    @property
    def label(self) -> str:
        """The name in words, such as "STSb dev"; a path without its folders, and a set without the word test."""
        data_set = self.built_in
        # An unknown split is shown as it was typed.
        if data_set is None or self.split not in ("", *data_set.splits):
            is_path = "/" in self.name or "\\" in self.name
            return PurePath(self.name).name if is_path else self.name
        if self.split in ("", "test"):
            return data_set.title
        return f"{data_set.title} {self.split}"

    @property
    def test_split(self) -> str | None:
        """The test split that belongs to the dev split of a built-in set; None for other data."""
        data_set = self.built_in
        # The sets of the Hub, which have a repo, are not on every machine.
        if data_set is None or data_set.repo or self.split not in ("", "dev"):
            return None
        return f"{self.name.partition(':')[0]}:test"

    def absolute(self, **defaults: str | None) -> DataName:
        """Returns the name for use in another folder: a file gets its absolute path.

        ``defaults`` fill in the settings of the file that the name leaves open.
        """
        if self.name.startswith(BEIR):
            judged, split = self.judged
            name = f"{BEIR}{judged.absolute().name}"
            if split:
                name += f":{split}"
            return replace(self, name=name)
        if not self.path.exists():
            return self
        settings = {key: getattr(self, key) or value for key, value in defaults.items()}
        return replace(self, name=str(self.path.absolute()), **settings)


def absolute_names(text: str, **settings: str | None) -> str:
    """Converts joined names for use in another folder, with defaults for the settings of files."""
    return "+".join(str(part.absolute(**settings)) for part in DataName.parse_joined(text))


def names_file(text: str) -> bool:
    """Tells whether a part of joined names is an existing file or folder."""
    return any(part.exists for part in DataName.parse_joined(text))


def _read_endpoint(name: str) -> Endpoint:
    """Reads ``endpoint:URL#MODEL``. InputError for a wrong address."""
    match = _ENDPOINT.fullmatch(name.removeprefix(ENDPOINT))
    if match is None:
        raise InputError(
            f"{name!r} is no endpoint; write endpoint:http://HOST:PORT/v1#MODEL, without a user or a key"
        )
    scheme, host, port, path, model = match.groups()
    scheme = scheme.lower()
    default_port = 443 if scheme == "https" else 80
    address = f"{host.lower()}:{int(port or default_port)}"
    return Endpoint(f"{scheme}://{address}{path}", address, model)


def _is_folder(text: str) -> bool:
    path = existing_path(text)
    return path is not None and path.is_dir()


def existing_path(text: str) -> Path | None:
    """Returns the path of a file or folder on this machine; None if there is none, or the text cannot be a path."""
    if not text.strip():
        return None
    try:
        path = Path(text).expanduser()
        return path if path.exists() else None
    except (OSError, RuntimeError, ValueError):
        # It is too long for a path, starts with the home of a user who does not exist, or contains
        # a NUL.
        return None
