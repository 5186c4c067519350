"""ModelCache: loaded models by name. Loads each once however many threads ask, evicts the least recently used.

It is bounded in number and in bytes; a model that alone is larger is kept until another one is asked for.
Its encoders and cross-encoders compute small requests of several threads in the same batches.
"""

from __future__ import annotations

import gc
import math
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.store.cache import KeyedLocks, LRUCache
from training.catalogue import CROSS_ENCODERS, GLOVE, WORD_ENCODERS
from training.errors import InputError
from training.models.scorer import BASELINE, CROSS, ENCODER, LATE, SPARSE, fetched_kind, load_scorer
from training.names import BY_ROLE, ModelName, is_repo_id
from training.sources.progress import listening
from training.sources.resolve import find_run, glove_folder, has_glove, model_folder

if TYPE_CHECKING:
    from training.models.cross_encoder import CrossEncoder
    from training.models.encoder import Encoder
    from training.models.scorer import Scorer


class ModelCache:
    """Thread-safe. Torch and transformers are imported when the first model is loaded."""

    def __init__(
        self,
        home: Path,
        capacity: int = 4,
        check_name: Callable[[str], object] = lambda name: None,
        max_bytes: float = math.inf,
    ) -> None:
        """``capacity``: models kept in memory. ``check_name`` raises InputError for a name that may not be loaded."""
        self.home = home
        self._check_name = check_name
        # (kind, name) -> model, bytes
        self._models: LRUCache[tuple[str, ModelName], tuple[Any, int]] = LRUCache(max_bytes, itemgetter(1), capacity)
        self._locks: KeyedLocks[tuple[str, ModelName]] = KeyedLocks()
        self._loading = threading.Lock()  # transformers is imported, and models are built, by one thread at a time

    def canonical(self, name: ModelName | str) -> ModelName:
        """The name by which a model is kept: a run's id in place of its name.

        Raises InputError if it may not be loaded, or there is no such run.
        """
        model = ModelName.parse(name)
        self._check_name(model.name)
        if model.run_id is None:
            return model
        return replace(model, name=ModelName.of_run(find_run(model.run_id, self.home)).name)

    def is_here(self, name: ModelName | str) -> bool:
        """Whether the model needs no download: it is loaded, a run, random weights, or in the home folder."""
        model = ModelName.parse(name)
        is_loaded = any(kept.name == model.name for _, kept in self._models)
        if model.name in WORD_ENCODERS or model.name == GLOVE:
            return is_loaded or has_glove(self.home)
        base = CROSS_ENCODERS.get(model.name, model.name)
        return is_loaded or model.run_id is not None or model.is_scratch or (self.home / "models" / base).is_dir()

    def download(self, names: Iterable[ModelName | str], watch: Watch = UNWATCHED) -> None:
        """Fetch and load those of the models that are not here, with progress in megabytes.

        Raises InputError if a model cannot be found or opened.
        """
        for name in names:
            if self.is_here(name):
                continue
            watch.report(0, f"Loading {name}")

            def on_download(_: str, done: float, total: float, name: ModelName | str = name) -> None:
                watch.report(done, f"Downloading {name}, {total:,.0f} MB", total)

            with listening(on_download, watch.should_stop):
                self.scorer(name)

    def own_pooling(self, name: ModelName | str) -> str | None:
        """The pooling that a name states, else that the model was made with; None if it takes a download to know it."""
        model = ModelName.parse(name)
        try:
            return self.encoder(ModelName(model.name, pooling=model.pooling)).pooling if self.is_here(model) else None
        except InputError:
            return None

    def encoder(self, name: ModelName | str, pooling: str | None = None, role: str | None = None) -> Encoder:
        """The bi-encoder of that name; the poolings, dimensions and prompts of one model share its weights.

        ``role``: query or document, with the prompt that the model's folder has for it, unless ``name`` states one.
        """
        model = self.canonical(name)
        if model.prompt_name == BY_ROLE:
            if role is None:
                raise InputError(
                    f"a prompt for each side ({BY_ROLE}) needs two sides; name one prompt for {model.weights}"
                )
            model = replace(model, prompt_name=None)
        chosen = None if model.endpoint else pooling or model.pooling  # pages send one with any model
        encoder = self._get(ENCODER, model.weights).with_pooling(chosen)
        encoder = encoder.with_dimension(model.dimension).with_prompt(model.prompt, model.prompt_name)
        return encoder if role is None or model.states_prompt else encoder.for_role(role)

    def cross_encoder(self, name: ModelName | str) -> CrossEncoder:
        model = self.canonical(name)
        model.check_settings("cross-encoder")
        return self._get(CROSS, model)

    def cross_encoder_or_none(self, name: ModelName | str | None) -> CrossEncoder | None:
        """The cross-encoder of that name; None for no name and for "none"."""
        return self.cross_encoder(name) if name and name != "none" else None

    def scorer(self, name: ModelName | str, pooling: str | None = None) -> Scorer:
        """Any model that can be evaluated, of whatever kind."""
        model = self.canonical(name).with_pooling(pooling)
        kind = fetched_kind(model, self.home)
        if kind == ENCODER:
            return self.encoder(model)
        if kind == CROSS:
            return self.cross_encoder(model)
        return self._get(kind, model)

    def has(self, kind: str, name: ModelName | str) -> bool:
        """Whether the model is loaded, so that a request does not wait for it."""
        return (kind, ModelName.parse(name).weights) in self._models

    def forget(self, model: ModelName) -> None:
        """Drop a model whose files have changed or are gone."""
        self._models.remove(lambda key: key[1].name == model.name)

    def _get(self, kind: str, name: ModelName) -> Any:
        key = kind, name
        with self._locks[key]:  # other threads that ask for the same model wait here while it is loaded
            if (kept := self._models.get(key)) is not None:
                return kept[0]
            self._fetch(kind, name)
            with self._loading:
                model = LOADERS[kind](name, self.home)
                from sbert_app.services.models.memory import model_bytes  # imports torch, as the model has
            has_evicted = self._models.put(key, (model, model_bytes(model)))
        if has_evicted:
            # The modules of a model refer to each other.
            gc.collect()
        return model

    def _fetch(self, kind: str, model: ModelName) -> None:
        """Download a model's files, outside of the lock of all loading: a slow server holds up its model alone."""
        name = model.name
        base = CROSS_ENCODERS.get(name, name)
        if self.is_here(model):
            return
        if name in WORD_ENCODERS or name == GLOVE:
            glove_folder(self.home)
        elif kind != BASELINE and is_repo_id(base) and not Path(base).is_dir():
            model_folder(base, self.home)


def _load_encoder(name: ModelName, home: Path) -> Encoder:
    from sbert_app.services.models.batching import BatchingRunner
    from training.models.encoder import Encoder

    encoder = Encoder.load(name, home=home)
    return encoder if encoder.sent_to else encoder.with_runner(BatchingRunner(encoder.inference))


def _load_cross_encoder(name: ModelName, home: Path) -> CrossEncoder:
    from sbert_app.services.models.batching import BatchingRunner
    from training.models.cross_encoder import CrossEncoder

    loaded = CrossEncoder.load(name, home=home)
    return replace(loaded, inference=BatchingRunner(loaded.inference))


# By kind; requests to models with weights of their own share batches.
LOADERS: dict[str, Callable[[ModelName, Path], Any]] = {
    ENCODER: _load_encoder,
    CROSS: _load_cross_encoder,
    **dict.fromkeys((BASELINE, LATE, SPARSE), lambda name, home: load_scorer(name, home=home)),
}
