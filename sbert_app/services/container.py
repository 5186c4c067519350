"""The settings and one instance of each service, created when the app starts and passed to the pages."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from sbert_app.formats import format_bytes
from sbert_app.process import regularly
from sbert_app.services.access import AccessPolicy
from sbert_app.services.background.tasks import Task, TaskProgress, TaskRunner
from sbert_app.services.background.watch import Watch
from sbert_app.services.compare.calibration import stored_curve
from sbert_app.services.corpus.corpus import CorpusLimits
from sbert_app.services.corpus.open_corpora import EmbeddingCache, KeptCorpora, SharedSentences
from sbert_app.services.files.jobs import ScoreJobs
from sbert_app.services.files.taken import TakenFiles
from sbert_app.services.jobs.queue import RunQueue
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.runs.store import RunStore
from sbert_app.services.store.temp_folder import TempFolder
from sbert_app.settings import Settings
from training.atomic import folder_size
from training.catalogue import DEFAULT_CROSS_ENCODER, DEFAULT_MODEL
from training.errors import InputError
from training.models.model import Model, VectorModel
from training.names import ModelName
from training.pooling import PAPER_POOLINGS
from training.sources.home import make_home

log = logging.getLogger("sbert_lab.services")

# How often temporary files, idle models and the queue are checked. For 20,000 runs, checking the
# queue takes 0.15 s.
CLEAN_SECONDS = 3600.0
IDLE_SECONDS = 30.0
QUEUE_SECONDS = 60.0


@dataclass(frozen=True)
class Services:
    """The services of pages and endpoints. The runs are in the `store` of ``jobs``."""

    settings: Settings
    access: AccessPolicy
    models: ModelCache
    jobs: RunQueue
    embeddings: EmbeddingCache
    corpora: KeptCorpora
    scoring: ScoreJobs
    shared_sentences: SharedSentences
    taken: TakenFiles
    temp: TempFolder
    tasks: TaskRunner = field(default_factory=TaskRunner)
    # The calibrations that are running or have failed, by model.
    _calibrations: dict[str, Task] = field(default_factory=dict)

    @classmethod
    def start(cls, settings: Settings) -> Services:
        """Creates the services. Models are loaded at their first use."""
        make_home(settings.home)
        folders = [settings.temp_folder, settings.home / "data" / "uploads", *settings.allow_paths]
        access = AccessPolicy(folders, settings.allow_endpoints, settings.public)
        # The limits of the settings are in megabytes, the limits of the services in bytes.
        models = ModelCache(
            settings.home, settings.models_kept, access.check_model, settings.models_mb << 20
        )
        limits = CorpusLimits(
            settings.corpus_sentences,
            settings.corpus_in_memory,
            settings.map_points,
            settings.cluster_sentences,
        )
        jobs = RunQueue(RunStore(settings.home), ray=settings.ray)
        embeddings = EmbeddingCache(models, settings.home, limits=limits)
        temp = TempFolder(settings.temp_folder, settings.temp_limit_mb << 20)
        scoring = ScoreJobs(models, temp.path, temp.check_room)
        shared = SharedSentences(temp.path / "handover")
        corpora = KeptCorpora(temp, settings.corpus_sentences)
        taken = TakenFiles(temp.path / "taken")
        return cls(
            settings, access, models, jobs, embeddings, corpora, scoring, shared, taken, temp
        )

    def warm(self) -> None:
        """Starts the regular work, then loads the default models and runs them once, for a fast first request."""
        self.temp.clean()
        regularly(CLEAN_SECONDS, self.temp.clean)
        # ``keep_alive`` is in minutes.
        regularly(IDLE_SECONDS, partial(self.models.drop_idle, 60 * self.settings.keep_alive))
        # Runs may have been queued when the app last ended.
        self.jobs.reconcile()
        # Workers may be killed while runs are queued.
        regularly(QUEUE_SECONDS, self.jobs.reconcile)
        try:
            for name in (DEFAULT_MODEL, DEFAULT_CROSS_ENCODER):
                # Unlike `get`, `download` shows its progress to visitors who need the model
                # meanwhile.
                self.models.download([name])
                self.models.get(name, Model).score([("Ready?", "Ready.")])
        except InputError as error:
            log.warning("the default model could not be loaded: %s", error)

    def close(self) -> None:
        """Stops all background work, so that no incomplete files remain."""
        self.scoring.close()
        self.tasks.close()

    def check_kept_room(self, file: Path) -> None:
        """Raises InputError if a copy of this file would exceed the space for the uploads that runs need."""
        uploads = self.settings.home / "data" / "uploads"
        most = self.settings.temp_limit_mb << 20
        if file.stat().st_size + folder_size(uploads) > most:
            raise InputError(
                f"the uploads that are kept for runs take {format_bytes(most)}, as much as they may; ask whoever runs "
                "this app to delete some"
            )

    def calibrate_later(self, model: str, pooling: str) -> None:
        """Calibrates the cosine of a model in the background: this pooling first, then the others.

        A model that cannot be calibrated stays in ``_calibrations``, and is not tried again. Nothing
        is sent to an endpoint.
        """
        if model in self._calibrations or ModelName.parse(model).endpoint:
            return

        def calibrate(watch: Watch) -> None:
            try:
                self._calibrate(model, pooling, watch)
            except InputError as error:
                log.warning("%s could not be calibrated: %s", model, error)
            except Exception:
                log.exception("%s could not be calibrated", model)
            else:
                del self._calibrations[model]

        task = Task(f"Calibrating {model}", calibrate)
        self._calibrations[model] = task
        task.start()

    def calibration_progress(self, model: str) -> TaskProgress | None:
        """The progress of the calibration of a model; None if it is not being calibrated."""
        task = self._calibrations.get(model)
        return task.progress if task is not None and task.is_alive() else None

    def _calibrate(self, model: str, pooling: str, watch: Watch) -> None:
        encoder = self.models.get(model, VectorModel)
        # The keys are distinct, and ``pooling`` comes first.
        names = dict.fromkeys((pooling, *PAPER_POOLINGS))
        poolings = [name for name in names if encoder.allows_pooling(name)]
        for number, name in enumerate(poolings):
            part = watch.part(number / len(poolings), (number + 1) / len(poolings))
            # Fits and stores the curve, if it does not exist yet.
            stored_curve(encoder.with_pooling(name), self.settings.home, part)
