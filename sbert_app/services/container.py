"""What the pages are given: the settings and the services, made once when the app starts."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field

from sbert_app.process import freeze_startup_objects
from sbert_app.services.access import AccessPolicy
from sbert_app.services.corpus.embedding_cache import EmbeddingCache
from sbert_app.services.jobs.queue import Jobs
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.runs.store import RunStore
from sbert_app.services.tasks import TaskRunner
from sbert_app.settings import Settings
from training.errors import InputError
from training.registry import DEFAULT_CROSS_ENCODER, DEFAULT_MODEL

log = logging.getLogger("sbert_lab.services")


@dataclass(frozen=True)
class Services:
    """One of each service."""

    settings: Settings
    access: AccessPolicy  # what visitors may name
    models: ModelCache
    jobs: Jobs  # and its store: the runs
    embeddings: EmbeddingCache  # corpora and their embeddings by any model
    tasks: TaskRunner = field(default_factory=TaskRunner)  # cancellable work of the browser sessions
    _calibrating: set[tuple[str, str]] = field(default_factory=set)

    @classmethod
    def start(cls, settings: Settings) -> Services:
        """Make the services. Nothing heavy happens here: models load when they are first asked for."""
        settings.home.mkdir(parents=True, exist_ok=True)
        access = AccessPolicy([settings.temp_folder, settings.home / "data" / "uploads", *settings.allow_paths])
        models = ModelCache(settings.home, settings.models_kept, access.check_model)
        jobs, embeddings = Jobs(RunStore(settings.home)), EmbeddingCache(models, settings.home)
        return cls(settings, access, models, jobs, embeddings)

    def warm(self) -> None:
        """Load the default models and answer once, so that the first person does not wait. For a thread."""
        self.jobs.reconcile()  # runs that were queued when the app last ended
        try:
            self.models.encoder(DEFAULT_MODEL).token_vectors(["Ready?"])
            self.models.cross_encoder(DEFAULT_CROSS_ENCODER).predict([("Ready?", "Ready.")])
        except InputError as error:
            log.warning("the default model could not be loaded: %s", error)
        freeze_startup_objects()
        if self.settings.warm_maps:  # last, as half a minute of compiling must not delay an answer
            from sbert_app.services.maps import umap_engine

            umap_engine.warm_up(self.settings.home)

    def calibrate_later(self, model: str, pooling: str) -> None:
        """Measure, in the background, what a cosine of this model means; the next answer will know."""
        key = (model, pooling)
        if key in self._calibrating:
            return
        self._calibrating.add(key)
        threading.Thread(target=self._calibrate, args=key, name=f"calibrate {model}", daemon=True).start()

    def _calibrate(self, model: str, pooling: str) -> None:
        from sbert_app.services.compare.calibration import calibrate

        try:
            calibrate(self.models.encoder(model, pooling), self.settings.home)
        except InputError as error:
            log.warning("%s could not be calibrated: %s", model, error)
        finally:
            self._calibrating.discard((model, pooling))
