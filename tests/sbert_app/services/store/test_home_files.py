"""`services/store/`: each kind of file in the home folder, damaged in each way, is a sentence or made anew."""

import csv
import json
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sbert_app.figures.training import FIGURES, Curve
from sbert_app.formats import json_values
from sbert_app.pages.train.runs import run_list, status
from sbert_app.services.annotations.project import ChosenPair, ProjectInfo, Projects
from sbert_app.services.annotations.quality import last_training, start
from sbert_app.services.background.watch import UNWATCHED, State
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
from sbert_app.services.results.grid import evaluate_one
from sbert_app.services.runs.archives import export
from sbert_app.services.runs.backup import files_of
from sbert_app.services.runs.execution import execute
from sbert_app.services.runs.store import RunStore
from sbert_app.services.store import HOME, HomeEntry, home_entry
from sbert_app.services.store.documents import DocumentStore
from sbert_app.settings import Settings
from training.data.dataset import Dataset
from training.data.load import load_data
from training.errors import UserFacingError
from training.models.encoder import Encoder
from training.names import ModelName
from training.trainer.config import RunConfig

FOLDER = "a folder"
LOOP = "a loop of links"
LOCKS = {"lock", "worker", "ray"}  # and what is hidden
RECOMPUTED = {"cache/", "calibration/", "vectors/", "numba/"}
COUNT = 3  # flipped bits, and truncations, of a file
# Kinds that take long to look at: drawn as figures, scored again, of several files. Few damages are
# tried.
DEAR = ("runs/*/events.jsonl", "tmp/*")
# What nobody reads again, and what is damaged in the tests of its readers, as they load a model or
# train.
ELSEWHERE = {
    "runs/*/model/*": "test_folder, test_loading",
    "runs/*/checkpoint/*": "test_resume",
    "runs/*/negatives.jsonl": "test_negatives",
    "models/*": "test_folder",
    "data/*": "test_load",
    "numba/*": "test_projection",
    "vectors/*.f32": "test_large_corpora",
    "vectors/*.f32.incomplete": "test_large_corpora",
    "calibration/*.json": "test_calibration",
    "worker-*.log": "nobody reads it",
    "runs/*/tensorboard/*": "TensorBoard reads it",
    "runs/*/own.json": "of a run with objects of one's own: test_own_runs",
    "runs/*/stop": "an empty file",
    "runs/*/reserve": "an empty file",
}

MODEL = "scratch:1x32"
PAIRS = [
    (f"a man {i} plays the guitar", f"two dogs {i} run over green grass", i % 6) for i in range(48)
]
SCORED = Dataset.from_list([*PAIRS, *((b, a, score) for a, b, score in PAIRS)], "pairs.csv")
CORPUS = Corpus("c", [f"sentence {i}" for i in range(20)])
SHARED = ["a man", "a dog"]


def write_home(services: Services) -> None:
    """Write everything that is kept; of records two of a kind, so that one may be damaged and the other must stay."""
    home = services.settings.home
    models = services.models
    upload = home.with_name("pairs.csv")
    with upload.open("w", newline="") as file:
        csv.writer(file).writerows([("sentence1", "sentence2", "score"), *PAIRS])
    data = str(keep_upload(upload, home))
    config = RunConfig(
        "mnrl", base=MODEL, train_data=data, eval_data=data, max_steps=4, batch_size=8, name="mined"
    )
    finished = _run(
        services.jobs.store, config.replace(name="finished", objective="regression"), 99
    )
    _run(services.jobs.store, config.replace(mine_negatives=True), 3)
    services.jobs.start(config.replace(name="queued"))
    plans = [PlannedRun(label="1", config=config.replace(name="fold").to_dict())]
    projects = Projects(home)
    for name in ("one", "two"):
        Experiments(services.jobs).start(
            ExperimentRecord(kind=FOLDS, name=f"{name}.csv", by="1 fold", runs=plans)
        )
        info = ProjectInfo(name, "pairs.csv", MODEL, "minilm-stsb", 0.5, 0, 1.0)
        project = projects.open(
            projects.create(info, [ChosenPair(a, b, "random", 0.5, 0.5) for a, b, _ in PAIRS])
        )
        for pair, (*_, score) in enumerate(PAIRS):
            project.rate("Ann", pair, score)
        project.agree("Ann", 0, 3)
        start(project, services.jobs)
        fit_own(name, "mean", SCORED, np.linspace(0, 1, len(SCORED)), home)
        services.scoring.run(ScoreRequest(upload, None, MODEL))
    services.shared_sentences.pairs(services.shared_sentences.put(SHARED))
    for job in services.settings.temp_folder.glob("scored/*/job.json"):
        services.scoring.apply_threshold(job.parent.name, 0.5)
    _computed(services)
    in_file = EmbeddingCache(models, home, limits=CorpusLimits(in_memory=5))
    in_file.embed(in_file.add(CORPUS), MODEL)
    stored_curve(models.get(MODEL, Encoder), home)
    export(services.jobs.store, finished, services.temp.results("exports"))
    services.scoring.close()


def _run(store: RunStore, config: RunConfig, last_event: int) -> str:
    events: list[object] = []
    run = store.create(config)
    execute(store, run.id, on_event=events.append, should_end=lambda: len(events) > last_event)
    return run.id


Answers = dict[str, Any]  # by the id of the run, the project, …: what its readers say of it
# With the sentences about those that cannot be read.
Look = Callable[[Services], tuple[Answers, list[str]]]


def _runs(services: Services) -> tuple[Answers, list[str]]:
    store = RunStore(services.settings.home)
    runs = store.list()
    assert all(store.log(run.id) is not None for run in runs)
    queued = [run.id for run in runs if run.state == State.QUEUED]
    assert set(queued) <= set(store.ids(State.QUEUED)), (
        "a run that is listed as queued is never executed"
    )
    answers = {
        run.id: json.dumps(json_values(run.to_json()), allow_nan=False, sort_keys=True)
        for run in runs
    }
    return answers, [str(error) for error in store.damaged()]


def _events(services: Services) -> tuple[Answers, list[str]]:
    """As on the page: the row and the curves of the run that has events and is not finished."""
    store = RunStore(services.settings.home)
    for run in (run for run in store.list() if run.state == State.INTERRUPTED):
        curve = Curve(
            run.name, "#0072B2", store.events(run.id), run.progress.steps, run.progress.measure
        )
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
    projects = Projects(services.settings.home)
    answers = {}
    said = []
    for project_id, info in projects.list():
        try:
            project = projects.open(project_id)
            answers[project_id] = (
                info,
                project.pairs,
                project.ratings(),
                project.agreed(),
                last_training(project),
            )
        except UserFacingError as error:
            said.append(str(error))
    return answers, said + [str(error) for error in projects.store.list().damaged]


def _of_store(make: Callable[[Path], DocumentStore[Any]]) -> Look:
    def look(services: Services) -> tuple[Answers, list[str]]:
        listed = make(services.settings.home).list()
        return listed.documents, [str(error) for error in listed.damaged]

    return look


def _scored(services: Services) -> tuple[Answers, list[str]]:
    answers = {}
    said = []
    for folder in sorted(services.scoring._records.folder.glob("[!.]*")):
        try:
            job = services.scoring.get(folder.name)
            list(services.scoring.follow(folder.name))
            answers[folder.name] = (
                job.state,
                services.scoring.apply_threshold(folder.name, 0.5).matches,
            )
        except UserFacingError as error:
            said.append(str(error))
    return answers, said


def _shared(services: Services) -> tuple[Answers, list[str]]:
    try:
        token = services.shared_sentences.put(SHARED)
        return {
            token: (
                services.shared_sentences.sentences(token),
                services.shared_sentences.pairs(token).name,
            )
        }, []
    except UserFacingError as error:
        return {}, [str(error)]


def _computed(services: Services) -> tuple[Answers, list[str]]:
    """What is computed anew where a cache is damaged."""
    home = services.settings.home
    models = services.models
    corpora = EmbeddingCache(models, home)
    pairs = load_data(str(home.with_name("pairs.csv")))
    return {
        "vectors": corpora.embed(corpora.add(CORPUS), MODEL).vectors.tolist(),
        "result": evaluate_one(ModelName.parse(MODEL), pairs, models, UNWATCHED).gold.tolist(),
    }, []


def _upload(services: Services) -> tuple[Answers, list[str]]:
    answers = {}
    said = []
    for file in sorted((services.settings.home / "data" / "uploads").glob("*/*")):
        try:
            answers[f"{file.parent.name}/{file.name}"] = len(load_data(str(file)))
        except UserFacingError as error:
            said.append(str(error))
    return answers, said


LOOKS: dict[str, Look] = {  # by how the paths begin, with the name of a record left out
    "runs/*/events.jsonl": _events,
    "runs/": _runs,
    "experiments/": _experiments,
    "annotations/": _projects,
    "data/uploads/": _upload,
    "tmp/scored/": _scored,
    "tmp/handover/": _shared,
    "cache/": _computed,
    "calibration/own/": _of_store(own_curves),
}


def look_at(path: str) -> Look | None:
    """Who reads a file of the home folder; None for what nobody reads again."""
    return next((look for begin, look in LOOKS.items() if fnmatchcase(path, f"{begin}*")), None)


def open_home(home: Path) -> Services:
    """The services of a home folder, without workers."""
    services = Services.start(Settings(home=home))
    services.jobs.starts_workers = False
    return services


@pytest.fixture(scope="module")
def written(tmp_path_factory, home) -> Services:
    """Of a home folder with everything that the app keeps."""
    own = tmp_path_factory.mktemp("written") / "home"
    for kind in ("models", "data"):
        (own / kind).mkdir(parents=True)
        for folder in (home / kind).iterdir():
            if folder.name not in ("uploads",):  # what other tests have written
                (own / kind / folder.name).symlink_to(folder)
    write_home(open_home(own))
    return open_home(own)


def patterns() -> list[tuple[HomeEntry, str]]:
    return [(entry, f"{entry.name}{pattern}") for entry in HOME for pattern in entry.files]


def declared(name: str) -> list[str]:
    """The patterns of a file."""
    return [
        pattern
        for entry, pattern in patterns()
        if entry is home_entry(name) and fnmatchcase(name, pattern)
    ]


def names_in(home: Path) -> list[str]:
    return [
        name
        for file in files_of(home)
        if (name := file.relative_to(home).as_posix()).rpartition("/")[2] not in LOCKS
    ]


def test_every_file_that_is_written_is_declared_and_damaged_in_a_test(written):
    names = names_in(written.settings.home)
    assert [name for name in names if home_entry(name) is None] == []
    assert {pattern for name in names for pattern in declared(name)} | ELSEWHERE.keys() == {
        pattern for _, pattern in patterns()
    }


def examples(home: Path, pattern: str) -> list[Path]:
    """One file of each name in the temporary folder; of other kinds the first."""
    names = [
        name for name in names_in(home) if pattern in declared(name) and look_at(name) is not None
    ]
    kinds = {name.rpartition("/")[2]: home / name for name in names}
    return (
        list(kinds.values())
        if pattern == "tmp/*"
        else [home / min(names, key=lambda name: name.count("/"))]
    )


def damages(data: bytes, is_dear: bool) -> Iterator[bytes | str]:
    middle = len(data) // 2
    yield from (FOLDER, b"", data[:middle], b"\xff\xfe" + data)
    if is_dear:
        return
    yield from (LOOP, bytes(len(data)), random.Random(0).randbytes(300))
    yield from (b"[" * 100_000, b"9" * 5_000, b"null", b"[]", b"{}")
    changed = [*changed_fields(data)]
    yield from changed[:: max(1, len(changed) // (4 * COUNT))]
    for at in range(0, len(data), max(1, len(data) // COUNT)):
        yield data[:at]
        yield data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :]


def changed_fields(data: bytes) -> Iterator[bytes]:
    """A JSON object, or the first of several in lines, with a field left out or of another type, and a new one."""
    try:
        line = data
        rest = b""
        if not data.startswith((b"{\n", b"[")):
            line, _, rest = data.partition(b"\n")
        values = json.loads(line)
    except ValueError:
        return
    if not isinstance(values, dict):
        return
    yield json.dumps({**values, "later": {"a": [1]}}).encode() + b"\n" + rest
    for name in values:
        without = {other: value for other, value in values.items() if other != name}
        for changed in ({**values, name: 9e99}, {**values, name: [{}]}, without):
            yield json.dumps(changed).encode() + b"\n" + rest


def put(path: Path, damage: bytes | str) -> None:
    path.unlink()
    if damage == FOLDER:
        path.mkdir()
    elif damage == LOOP:
        path.symlink_to(path)
    elif isinstance(damage, bytes):
        path.write_bytes(damage)


def expect(services: Services, file: Path, damage: bytes | str, before: Answers) -> None:
    """Of the others readers say what they said before; of the damaged one what is there, or one sentence."""
    name = file.relative_to(services.settings.home).as_posix()
    entry = home_entry(name)
    after, sentences = look_at(name)(services)
    if entry.name in RECOMPUTED:
        assert after == before
        return
    others = {key: value for key, value in before.items() if key not in name}
    assert {key: value for key, value in after.items() if key in others} == others
    assert len(after) + len(sentences) == len(before), (after.keys(), sentences)
    assert all("\n" not in sentence for sentence in sentences)
    if entry.name != "tmp/":
        assert all(
            file.name in sentence or file.parent.name in sentence for sentence in sentences
        ), sentences
        assert not sentences or isinstance(damage, str) or file.read_bytes() == damage


@contextmanager
def restored(home: Path, name: str, copies: Path) -> Iterator[None]:
    """What is done to a file, and to what lies beside it, is undone."""
    parts = 2 if name.startswith("runs/") else 3
    place = home.joinpath(*name.split("/")[:parts]) if name.count("/") > 2 else (home / name).parent
    shutil.copytree(place, copies / "copy", symlinks=True)
    try:
        yield
    finally:
        shutil.rmtree(place)
        shutil.move(copies / "copy", place)


@pytest.mark.parametrize(
    "pattern", [pattern for _, pattern in patterns() if pattern not in ELSEWHERE]
)
def test_a_damaged_file_is_a_sentence_or_made_anew_and_hides_no_other(written, pattern, tmp_path):
    home = written.settings.home
    for file in examples(home, pattern):
        name = file.relative_to(home).as_posix()
        data = file.read_bytes()
        with restored(home, name, tmp_path):
            before, sentences = look_at(name)(written)
        assert sentences == []
        for damage in damages(data, pattern in DEAR):
            with restored(home, name, tmp_path):
                put(file, damage)
                try:
                    expect(written, file, damage, before)
                except Exception as error:
                    raise AssertionError(
                        f"{name}: {damage[:300]!r}: {type(error).__name__}: {error}"
                    ) from error
