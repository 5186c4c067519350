"""ModelCache: loaded models by name. Loads each once however many threads ask, evicts the least recently used.

It is bounded in number and in bytes; a model that alone is larger is kept until another one is asked for.
Its encoders and cross-encoders compute small requests of several threads in the same batches.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbert_app.process import release_memory
from sbert_app.services.tasks import ReportProgress, ShouldStop
from training.errors import InputError
from training.models.baselines import is_baseline
from training.models.reference import BY_ROLE, bare_name, computed_name, parse_reference
from training.models.scorer import CROSS, ENCODER, check_no_pooling, kind_of, load_scorer
from training.registry import CROSS_ENCODERS, GLOVE, WORD_ENCODERS
from training.sources.hub import is_repo_id
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
        """Args:
        home: the home folder.
        capacity: models kept in memory.
        max_bytes: the size of their weights together.
        check_name: called with each name that is asked for; raises InputError if it may not be loaded.
        """
        self.home = home
        self._check_name = check_name
        self._capacity, self._max_bytes = capacity, max_bytes
        self._sizes: dict[tuple[str, str], int] = {}
        self._models: OrderedDict[tuple[str, str], Any] = OrderedDict()  # (kind, name) -> model, oldest use first
        self._locks: dict[tuple[str, str], threading.Lock] = {}
        self._lock = threading.Lock()
        self._loading = threading.Lock()  # transformers is imported, and models are built, by one thread at a time

    def canonical(self, name: str) -> str:
        """The name by which a model is kept: a run's id in place of its name.

        Raises:
            InputError: it may not be loaded, or there is no such run.
        """
        self._check_name(name)
        prefix, is_run, run = name.partition("run:")
        return f"run:{find_run(run, self.home)}" if is_run and not prefix else name

    def is_here(self, name: str) -> bool:
        """Whether the model needs no download: it is loaded, a run, random weights, or in the home folder."""
        name = bare_name(name)
        is_loaded = any(bare_name(key) == name for _, key in self._models)
        if name in WORD_ENCODERS or name == GLOVE:
            return is_loaded or has_glove(self.home)
        base = CROSS_ENCODERS.get(name, name)
        return is_loaded or name.startswith(("run:", "scratch:")) or (self.home / "models" / base).is_dir()

    def download(
        self, names: Iterable[str], report_progress: ReportProgress, should_stop: ShouldStop = lambda: False
    ) -> None:
        """Fetch and load those of the models that are not here, with progress in megabytes.

        Raises:
            InputError: a model cannot be found or opened.
            Stopped: ``should_stop`` returned True.
        """
        for name in names:
            if self.is_here(name):
                continue
            report_progress(0, f"Loading {name}")

            def on_download(_: str, done: float, total: float, name: str = name) -> None:
                report_progress(done, f"Downloading {name}, {total:,.0f} MB", total)

            with listening(on_download, should_stop):
                self.scorer(name)

    def own_pooling(self, name: str) -> str | None:
        """The pooling that a model was made with; None if that is not known without a download."""
        try:
            return self.encoder(bare_name(name)).pooling if self.is_here(name) else None
        except InputError:
            return None

    def encoder(self, name: str, pooling: str | None = None, role: str | None = None) -> Encoder:
        """The bi-encoder of that name; the poolings, dimensions and prompts of one model share its weights.

        ``role``: query or document, with the prompt that the model's folder has for it, unless ``name`` states one.
        """
        reference = parse_reference(name)
        reference = reference._replace(name=self.canonical(reference.name))
        name = computed_name(str(reference))

        def load() -> Encoder:
            from sbert_app.services.models.batching import BatchingRunner
            from training.models.encoder import Encoder

            encoder = Encoder.load(name, home=self.home)
            return encoder.with_runner(BatchingRunner(encoder.inference))

        if reference.prompt_name == BY_ROLE:
            if role is None:
                raise InputError(f"a prompt for each side ({BY_ROLE}) needs two sides; name one prompt for {name}")
            reference = reference._replace(prompt_name=None)
        encoder = self._get((ENCODER, name), load).with_pooling(pooling or None)
        encoder = encoder.with_dimension(reference.dimension).with_prompt(reference.prompt, reference.prompt_name)
        states_prompt = reference.prompt is not None or reference.prompt_name is not None
        return encoder if role is None or states_prompt else encoder.for_role(role)

    def cross_encoder(self, name: str) -> CrossEncoder:
        """The cross-encoder of that name."""
        reference = parse_reference(name)
        name = str(reference._replace(name=self.canonical(reference.name)))

        def load() -> CrossEncoder:
            from sbert_app.services.models.batching import BatchingRunner
            from training.models.cross_encoder import CrossEncoder

            model = CrossEncoder.load(name, home=self.home)
            return replace(model, inference=BatchingRunner(model.inference))

        return self._get((CROSS, name), load)

    def cross_encoder_or_none(self, name: str | None) -> CrossEncoder | None:
        """The cross-encoder of that name; None for no name and for "none"."""
        return self.cross_encoder(name) if name and name != "none" else None

    def scorer(self, name: str, pooling: str | None = None) -> Scorer:
        """Any model that can be evaluated: a bi-encoder, a cross-encoder, or a baseline without a transformer."""
        reference = parse_reference(name)
        name = str(reference._replace(name=self.canonical(reference.name)))
        kind = kind_of(name)
        if kind == ENCODER:
            return self.encoder(name, pooling)
        if kind == CROSS:
            check_no_pooling(name, pooling)
            return self.cross_encoder(name)
        return self._get((f"{kind} {pooling or ''}", name), lambda: load_scorer(name, pooling, home=self.home))

    def has(self, kind: str, name: str) -> bool:
        """Whether the model is loaded, so that a request does not wait for it."""
        return (kind, computed_name(name)) in self._models

    def forget(self, name: str) -> None:
        """Drop a model whose files have changed or are gone."""
        with self._lock:
            for key in [key for key in self._models if bare_name(key[1]) == bare_name(name)]:
                del self._models[key]

    def _get(self, key: tuple[str, str], load: Callable[[], Any]) -> Any:
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:  # other threads that ask for the same model wait here while it is loaded
            with self._lock:
                if key in self._models:
                    self._models.move_to_end(key)
                    return self._models[key]
            self._fetch(key[1])
            with self._loading:
                model = load()
                from sbert_app.services.models.memory import model_bytes  # imports torch, as the model has
            with self._lock:
                self._models[key] = model
                self._sizes[key] = model_bytes(model)
                evicted = self._evict()
        if evicted:
            release_memory()
        return model

    def _fetch(self, name: str) -> None:
        """Download a model's files, outside of the lock of all loading: a slow server holds up its model alone."""
        name = bare_name(name)
        base = CROSS_ENCODERS.get(name, name)
        if self.is_here(name):
            return
        if name in WORD_ENCODERS or name == GLOVE:
            glove_folder(self.home)
        elif is_repo_id(base) and not is_baseline(base) and not Path(base).is_dir():
            model_folder(base, self.home)

    def _evict(self) -> bool:
        """Drop the least recently used models, never the newest, until both limits hold. Whether one was dropped."""
        kept = len(self._models)
        while len(self._models) > 1 and (
            len(self._models) > self._capacity or sum(self._sizes[key] for key in self._models) > self._max_bytes
        ):
            oldest, _ = self._models.popitem(last=False)
            del self._sizes[oldest]
        return len(self._models) < kept
