"""The names that people type, of models, runs and data; text is parsed at the edge, and is an object from there on.

all-mpnet-base-v2?dim=256                        a model, by its first 256 dimensions
all-MiniLM-L6-v2:cls                             the same weights under CLS pooling; likewise :mean, :max, …
google/embeddinggemma-300m?prompt_name=query     the prompt of that name before every sentence
intfloat/e5-base-v2?prompt=query%3A+             the same, the text itself
all-MiniLM-L6-v2?dtype=int8                      computed in 8-bit integers
maxsim:all-MiniLM-L6-v2                          late interaction: the token vectors of that encoder, unpooled
run:20261121-collapse                            the model of a run, by its id or its name
scratch:6x384                                    a transformer of random weights: layers, dimension
endpoint:http://localhost:11434/v1#nomic-embed   a model behind an OpenAI-compatible server; it pools for itself
endpoint:https://HOST/v1#NAME?batch=8&timeout=9  the same: so many texts a request, so many seconds for its answer
tfidf, glove, minilm-stsb, a Hub id, a folder, a file of word vectors
all-MiniLM-L6-v2+bm25                            of retrieval: the ranks of a model and those of BM25, fused
bm25?rerank=minilm-stsb                          BM25, and a cross-encoder that ranks its best documents again

stsb:dev                                         data: a built-in set and its split
hf:org/name:config:split                         any set of the Hub
reviews.csv?encoding=windows-1251                a file, with the encoding of its text if it is not to be detected
pairs.csv?columns=left,right,gold                a file, with its columns if they have other names
pairs.csv?split=test                             the rows whose column split says so
pairs.csv?scale=1-7                              with the scale of its scores
pairs.csv?labels=similar:1,different:0           with the values of its labels
pairs.csv?raters=anna,boris                      with the judgements of these people
pairs.xlsx?sheet=Pairs                           a sheet of a workbook
a.csv?encoding=koi8-r+b.csv                      several, joined
stsb:train=cosent+pairs.csv=mnrl                 several to train on, with an objective each
beir:scifact:test                                retrieval: a folder in BEIR's layout and its split
beir:judged.csv, beir:stsb:dev                   a file of query, document, relevance; a set of pairs
nanobeir:SciFact                                 a set of NanoBEIR, on the Hub

A path that exists may itself contain these marks. Records on disk, addresses and requests hold the text.
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
# The names of runs that are not called as at first any more, by id; the store of runs keeps them up to date.
RENAMED_RUNS: dict[str, str] = {}
BEIR = "beir:"
NANOBEIR = "nanobeir:"
# The name that stands for the model's prompts for queries on one side, and for documents on the other.
BY_ROLE = "query|document"
SETTINGS = DIMENSION, PROMPT, PROMPT_NAME, DTYPE = "dim", "prompt", "prompt_name", "dtype"
# The settings of requests to an endpoint, and the largest value of each.
REQUEST_SETTINGS = {"batch": 2_048, "timeout": 600}
MOST_DIMENSIONS = 1_000_000
# The characters of a path and of the name of a file, which the system limits.
LONGEST_PATH = 4_000
LONGEST_PART = 250

_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,127}", re.ASCII)
_SHAPE = re.compile(r"scratch:(\d{1,2})x(\d{1,4})", re.ASCII)
# The name of data and its objective.
READ_AS = "encoding", "columns", "split", "scale", "labels", "raters", "sheet"
_WITH_OBJECTIVE = re.compile(rf"(.+{''.join(f'(?<![?&]{key})' for key in READ_AS)})=([a-z]+(?:-[a-z]+)*)", re.DOTALL)
_READ_AS = re.compile(r"(.+)\?((?:{0})=[^&]*(?:&(?:{0})=[^&]*)*)".format("|".join(READ_AS)), re.DOTALL)
# Written as %2B, … in the names of columns.
_MARKS = re.compile(r"[%+&=?]")
# The rule of the Hub: no "..", no "--", no mark at an end.
_REPO_PART = r"[A-Za-z0-9](?:\w|[.-](?=\w)){0,95}"
_REPO_ID = re.compile(rf"(?!.*\.git$){_REPO_PART}(?:/{_REPO_PART})?", re.ASCII)
# There are no credentials and no query, so that the text shows where the program connects to.
_ENDPOINT = re.compile(r"(https?)://([\w.-]+|\[[\da-f:.]+])(?::(\d{1,5}))?((?:/[\w.~:-]+)*)/?#([^\s?#]+)", re.A | re.I)


def is_id(text: str) -> bool:
    """Whether a run, an experiment or another record may have this id: the name of its folder or file."""
    return _ID.fullmatch(text) is not None


def slug(text: str) -> str:
    """A text as part of a file name: at most 40 lower-case letters, digits and hyphens, or none."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:40].strip("-")


def is_repo_id(text: str) -> bool:
    """Whether a repository of the Hub may have this name: name or org/name."""
    return _REPO_ID.fullmatch(text) is not None


@dataclass(frozen=True)
class Endpoint:
    """A model behind an OpenAI-compatible server. Texts that it encodes leave this program, and mostly this machine.

    ``/embeddings`` is added to the ``url``. The ``address`` is host:port in lower case, and ``model`` a server's name.
    """

    url: str
    address: str
    model: str


@dataclass(frozen=True)
class ModelName:
    """A model and its settings; None stands for those of its folder."""

    name: str
    dimension: int | None = None
    prompt: str | None = None
    prompt_name: str | None = None
    dtype: str | None = None
    pooling: str | None = None
    # Whether the token vectors of this encoder are compared, by late interaction.
    maxsim: bool = False
    # The texts of a request to an endpoint, and the seconds that its answer may take.
    batch: int | None = None
    timeout: int | None = None

    @staticmethod
    def parse(text: ModelName | Path | str) -> ModelName:
        """Reads a model's name, with or without settings and pooling. InputError if it is empty, or a setting wrong."""
        if isinstance(text, ModelName):
            return text
        text = str(text)
        if ("?" in text or ":" in text) and _is_folder(text):
            return ModelName(text)
        if text.strip().startswith(MAXSIM):
            return replace(ModelName.parse(text.lstrip().removeprefix(MAXSIM)), maxsim=True)
        whole = text.strip()
        pooling = None
        before, _, last = whole.rpartition(":")
        if (last in POOLINGS or (before and last in poolings())) and not whole.startswith(ENDPOINT):
            whole = before
            pooling = last
        if not whole:
            raise InputError(f"{text!r} names no model; write a name such as {DEFAULT_MODEL} or {DEFAULT_MODEL}:cls")
        name, mark, query = whole.partition("?")
        if len(name) > LONGEST_PATH or max(map(len, name.split("/"))) > LONGEST_PART:
            raise InputError(f"model {text[:80]!r} … cannot be used here: the name is too long")
        if name.startswith(ENDPOINT):
            _read_endpoint(name)
        if not mark or (pooling and _is_folder(whole)):
            return ModelName(whole, pooling=pooling)
        settings = dict(parse_qsl(query, keep_blank_values=True))
        if not pooling and settings.get(PROMPT) and [*settings][-1] == PROMPT:
            # A space at its end separates the prompt from the text.
            settings[PROMPT] += text[len(text.rstrip()) :]
        takes = (*SETTINGS, *REQUEST_SETTINGS) if name.startswith(ENDPOINT) else SETTINGS
        if unknown := set(settings) - set(takes):
            raise InputError(f"{text!r}: {min(unknown)!r} is no setting of a model; choose {', '.join(takes)}")
        values: dict[str, Any] = {key: settings.get(key) for key in (PROMPT, PROMPT_NAME, DTYPE)}
        for key in filter(settings.__contains__, (DIMENSION, *REQUEST_SETTINGS)):
            most = REQUEST_SETTINGS.get(key, MOST_DIMENSIONS)
            value = settings[key][:80]
            if not value.isdecimal() or len(value) > len(str(most)) or not 1 <= int(value) <= most:
                raise InputError(f"{text!r}: {key} is {value!r}, but must be a whole number from 1 to {most:,}")
            values["dimension" if key == DIMENSION else key] = int(settings[key])
        return ModelName(name, **values, pooling=pooling)

    @staticmethod
    def of_run(run_id: str) -> ModelName:
        return ModelName(f"{RUN}{run_id}")

    def __str__(self) -> str:
        values = {DIMENSION: self.dimension, PROMPT: self.prompt, PROMPT_NAME: self.prompt_name, DTYPE: self.dtype}
        values |= {"batch": self.batch, "timeout": self.timeout}
        settings = urlencode({key: value for key, value in values.items() if value is not None})
        kind = MAXSIM * self.maxsim
        pooling = f":{self.pooling}" if self.pooling else ""
        return f"{kind}{self.name}{settings and '?'}{settings}{pooling}"

    @property
    def label(self) -> str:
        """The name in words, such as "all-mpnet-base-v2, 256 dimensions, CLS pooling"."""
        name = MODEL_LABELS.get(self.name, self.name)
        if self.run_id:
            # The id of a run is its day, its time and its first name.
            name = RENAMED_RUNS.get(self.run_id) or re.sub(r"^\d{8}-\d{6}-", "", self.run_id)
        parts = ["MaxSim of " * self.maxsim + name]
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
        """The id or the name of the run, as it was typed; None if this is no run."""
        return self.name.removeprefix(RUN) if self.name.startswith(RUN) else None

    @property
    def is_scratch(self) -> bool:
        """Whether the weights are random."""
        return self.name.startswith(SCRATCH)

    @property
    def scratch_shape(self) -> tuple[int, int] | None:
        """The layers and the dimension of a transformer of random weights; None for any other model."""
        shape = _SHAPE.fullmatch(self.name)
        return shape and (int(shape[1]), int(shape[2]))

    @property
    def endpoint(self) -> Endpoint | None:
        """The server and the model of ``endpoint:URL#model``; None for any other model."""
        return _read_endpoint(self.name) if self.name.startswith(ENDPOINT) else None

    def with_pooling(self, pooling: str | None) -> ModelName:
        """The name with another pooling; None and "" change nothing."""
        return replace(self, pooling=pooling) if pooling else self

    @property
    def weights(self) -> ModelName:
        """The name with the dtype alone, which has a copy of its own in memory; other settings share one."""
        return ModelName(self.name, dtype=self.dtype, maxsim=self.maxsim, timeout=self.timeout)

    @property
    def states_prompt(self) -> bool:
        """Whether the name has a prompt, be it none."""
        return self.prompt is not None or self.prompt_name is not None


@dataclass(frozen=True)
class DataName:
    """One data set or file, and how it is used.

    ``objective`` is that of a run on this data; None is the run's. The others describe a file: ``columns`` are names
    separated by commas, ``rows`` is the split of a file that has a column of splits, ``scale`` the lowest and the
    highest gold score, such as 1-7, ``labels`` the values of labels, such as similar:1,different:0. None detects them;
    for ``rows`` it takes all. ``raters`` are those that count, ``sheet`` is that of a workbook.
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
        match = _WITH_OBJECTIVE.fullmatch(text)
        text, objective = match.groups() if match and not os.path.lexists(text) else (text, None)
        read_as = _READ_AS.fullmatch(text)
        # lexists is False for a text that no file system takes.
        if not read_as or os.path.lexists(text):
            return DataName(text, None, objective)
        settings = dict(setting.split("=", 1) for setting in read_as[2].split("&"))
        encoding, *others = (unquote(settings.get(key, "")).strip() or None for key in READ_AS)
        return DataName(read_as[1], encoding, objective, *others)

    @staticmethod
    def parse_joined(text: Path | str) -> tuple[DataName, ...]:
        """Reads "snli+mnli" as two names. A path that exists may itself contain a plus."""
        text = str(text)
        whole = DataName.parse(text)
        parts = [part.strip() for part in text.split("+") if part.strip()]
        if parts == [text] or os.path.lexists(whole.name):
            return (whole,)
        return tuple(map(DataName.parse, parts)) or (whole,)

    def __str__(self) -> str:
        objective = f"={self.objective}" if self.objective else ""
        settings = [
            f"{key}={_MARKS.sub(lambda mark: quote(mark[0]), value)}"
            for key, value in zip(READ_AS, self.read_as, strict=True)
            if value
        ]
        return f"{self.name}{(settings and '?') or ''}{'&'.join(settings)}{objective}"

    @property
    def read_as(self) -> tuple[str | None, ...]:
        """The settings of a file, in the order of `READ_AS`."""
        return self.encoding, self.columns, self.rows, self.scale, self.labels, self.raters, self.sheet

    @property
    def built_in(self) -> DataSet | None:
        """The built-in set, None if it is none."""
        return DATA_SETS.get(self.name.partition(":")[0])

    @property
    def split(self) -> str:
        """The split of a built-in set, "" if the name says none."""
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
        """Whether it is queries, documents and judgements: ``beir:`` or ``nanobeir:``."""
        return self.name.startswith((BEIR, NANOBEIR))

    @property
    def judged(self) -> tuple[DataName, str]:
        """The folder, file or set of ``beir:``, and the split of a folder, "" if there is none in the name."""
        whole = replace(self, name=self.name.removeprefix(BEIR))
        folder, _, split = whole.name.rpartition(":")
        if whole.exists or not is_id(split) or not _is_folder(folder):
            return whole, ""
        return replace(whole, name=folder), split

    @property
    def is_set(self) -> bool:
        """Whether it is a built-in set or one on the Hub, and not a path."""
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
        if data_set is None or self.split not in ("", *data_set.splits):
            return PurePath(self.name).name if "/" in self.name or "\\" in self.name else self.name
        return data_set.title if self.split in ("", "test") else f"{data_set.title} {self.split}"

    @property
    def test_split(self) -> str | None:
        """The test split for the development split of a built-in set that is on every machine; else None."""
        data_set = self.built_in
        is_dev = data_set is not None and not data_set.repo and self.split in ("", "dev")
        return f"{self.name.partition(':')[0]}:test" if is_dev else None

    def absolute(self, **settings: str | None) -> DataName:
        """The name for use in another folder: a file by its whole path, with these settings unless it has its own."""
        if self.name.startswith(BEIR):
            judged, split = self.judged
            return replace(self, name=f"{BEIR}{judged.absolute().name}{split and ':'}{split}")
        if not self.path.exists():
            return self
        settings = {key: getattr(self, key) or value for key, value in settings.items()}
        return replace(self, name=str(self.path.absolute()), **settings)


def absolute_names(text: str, **settings: str | None) -> str:
    """Joined names for use in another folder; files without settings of their own have these."""
    return "+".join(str(part.absolute(**settings)) for part in DataName.parse_joined(text))


def names_file(text: str) -> bool:
    """Whether a part of joined names is a file or a folder that exists."""
    return any(part.exists for part in DataName.parse_joined(text))


def _read_endpoint(name: str) -> Endpoint:
    match = _ENDPOINT.fullmatch(name.removeprefix(ENDPOINT))
    if match is None:
        raise InputError(f"{name!r} is no endpoint; write endpoint:http://HOST:PORT/v1#MODEL, without a user or a key")
    scheme, host, port, path, model = match.groups()
    scheme = scheme.lower()
    address = f"{host.lower()}:{int(port or (443 if scheme == 'https' else 80))}"
    return Endpoint(f"{scheme}://{address}{path}", address, model)


def _is_folder(text: str) -> bool:
    try:
        return Path(text).expanduser().is_dir() and bool(text.strip())
    except (OSError, RuntimeError, ValueError):
        return False
