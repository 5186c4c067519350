"""The loaded models by name: each is loaded once for all threads, and the least recently used are evicted.

The cache is bounded in number and in bytes; a larger model stays until the next one is loaded. Encoders and
cross-encoders compute small requests of several threads in the same batches.
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
from training.catalogue import CROSS_ENCODERS, DOWNLOADS, GLOVE, SHIPPED, WITH_THE_APP, WORD_ENCODERS
from training.data.load import megabytes_to_fetch
from training.errors import InputError
from training.models.folder import ModelFolder
from training.models.model import Model, PairModel, VectorModel, find_opener, required
from training.names import BY_ROLE, DataName, ModelName, is_repo_id
from training.progress import listening
from training.sources import hub
from training.sources.resolve import find_run, glove_folder, has_glove, model_folder

M = TypeVar("M", bound=Model)

# The packages whose objects are looked into for arrays; the rest of a model is small.
OWN_PACKAGES = ("training", "sbert_app")

UNKNOWN = "of unknown size"


class ModelCache:
    """Thread-safe. Torch and transformers are imported when the first model is loaded."""

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
        # name -> model, bytes
        self._models: LRUCache[ModelName, tuple[Model, int]] = LRUCache(max_bytes, itemgetter(1), capacity)
        self._locks: dict[ModelName, threading.Lock] = {}
        # transformers is imported, and models are built, by one thread at a time.
        self._loading = threading.Lock()
        self._last_use: dict[ModelName, float] = {}
        # The megabytes of each download that are here, and in all.
        self._downloads: dict[ModelName, tuple[float, float]] = {}

    def get(self, name: ModelName | str, type_: type[M], pooling: str | None = None, role: str | None = None) -> M:
        """The model of that name; the poolings, dimensions and prompts of one model share its weights.

        Args:
            name: of any model, with its settings.
            type_: the type that it has to have: `Model` for any, `VectorModel`, `Encoder`, `PairModel`, …
            pooling: in place of the one in the name; an endpoint pools for itself.
            role: query or document, with the prompt that the model's folder has for it, unless ``name`` states one.

        Raises:
            InputError: the model may not be loaded, cannot be opened, or is of another type.
        """
        settings = self.canonical(name)
        if settings.prompt_name == BY_ROLE:
            if role is None:
                what = f"a prompt for each side ({BY_ROLE}) needs two sides"
                raise InputError(f"{what}; name one prompt for {settings.weights}")
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
        return None if not name or name == "none" else self.get(name, PairModel)

    def canonical(self, name: ModelName | str) -> ModelName:
        """The key of a model, with the id of a run. InputError if it may not be loaded, or there is no such run."""
        model = ModelName.parse(name)
        self._check_name(model.name)
        if model.run_id is None:
            return model
        return replace(model, name=ModelName.of_run(find_run(model.run_id, self.home)).name)

    def is_here(self, name: ModelName | str) -> bool:
        """Whether the model needs no download: it is loaded, a run, random weights, or in the home folder."""
        model = ModelName.parse(name)
        is_loaded = model.name in SHIPPED or any(loaded.name == model.name for loaded in self._models)
        if model.name in WORD_ENCODERS or model.name == GLOVE:
            return is_loaded or has_glove(self.home)
        base = CROSS_ENCODERS.get(model.name, model.name)
        return is_loaded or model.run_id is not None or model.is_scratch or (self.home / "models" / base).is_dir()

    def missing(self, names: Iterable[ModelName | str], data: str = "") -> list[str]:
        """The models, and the sets that ``data`` joins, that can be used after a download alone, with their sizes."""
        sizes: dict[str, str] = {}
        for name in names:
            with suppress(InputError):
                sizes[str(name)] = self._download_size(self.canonical(name))
        for part in DataName.parse_joined(data):
            with suppress(InputError):
                megabytes = megabytes_to_fetch(part, self.home)
                size = UNKNOWN if megabytes is None else f"at most {math.ceil(megabytes):,} MB"
                sizes[str(part)] = "" if megabytes == 0 else size
        return [f"{name} ({size})" for name, size in sizes.items() if size]

    def _download_size(self, model: ModelName) -> str:
        """The size of what opening a model would download, by the Hub's listing; "" if nothing."""
        if self.is_here(model) or model.name in WITH_THE_APP or not is_repo_id(model.name):
            return ""
        with suppress(InputError):
            model_folder(CROSS_ENCODERS.get(model.name, model.name), self.home, fetch=False)
            return ""
        if model.name in DOWNLOADS:
            return DOWNLOADS[model.name]
        try:
            megabytes = hub.to_download(hub.Repo(model.name, "model"), partial(hub.pick_model, model.name))[1]
        except FileNotFoundError:
            # Opening the model will say so.
            return ""
        except OSError:
            return UNKNOWN
        return f"{megabytes:,.0f} MB"

    def download(self, names: Iterable[ModelName | str], watch: Watch = UNWATCHED) -> None:
        """Fetch and load the missing models, with progress in megabytes. InputError if one cannot be opened."""
        for name in names:
            if self.is_here(name):
                continue
            key = self.canonical(name).weights
            # Another thread may download it, as the app does when it starts in an empty home folder.
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
                self.get(name, Model)

    def _report_download(self, key: ModelName, watch: Watch) -> None:
        done, total = self._downloads.get(key, (0.0, 0.0))
        if done < total:
            watch.report(done, f"Downloading {key}, {total:,.0f} MB", total)
        else:
            watch.report(0, f"Loading {key}")

    def own_pooling(self, name: ModelName | str) -> str | None:
        """The pooling in a name, or else that of the model; None if only a download would tell it."""
        model = ModelName.parse(name)
        try:
            name = ModelName(model.name, pooling=model.pooling)
            return self.get(name, VectorModel).pooling if self.is_here(model) else None
        except InputError:
            return None

    def has(self, name: ModelName | str) -> bool:
        """Whether the model is loaded, so that a request does not wait for it."""
        return ModelName.parse(name).weights in self._models

    def forget(self, model: ModelName) -> None:
        """Drop a model whose files have changed or are gone."""
        self._models.remove(lambda key: key.name == model.name)

    def drop_idle(self, seconds: float) -> None:
        """Drop the models that nobody has asked for since so many seconds."""
        is_idle = {name for name, at in self._last_use.copy().items() if time.monotonic() - at > seconds}
        before = len(self._models)
        self._models.remove(lambda name: name in is_idle)
        if len(self._models) < before:
            # The modules of a model refer to each other.
            gc.collect()

    def _open(self, name: ModelName) -> Model:
        self._last_use[name] = time.monotonic()
        if name.endpoint and self._models.get(name) is None:
            # A slow server holds up nobody but those who ask for it.
            self._models.put(name, (model := find_opener(name, self.home)[0].open(name), model_bytes(model)))
            return model
        # Other threads that ask for the same model wait here while it is loaded.
        with self._locks.setdefault(name, threading.Lock()):
            entry = self._models.get(name)
            if entry is not None:
                return entry[0]
            # Files are downloaded outside of the lock of all loading: a slow server holds up its model alone.
            opener, folder = find_opener(name, self.home)
            if folder is not None and folder.base:
                ModelFolder.of(folder.base, self.home)
            elif name.name in WORD_ENCODERS or name.name == GLOVE:
                glove_folder(self.home)
            with self._loading:
                model = _with_batches(opener.open(name, folder=folder, home=self.home))
            has_evicted = self._models.put(name, (model, model_bytes(model)))
        if has_evicted:
            # The modules of a model refer to each other.
            gc.collect()
        return model


def _with_batches(model: Model) -> Model:
    """The model, whose requests share batches if its weights are on this machine."""
    from sbert_app.services.models.batching import BatchingRunner
    from training.models.cross_encoder import CrossEncoder
    from training.models.encoder import Encoder

    if isinstance(model, Encoder | CrossEncoder):
        return model.with_runner(BatchingRunner(model.inference))  # type: ignore[arg-type]
    return model


def model_bytes(model: Model) -> int:
    """The bytes of all arrays and tensors of a model; those that it shares count once."""
    return sum(dict(_storages(model, set())).values())


def _storages(value: Any, visited: set[int]) -> Iterator[tuple[int, int]]:
    """Yields the address and the bytes of each array below ``value``, without ``visited`` objects."""
    import torch

    if id(value) in visited:
        return
    visited.add(id(value))
    if isinstance(value, torch.Tensor):
        # Packed for oneDNN, it has no storage of its own.
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
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, list | tuple):
        return list(value)
    if type(value).__module__.partition(".")[0] in OWN_PACKAGES:
        slots = [getattr(value, name, None) for name in getattr(type(value), "__slots__", ())]
        return [*getattr(value, "__dict__", {}).values(), *slots]
    return []
