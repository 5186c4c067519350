"""A home folder into which every part of the app has written what it keeps, and every reader of what is there."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from sbert_app.figures.training import COLOURS, FIGURES, Curve
from sbert_app.formats import json_values
from sbert_app.pages.train.runs import run_list, status
from sbert_app.services.annotations.project import ChosenPair, ProjectInfo, Projects
from sbert_app.services.annotations.quality import last_training, start
from sbert_app.services.background.watch import RESUMABLE, UNWATCHED, State
from sbert_app.services.clusters.edits import ClusterEdits, edit_store, group_store, save_group
from sbert_app.services.compare.calibration import fit_own, own_curves, stored_curve
from sbert_app.services.container import Services
from sbert_app.services.corpus.corpus import Corpus, CorpusLimits
from sbert_app.services.corpus.open_corpora import EmbeddingCache
from sbert_app.services.experiments.experiment import (
    FOLDS,
    ExperimentRecord,
    Experiments,
    PlannedRun,
)
from sbert_app.services.experiments.groups import run_groups
from sbert_app.services.files.jobs import ScoreRequest
from sbert_app.services.files.uploads import keep_upload
from sbert_app.services.jobs.queue import RunQueue
from sbert_app.services.results.grid import EvalResultCache, evaluate_one
from sbert_app.services.runs.archives import export
from sbert_app.services.runs.execution import execute
from sbert_app.services.runs.store import RunStore
from sbert_app.services.store.documents import DocumentStore
from sbert_app.settings import Settings
from training.data.dataset import Dataset
from training.data.load import load_data
from training.errors import UserFacingError
from training.models.encoder import Encoder
from training.names import ModelName
from training.trainer.config import RunConfig

MODEL = "scratch:1x32"
PAIRS = [(f"a man {i} plays the guitar", f"two dogs {i} run over green grass", i % 6) for i in range(48)]
SCORED = Dataset.from_list([*PAIRS, *((b, a, score) for a, b, score in PAIRS)], "pairs.csv")
CORPUS = Corpus.from_text("\n".join(f"sentence {i}" for i in range(20)))
SHARED = ["a man", "a dog"]


def open_home(home: Path) -> Services:
    """The services of a home folder, without workers."""
    services = Services.start(Settings(home=home))
    services.jobs.starts_workers = False
    return services


def write_home(home: Path) -> None:
    """Write everything that is kept; of records two of a kind, so that one may be damaged and the other must stay."""
    services = open_home(home)
    upload = home.with_name("pairs.csv")
    with upload.open("w", newline="") as file:
        csv.writer(file).writerows([("sentence1", "sentence2", "score"), *PAIRS])
    data = str(keep_upload(upload, home))
    config = RunConfig("mnrl", base=MODEL, train_data=data, eval_data=data, max_steps=4, batch_size=8, name="mined")
    finished = _run(services.jobs.store, config.replace(name="finished", objective="regression"), 99)
    _run(services.jobs.store, config.replace(mine_negatives=True), 3)
    services.jobs.start(config.replace(name="queued"))
    plans = [PlannedRun(label="1", config=config.replace(name="fold").to_dict())]
    projects = Projects(home)
    for name in ("one", "two"):
        Experiments(services.jobs).start(ExperimentRecord(kind=FOLDS, name=f"{name}.csv", by="1 fold", runs=plans))
        info = ProjectInfo(name, "pairs.csv", MODEL, "minilm-stsb", 0.5, 0, 1.0)
        project = projects.open(projects.create(info, [ChosenPair(a, b, "random", 0.5, 0.5) for a, b, _ in PAIRS]))
        for pair, (*_, score) in enumerate(PAIRS):
            project.rate("Ann", pair, score)
        project.agree("Ann", 0, 3)
        start(project, services.jobs)
        group_store(home).put(name, group_store(home).get("none"))
        edit_store(home).put(name, ClusterEdits({0: name}, {1: 0}))
        fit_own(name, "mean", SCORED, np.linspace(0, 1, len(SCORED)), home)
        services.scoring.run(ScoreRequest(upload, None, MODEL))
    save_group(group_store(home), CORPUS, "to check", "blue", (1, 2))
    services.shared_sentences.pairs(services.shared_sentences.put(SHARED))
    for job in services.scoring.files():
        if job.name == "job.json":
            services.scoring.apply_threshold(job.parent.name, 0.5)
    _compute(services)
    export(services.jobs.store, finished, services.temp.results("exports"))
    services.scoring.close()


def _run(store: RunStore, config: RunConfig, last_event: int) -> str:
    events: list[object] = []
    run = store.create(config)
    execute(store, run.id, on_event=events.append, should_end=lambda: len(events) > last_event)
    return run.id


def _compute(services: Services) -> dict[str, Any]:
    """What is computed anew where a cache is damaged."""
    home, models = services.settings.home, services.models
    in_memory, in_file = (EmbeddingCache(models, home, limits=CorpusLimits(in_memory=most)) for most in (1_000, 5))
    pairs = load_data(str(home.with_name("pairs.csv")))
    return {
        "vectors": in_memory.embed(in_memory.add(CORPUS), MODEL).vectors.tolist(),
        "mapped": in_file.embed(in_file.add(CORPUS), MODEL).vectors.tolist(),
        "result": evaluate_one(ModelName.parse(MODEL), pairs, models, EvalResultCache(home), UNWATCHED).gold.tolist(),
        "calibration": stored_curve(models.get(MODEL, Encoder), home),
    }


# ---------------------------------------------------------------- what reads it

Answers = dict[str, Any]  # by the id of the run, the project, …: what its readers say of it
Look = Callable[[Services], tuple[Answers, list[str]]]  # with the sentences about those that cannot be read


def _runs(services: Services) -> tuple[Answers, list[str]]:
    store = RunStore(services.settings.home)
    runs = store.list()
    assert all(store.log(run.id) is not None for run in runs)
    queued = [run.id for run in runs if run.state == State.QUEUED]
    assert set(queued) <= set(store.ids(State.QUEUED)), "a run that is listed as queued is never executed"
    answers = {run.id: json.dumps(json_values(run.to_json()), allow_nan=False, sort_keys=True) for run in runs}
    return answers, [str(error) for error in store.damaged()]


def _events(services: Services) -> tuple[Answers, list[str]]:
    """As on the page: the row and the curves of the run that has events and is not finished."""
    store = RunStore(services.settings.home)
    for run in (run for run in store.list() if run.state == State.INTERRUPTED):
        curve = Curve(run.name, COLOURS[0], store.events(run.id), run.progress.steps, run.progress.measure)
        assert run.id in str(run_list([run], "", {})) and str(status(run, 0))
        assert all(draw([curve]).to_json() for draw in FIGURES.values())
    return _runs(services)


def _experiments(services: Services) -> tuple[Answers, list[str]]:
    experiments = Experiments(services.jobs)
    listed = {each.id: str(each.record) for each in experiments.list(FOLDS)}
    groups = {group.id for group in run_groups(services.settings.home).values()}
    assert groups <= listed.keys(), "an experiment whose runs are not there groups none"
    return listed, [str(error) for error in experiments.damaged()]


def _projects(services: Services) -> tuple[Answers, list[str]]:
    projects, answers, said = Projects(services.settings.home), {}, []
    for project_id, info in projects.list():
        try:
            project = projects.open(project_id)
            answers[project_id] = (info, project.pairs, project.ratings(), project.agreed(), last_training(project))
        except UserFacingError as error:
            said.append(str(error))
    return answers, said + [str(error) for error in projects.store.list().damaged]


def _of_store(make: Callable[[Path], DocumentStore[Any]]) -> Look:
    def look(services: Services) -> tuple[Answers, list[str]]:
        listed = make(services.settings.home).list()
        return listed.documents, [str(error) for error in listed.damaged]

    return look


def _scored(services: Services) -> tuple[Answers, list[str]]:
    answers, said = {}, []
    for folder in sorted(services.scoring._records.folder.glob("[!.]*")):
        try:
            job = services.scoring.get(folder.name)
            list(services.scoring.follow(folder.name))
            answers[folder.name] = (job.state, services.scoring.apply_threshold(folder.name, 0.5).matches)
        except UserFacingError as error:
            said.append(str(error))
    return answers, said


def _shared(services: Services) -> tuple[Answers, list[str]]:
    try:
        token = services.shared_sentences.put(SHARED)
        return {token: (services.shared_sentences.sentences(token), services.shared_sentences.pairs(token).name)}, []
    except UserFacingError as error:
        return {}, [str(error)]


def _queue(services: Services) -> tuple[Answers, list[str]]:
    queue = RunQueue(services.jobs.store)
    queue.starts_workers = False
    queue.reconcile()
    return {"queue": sorted(queue.queued())}, []


def _computed(services: Services) -> tuple[Answers, list[str]]:
    return _compute(services), []


def _resume(services: Services) -> tuple[Answers, list[str]]:
    store, answers, said = RunStore(services.settings.home), {}, []
    for run in store.list():
        if run.state == State.INTERRUPTED:
            try:
                answers[run.id] = execute(store, run.id, states=RESUMABLE).status
            except UserFacingError as error:
                said.append(str(error))
    return answers, said


def _encode(services: Services) -> tuple[Answers, list[str]]:
    answers, said = {}, []
    for run in RunStore(services.settings.home).list():
        if run.has_model and run.state == State.INTERRUPTED:
            try:
                encoder = Encoder.load(f"run:{run.id}", home=services.settings.home)
                answers[run.id] = encoder.encode(["a man"]).shape
            except UserFacingError as error:
                said.append(str(error))
    return answers, said


def _upload(services: Services) -> tuple[Answers, list[str]]:
    answers, said = {}, []
    for file in sorted((services.settings.home / "data" / "uploads").glob("*/*")):
        try:
            answers[f"{file.parent.name}/{file.name}"] = len(load_data(str(file)))
        except UserFacingError as error:
            said.append(str(error))
    return answers, said


LOOKS: dict[str, Look] = {  # by how the paths begin, with the name of a record left out
    "runs/*/model/": _encode,
    "runs/*/checkpoint/": _resume,
    "runs/*/negatives.jsonl": _resume,
    "runs/*/events.jsonl": _events,
    "runs/": _runs,
    "experiments/": _experiments,
    "annotations/": _projects,
    "explore/groups/": _of_store(group_store),
    "explore/clusters/": _of_store(edit_store),
    "data/uploads/": _upload,
    "tmp/scored/": _scored,
    "tmp/handover/": _shared,
    "jobs.sqlite": _queue,
    "cache/": _computed,
    "vectors/": _computed,
    "calibration/own/": _of_store(own_curves),
    "calibration/": _computed,
}


def look_at(path: str) -> Look | None:
    """Who reads a file of the home folder; None for what nobody reads again."""
    return next((look for begin, look in LOOKS.items() if fnmatchcase(path, f"{begin}*")), None)
