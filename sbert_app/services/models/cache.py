"""The loaded models by name: each is loaded once for all threads, and the least recently used ones are evicted.

The cache is bounded in number and in bytes. A model that is larger than the limit stays until the
next one is loaded. Encoders and cross-encoders compute small requests of several threads in the
same batches.
"""

from __future__ import annotations

import gc
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from sbert_app.services.background.watch import POLL_SECONDS, UNWATCHED, Watch
from sbert_app.services.store.cache import LRUCache
from training.catalogue import (
    CROSS_ENCODERS,
    DOWNLOADS,
    GLOVE,
    SHIPPED,
    WITH_THE_APP,
    WORD_ENCODERS,
)
from training.data.load import megabytes_to_fetch
from training.errors import InputError
from training.models.folder import ModelFolder
from training.models.model import Model, PairModel, VectorModel, find_opener, required
from training.names import BY_ROLE, DataName, ModelName, is_repo_id
from training.progress import listening
from training.sources import hub
from training.sources.resolve import find_run, glove_folder, has_glove, model_folder

M = TypeVar("M", bound=Model)

# Only objects of these packages are searched for arrays, as everything else in a model is small.
OWN_PACKAGES = ("training", "sbert_app")

UNKNOWN = "of unknown size"


class ModelCache:
    """Loads models and keeps them. Thread-safe. Torch and transformers are imported with the first model."""

    def __init__(
        self,
        home: Path,
        capacity: int = 4,
        check_name: Callable[[str], object] = lambda name: None,
        max_bytes: float = math.inf,
    ) -> None:
        """``capacity`` is a number of models. ``check_name`` raises InputError for a name that may not be loaded."""
        self.home = home
        self._check_name = check_name
        # By name: the model and its bytes. The names here and in the dictionaries below are without
        # settings (`ModelName.weights`).
        self._models: LRUCache[ModelName, tuple[Model, int]] = LRUCache(
            max_bytes, itemgetter(1), capacity
        )
        # Held while the model of that name is downloaded and loaded.
        self._locks: dict[ModelName, threading.Lock] = {}
        # One thread at a time imports transformers and builds a model.
        self._loading = threading.Lock()
        # By `time.monotonic`. Names of models that were dropped stay.
        self._last_use: dict[ModelName, float] = {}
        # The megabytes of each download that have arrived, and in total.
        self._downloads: dict[ModelName, tuple[float, float]] = {}

    def get(
        self,
        name: ModelName | str,
        type_: type[M],
        pooling: str | None = None,
        role: str | None = None,
    ) -> M:
        """The model of that name. Variants with other poolings, dimensions or prompts share its weights.

        Args:
            name: the name of any model, with its settings.
            type_: the required type: `Model` for any, `VectorModel`, `Encoder`, `PairModel`, …
            pooling: replaces the pooling in the name. Endpoints ignore it.
            role: query or document, which selects a prompt of the model's folder, unless ``name``
                states a prompt.

        Raises:
            InputError: the model may not be loaded, cannot be opened, or has another type.
        """
        settings = self.canonical(name)
        if settings.prompt_name == BY_ROLE:
            if role is None:
                raise InputError(
                    f"a prompt for each side ({BY_ROLE}) needs two sides; name one prompt for {settings.weights}"
                )
            # Without a prompt in its name, the model gets the prompt of the role below.
            settings = replace(settings, prompt_name=None)
        model = required(self._open(settings.weights), type_)
        # Pages send a pooling with any model; an endpoint pools for itself.
        if not model.sent_to:
            settings = settings.with_pooling(pooling)
        model = model.with_settings(settings)
        if role is None or settings.states_prompt or not isinstance(model, VectorModel):
            return model
        return model.for_role(role)

    def cross_encoder_or_none(self, name: str | None) -> PairModel | None:
        """The cross-encoder of that name; None for no name and for "none"."""
        if not name or name == "none":
            return None
        return self.get(name, PairModel)

    def canonical(self, name: ModelName | str) -> ModelName:
        """The name with the id of a run in place of its title.

        Raises InputError if the model may not be loaded, or the run does not exist.
        """
        model = ModelName.parse(name)
        self._check_name(model.name)
        if model.run_id is None:
            return model
        return replace(model, name=ModelName.of_run(find_run(model.run_id, self.home)).name)

    def is_here(self, name: ModelName | str) -> bool:
        """Whether the model needs no download: it ships, is loaded, a run, random weights, or in the home folder."""
        model = ModelName.parse(name)
        if model.name in SHIPPED or any(loaded.name == model.name for loaded in self._models):
            return True
        if model.name in WORD_ENCODERS or model.name == GLOVE:
            return has_glove(self.home)
        if model.run_id is not None or model.is_scratch:
            return True
        # A built-in cross-encoder is an adapter that ships; its base may have to be downloaded.
        base = CROSS_ENCODERS.get(model.name, model.name)
        return (self.home / "models" / base).is_dir()

    def missing(self, names: Iterable[ModelName | str], data: str = "") -> list[str]:
        """The models, and the data sets in ``data``, that have to be downloaded first, with their sizes."""
        sizes: dict[str, str] = {}
        # An error of a name is raised when the model or the data set is opened.
        for name in names:
            with suppress(InputError):
                sizes[str(name)] = self._download_size(self.canonical(name))
        for part in DataName.parse_joined(data):
            with suppress(InputError):
                megabytes = megabytes_to_fetch(part, self.home)
                if megabytes is None:
                    sizes[str(part)] = UNKNOWN
                elif megabytes:
                    sizes[str(part)] = f"at most {math.ceil(megabytes):,} MB"
        return [f"{name} ({size})" for name, size in sizes.items() if size]

    def _download_size(self, model: ModelName) -> str:
        """The size of the files that opening a model would download, as the Hub lists them.

        "" if there are none, or if the model comes with the app.
        """
        # A name that cannot be a repository is a folder or an endpoint.
        if self.is_here(model) or model.name in WITH_THE_APP or not is_repo_id(model.name):
            return ""
        with suppress(InputError):
            # Raises InputError if the folder (of an adapter, the folder of its base) is not on this
            # machine.
            model_folder(CROSS_ENCODERS.get(model.name, model.name), self.home, fetch=False)
            # The folder was found without a download, such as in the Hub's cache.
            return ""
        if model.name in DOWNLOADS:
            return DOWNLOADS[model.name]
        try:
            repo = hub.Repo(model.name, "model")
            _, megabytes = hub.to_download(repo, partial(hub.pick_model, model.name))
        except FileNotFoundError:
            # The error is raised when the model is opened.
            return ""
        except OSError:
            return UNKNOWN
        return f"{megabytes:,.0f} MB"

    def download(self, names: Iterable[ModelName | str], watch: Watch = UNWATCHED) -> None:
        """Fetches and loads the missing models, with progress in megabytes.

        Raises InputError if one cannot be opened.
        """
        for name in names:
            if self.is_here(name):
                continue
            key = self.canonical(name).weights
            # Another thread may be downloading the model, as the app does when it starts in an
            # empty home folder. The progress of that download is reported here, too.
            lock = self._locks.setdefault(key, threading.Lock())
            while lock.locked():
                watch.check()
                self._report_download(key, watch)
                time.sleep(POLL_SECONDS)

            def on_download(_: str, done: float, total: float, key: ModelName = key) -> None:
                self._downloads[key] = (done, total)
                self._report_download(key, watch)

            self._report_download(key, watch)
            with listening(on_download, watch.should_stop):
                # Fetches and loads the model. ``key`` lacks its settings, which need no other files.
                self.get(key, Model)

    def _report_download(self, key: ModelName, watch: Watch) -> None:
        """Reports the megabytes of a download, or, when none is under way, that the model is loaded."""
        done, total = self._downloads.get(key, (0.0, 0.0))
        if done < total:
            watch.report(done, f"Downloading {key}, {total:,.0f} MB", total)
        else:
            watch.report(0, f"Loading {key}")

    def own_pooling(self, name: ModelName | str) -> str | None:
        """The pooling in a name, or else the model's own.

        None if the model has to be downloaded first, or cannot be opened as a bi-encoder.
        """
        model = ModelName.parse(name)
        if not self.is_here(model):
            return None
        try:
            # The other settings are left out: they do not change the pooling, and `get` refuses
            # prompts by role.
            return self.get(model.weights.with_pooling(model.pooling), VectorModel).pooling
        except InputError:
            return None

    def has(self, name: ModelName | str) -> bool:
        """Whether the model is loaded, so that a request for it does not wait."""
        return ModelName.parse(name).weights in self._models

    def forget(self, model: ModelName) -> None:
        """Drops a model whose files were changed or deleted."""
        self._models.remove(lambda key: key.name == model.name)

    def drop_idle(self, seconds: float) -> None:
        """Drops the models that were not used for this many seconds."""
        oldest = time.monotonic() - seconds
        idle = {name for name, used in self._last_use.copy().items() if used < oldest}
        before = len(self._models)
        self._models.remove(lambda name: name in idle)
        if len(self._models) < before:
            # The modules of a model refer to each other in cycles.
            gc.collect()

    def _open(self, name: ModelName) -> Model:
        """The model of a name without settings. It is loaded unless the cache has it."""
        self._last_use[name] = time.monotonic()
        if name.endpoint and self._models.get(name) is None:
            # Opened without a lock, so that a slow server delays only requests to it.
            opener, _ = find_opener(name, self.home)
            model = opener.model_class.load(name)
            self._models.put(name, (model, model_bytes(model)))
            return model
        # Other threads that request the same model wait here while it is loaded.
        with self._locks.setdefault(name, threading.Lock()):
            entry = self._models.get(name)
            if entry is not None:
                return entry[0]
            # These calls download the folder, the base of an adapter and word vectors before the
            # common lock is taken, so that a slow server delays only its own model.
            opener, folder = find_opener(name, self.home)
            if folder is not None and folder.base:
                ModelFolder.of(folder.base, self.home)
            elif name.name in WORD_ENCODERS or name.name == GLOVE:
                glove_folder(self.home)
            with self._loading:
                model = opener.model_class.load(name, folder=folder, home=self.home)
                model = _with_batches(model)
            has_evicted = self._models.put(name, (model, model_bytes(model)))
        if has_evicted:
            # The modules of a model refer to each other in cycles.
            gc.collect()
        return model


def _with_batches(model: Model) -> Model:
    """The model. Small requests to a local transformer share batches."""
    # These modules import torch, which takes seconds.
    from sbert_app.services.models.batching import BatchingRunner
    from training.models.cross_encoder import CrossEncoder
    from training.models.encoder import Encoder

    if isinstance(model, Encoder | CrossEncoder):
        return model.with_runner(BatchingRunner(model.inference))  # type: ignore[arg-type]
    return model


def model_bytes(model: Model) -> int:
    """The bytes of all arrays and tensors of a model. Shared memory counts once."""
    bytes_of_address = dict(_storages(model, set()))
    return sum(bytes_of_address.values())


def _storages(value: Any, visited: set[int]) -> Iterator[tuple[int, int]]:
    """Yields the address and the bytes of each array that ``value`` refers to, except ``visited`` objects."""
    import torch

    if id(value) in visited:
        return
    visited.add(id(value))
    if isinstance(value, torch.Tensor):
        # A tensor that is packed for oneDNN has no storage.
        if value.is_mkldnn:
            yield id(value), value.numel() * value.element_size()
        else:
            storage = value.untyped_storage()
            yield storage.data_ptr(), storage.nbytes()
    elif isinstance(value, torch.nn.Module):
        for tensor in (*value.parameters(), *value.buffers()):
            yield from _storages(tensor, visited)
    elif isinstance(value, np.ndarray):
        yield id(value), value.nbytes
    else:
        for part in _parts(value):
            yield from _storages(part, visited)


def _parts(value: Any) -> list[Any]:
    """The values of a container, or of the attributes of an object of this project."""
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, list | tuple):
        return list(value)
    if type(value).__module__.partition(".")[0] in OWN_PACKAGES:
        return list(getattr(value, "__dict__", {}).values())
    return []
