"""Services: the settings and one instance of each service, created when the app starts and passed to the pages."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from pathlib import Path

from sbert_app.formats import format_bytes
from sbert_app.process import regularly
from sbert_app.services.access import AccessPolicy
from sbert_app.services.background.tasks import TaskRunner
from sbert_app.services.corpus.corpus import CorpusLimits
from sbert_app.services.corpus.open_corpora import EmbeddingCache, KeptCorpora, SharedSentences
from sbert_app.services.files.jobs import ScoreJobs
from sbert_app.services.jobs.queue import RunQueue
from sbert_app.services.maps.projection import compile_umap
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.runs.store import RunStore
from sbert_app.services.store.temp_folder import TempFolder, folder_size
from sbert_app.settings import Settings
from training.catalogue import DEFAULT_CROSS_ENCODER, DEFAULT_MODEL
from training.errors import InputError
from training.models.model import Model, VectorModel
from training.names import ModelName
from training.sources.home import make_home

log = logging.getLogger("sbert_lab.services")

CLEANED_SECONDS = 3600.0  # between two looks at what is older than a day


@dataclass(frozen=True)
class Services:
    settings: Settings
    access: AccessPolicy  # what visitors may name
    models: ModelCache
    jobs: RunQueue  # the queue of runs; `RunQueue.store` has the runs
    embeddings: EmbeddingCache  # corpora and their embeddings by any model
    corpora: KeptCorpora  # those that visitors have opened
    scoring: ScoreJobs  # files that are scored, and were
    shared_sentences: SharedSentences  # sentences that one page hands to another
    temp: TempFolder  # of uploads and results
    tasks: TaskRunner = field(default_factory=TaskRunner)  # cancellable work of the browser sessions
    _calibrating: dict[str, bool] = field(default_factory=dict)  # model -> whether it is at work; False: it failed

    @classmethod
    def start(cls, settings: Settings) -> Services:
        """Create the services. Models are loaded at their first use."""
        make_home(settings.home)
        folders = [settings.temp_folder, settings.home / "data" / "uploads", *settings.allow_paths]
        access = AccessPolicy(folders, settings.allow_endpoints, settings.public)
        models = ModelCache(settings.home, settings.models_kept, access.check_model, settings.models_mb << 20)
        limits = CorpusLimits(
            settings.corpus_sentences, settings.corpus_in_memory, settings.map_points, settings.cluster_sentences
        )
        jobs = RunQueue(RunStore(settings.home), ray=settings.ray)
        embeddings = EmbeddingCache(models, settings.home, limits=limits)
        temp = TempFolder(settings.temp_folder, settings.temp_limit_mb << 20)
        scoring, shared = ScoreJobs(models, temp.path, temp.check_room), SharedSentences(temp.path / "handover")
        corpora = KeptCorpora(temp, settings.corpus_sentences)
        return cls(settings, access, models, jobs, embeddings, corpora, scoring, shared, temp)

    def warm(self) -> None:
        """Load the default models and run them once, so that the first request is fast, and compile umap-learn.

        Call it in a thread.
        """
        self.temp.clean()
        regularly(CLEANED_SECONDS, self.temp.clean)
        self.jobs.reconcile()  # runs that were queued when the app last ended
        self.jobs.watch()
        try:
            for name in (DEFAULT_MODEL, DEFAULT_CROSS_ENCODER):
                self.models.get(name, Model).score([("Ready?", "Ready.")])
        except InputError as error:
            log.warning("the default model could not be loaded: %s", error)
        compile_umap(self.settings.home)

    def close(self) -> None:
        """Stop what is computed in the background, so that nothing stays half-written."""
        self.scoring.close()
        self.tasks.close()

    def check_kept_room(self, file: Path) -> None:
        """InputError if a copy of this file does not fit beside the uploads that are kept for runs."""
        kept, most = self.settings.home / "data" / "uploads", self.settings.temp_limit_mb << 20
        if file.stat().st_size + folder_size(kept) > most:
            raise InputError(
                f"the uploads that are kept for runs take {format_bytes(most)}, as much as they may; ask whoever runs "
                "this app to delete some"
            )

    def calibrate_later(self, model: str, pooling: str) -> None:
        """Calibrate the cosine of this model in a background thread: this pooling first, then the others.

        `is_calibrating` says until when; a model that cannot be calibrated is not tried again. Nothing is sent to
        an endpoint that nobody has asked for.
        """
        if model in self._calibrating or ModelName.parse(model).endpoint:
            return
        self._calibrating[model] = True
        threading.Thread(target=self._calibrate, args=(model, pooling), name=f"calibrate {model}", daemon=True).start()

    def is_calibrating(self, model: str) -> bool:
        """Whether curves of this model are being fitted now."""
        return self._calibrating.get(model, False)

    def _calibrate(self, model: str, pooling: str) -> None:
        from sbert_app.services.compare.calibration import stored_curve

        try:
            encoder = self.models.get(model, VectorModel)
            for each in filter(encoder.allows_pooling, dict.fromkeys((pooling, "mean", "max", "cls"))):
                stored_curve(encoder.with_pooling(each), self.settings.home)
        except InputError as error:
            log.warning("%s could not be calibrated: %s", model, error)
            self._calibrating[model] = False
        else:
            del self._calibrating[model]
