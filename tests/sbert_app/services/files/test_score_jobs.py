"""`files/jobs.py`: files scored in the background, with progress, Stop, and results that outlive the process."""

import os
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from bag_encoder import AnyModel, BagEncoder
from waiting import wait_until

from sbert_app.services.background.tasks import TaskProgress
from sbert_app.services.files.jobs import MOST_OF_ONE, ScoreJobs, ScoreRequest
from sbert_app.services.files.report import ScoreSummary
from sbert_app.services.store.temp_folder import TempFolder
from training.data.tables.table import open_table
from training.errors import InputError, NotFoundError, StoppedError


class Models(AnyModel):
    """A cache whose models are loaded at once, or when ``ready`` is set."""

    def __init__(self, encoder=None):
        super().__init__(encoder)
        self.ready = threading.Event()
        self.ready.set()

    def get(self, name, type_, pooling=None, role=None):
        if name == "lost":
            raise NotFoundError(
                "lost: long",
                "model lost was not found",
                ("Hub: no answer", "home folder: not there"),
            )
        self.ready.wait(timeout=30)
        return self.one


class SlowEncoder(BagEncoder):
    """Three hundred sentences a second."""

    def encode(self, sentences, normalize=True, on_progress=None, should_stop=None, report=None):
        for _ in sentences:
            if should_stop():
                raise StoppedError
            time.sleep(0.003)
        return super().encode(sentences)


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text(
        "s1,s2,score\n" + "".join(f"sentence {i},neighbour {i},{i % 6}\n" for i in range(200))
    )
    return path


def make(tmp_path: Path, encoder=None) -> ScoreJobs:
    return ScoreJobs(Models(encoder), tmp_path / "tmp")


def started(jobs: ScoreJobs, pairs: Path, model: str = "bag", **options) -> str:
    job = jobs.open(pairs)
    return jobs.start(job.id, ScoreRequest(open_table(job.path), None, model, **options)).id


def ended(jobs: ScoreJobs, job: str) -> str:
    list(jobs.follow(job))
    return jobs.get(job).state


def test_progress_is_reported_and_the_summary_comes_last(pairs, tmp_path):
    jobs = make(tmp_path, SlowEncoder())
    *events, summary = jobs.follow(started(jobs, pairs, cross_encoder="overlap"))
    assert all(isinstance(event, TaskProgress) for event in events)
    assert (events[-1].description, 0 < events[-1].done <= events[-1].total) == ("Scoring", True)
    assert isinstance(summary, ScoreSummary)
    assert [Path(output).name for output in summary.outputs] == [
        "pairs-scored.csv",
        "pairs-scored.parquet",
    ]
    assert all(Path(output).is_relative_to(tmp_path / "tmp") for output in summary.outputs)


def test_a_job_goes_on_without_a_reader_and_survives_the_process(pairs, tmp_path):
    jobs = make(tmp_path)
    job = started(jobs, pairs)
    pairs.unlink()
    next(jobs.follow(job)), jobs.follow(job).close()
    first = list(jobs.follow(job))[-1]
    later = make(tmp_path)
    assert later.get(job).state == "finished"
    assert repr(list(later.follow(job))) == repr([first]), (
        "figures, notes and decision as they were, also what is NaN"
    )
    assert first.report.decision is not None
    assert open_table(later.get(job).path).row_estimate == 200


def test_a_job_whose_process_ended_is_interrupted_and_can_be_scored_again(pairs, tmp_path):
    jobs = make(tmp_path, SlowEncoder())
    job = started(jobs, pairs)
    later = make(tmp_path)
    assert later.get(job).state == "interrupted"
    with pytest.raises(InputError, match="the app ended while it was being scored"):
        list(later.follow(job))
    again = later.start(job, ScoreRequest(open_table(later.get(job).path), None, "bag"))
    assert again.id != job
    assert ended(later, again.id) == "finished"
    jobs.stop(job)
    ended(jobs, job)


def test_stop_keeps_the_rows_scored_so_far(pairs, tmp_path):
    jobs = make(tmp_path, SlowEncoder())
    job = started(jobs, pairs, formats=(".csv",))
    for event in jobs.follow(job):
        if isinstance(event, TaskProgress) and event.done >= 16:
            jobs.stop(job)
    assert 0 < event.stopped_at < 200
    assert len(Path(event.outputs[0]).read_text().splitlines()) == event.stopped_at + 1
    assert jobs.get(job).state == "stopped"


def test_a_file_that_is_cut_between_its_opening_and_the_first_read_fails(pairs, tmp_path):
    jobs = make(tmp_path)
    job = jobs.open(pairs)
    task = ScoreRequest(open_table(job.path), None, "bag")  # what the page has shown
    job.path.write_bytes(job.path.read_bytes()[: job.path.stat().st_size // 2])
    with pytest.raises(
        InputError, match="changed while it was read: wait until it is complete, and start again"
    ):
        list(jobs.follow(jobs.start(job.id, task).id))
    assert (jobs.get(job.id).state, jobs.summary(job.id)) == ("failed", None)


def test_stop_does_not_wait_for_a_model_that_loads_nor_for_a_place(pairs, tmp_path):
    jobs = make(tmp_path)
    jobs._models.ready.clear()
    waiting = [started(jobs, pairs) for _ in range(4)]
    wait_until(
        lambda: sorted(jobs.get(job).state for job in waiting) == ["queued"] * 2 + ["running"] * 2
    )
    for job in reversed(waiting):
        jobs.stop(job)
        with pytest.raises(StoppedError):
            list(jobs.follow(job))
    assert {jobs.get(job).state for job in waiting} == {"stopped"}
    jobs._models.ready.set()


def test_a_threshold_is_applied_to_what_is_scored(pairs, tmp_path):
    jobs = make(tmp_path)
    job = started(jobs, pairs)
    assert ended(jobs, job) == "finished"
    found = jobs.apply_threshold(job, 0.4)
    assert (found.pairs, found.sentences) == (200, 400)
    assert [Path(output).name for output in found.outputs] == [
        *(
            "pairs-matches.csv",
            "pairs-matches.parquet",
            "pairs-groups.csv",
            "pairs-deduplicated.csv",
        )
    ]
    with pytest.raises(InputError, match="Score the file first"):
        jobs.apply_threshold(jobs.open(pairs).id, 0.4)


def test_an_error_of_a_job_is_raised_with_its_details_for_every_reader(pairs, tmp_path):
    jobs = make(tmp_path)
    job = started(jobs, pairs, model="lost")
    for reader in (jobs, jobs, make(tmp_path)):  # also in another process
        with pytest.raises(NotFoundError) as raised:
            list(reader.follow(job))
        assert raised.value.summary == "model lost was not found"
        assert raised.value.details == ("Hub: no answer", "home folder: not there")
    assert (jobs.get(job).state, jobs.get(job).reason) == ("failed", "model lost was not found")


def test_a_fault_is_no_users_error_and_its_text_stays_in_the_log(pairs, tmp_path, caplog):
    class Broken(BagEncoder):
        def encode(self, *_, **__):
            raise RuntimeError("secret")

    jobs = make(tmp_path, Broken())
    with pytest.raises(InputError, match="because of a fault in the app"):
        list(jobs.follow(started(jobs, pairs)))
    assert "RuntimeError: secret" in caplog.text


def test_an_unknown_job_is_named_and_a_deleted_one_leaves_nothing(pairs, tmp_path):
    jobs = make(tmp_path)
    for job in ("", "..", "0" * 16, "../../etc", "x" * 16):
        with pytest.raises(InputError, match="no longer kept"):
            jobs.get(job)
        jobs.delete(job)
        assert jobs.summary(job) is None
    job = started(jobs, pairs)
    ended(jobs, job)
    jobs.delete(job)
    assert list((tmp_path / "tmp" / "scored").iterdir()) == []


def age(path: Path, seconds: float) -> None:
    os.utime(path, (time.time() - seconds,) * 2)


def test_a_job_is_removed_a_day_after_it_was_last_scored_as_a_whole(pairs, tmp_path):
    """The input is a link to the upload and as old as that is: a clean-up once took it from results that were new."""
    age(pairs, 30 * 3_600)
    jobs = make(tmp_path)
    temp = TempFolder(tmp_path / "tmp")
    new = started(jobs, pairs)
    old = started(jobs, pairs)
    assert {ended(jobs, job) for job in (new, old)} == {"finished"}
    assert jobs.get(new).path.samefile(pairs)
    folder = jobs.get(old).folder
    for path in (*folder.rglob("*"), folder):
        age(path, 25 * 3_600)
    temp.clean()
    assert not folder.exists()
    with pytest.raises(InputError, match="no longer kept"):
        jobs.get(old)
    assert jobs.get(new).path.read_bytes() == pairs.read_bytes()
    assert jobs.apply_threshold(new, 0.4).pairs == 200
    again = jobs.start(new, ScoreRequest(open_table(jobs.get(new).path), None, "bag"))
    assert ended(jobs, again.id) == "finished"


def test_an_input_that_is_gone_is_said_without_the_folders_of_the_machine(pairs, tmp_path):
    jobs = make(tmp_path)
    job = started(jobs, pairs)
    ended(jobs, job)
    jobs.get(job).path.unlink()
    with pytest.raises(InputError, match=r"^There is no file") as opened:
        open_table(jobs.get(job).path)
    assert opened.value.public == "There is no file pairs.csv."
    request = ScoreRequest(pairs, ["s1", "s2"], "bag")
    for refused in (lambda: jobs.start(job, request), lambda: jobs.apply_threshold(job, 0.4)):
        with pytest.raises(InputError, match=r"pairs\.csv is no longer kept; upload it again"):
            refused()


def test_the_answer_of_a_request_is_its_summary(pairs, tmp_path):
    jobs = make(tmp_path)
    job, summary = jobs.run(ScoreRequest(pairs, ["s1", "s2"], "bag", formats=(".csv",)))
    assert (summary.rows, [Path(output).suffix for output in summary.outputs]) == (200, [".csv"])
    jobs.delete(job.id)


def test_a_file_that_cannot_be_used_leaves_no_job(pairs, tmp_path):
    jobs = make(tmp_path)
    with pytest.raises(InputError, match=r"gone\.csv cannot be kept: No such file"):
        jobs.run(ScoreRequest(tmp_path / "gone.csv", None, "bag"))
    pairs.write_bytes(b"PAR1 and nothing more")
    with pytest.raises(InputError, match=r"pairs\.csv"):
        jobs.run(ScoreRequest(pairs, None, "bag"))
    assert not list(tmp_path.glob("tmp/scored/*"))


def test_an_upload_of_the_same_file_does_not_disturb_who_has_it_scored(pairs, tmp_path):
    """Gradio puts both in the same place, one after the other."""
    again = tmp_path / "again.csv"
    again.write_bytes(pairs.read_bytes())

    class MeanwhileUploaded(BagEncoder):
        def encode(self, sentences, *options, **more):
            if again.exists():
                again.replace(pairs)
            return super().encode(sentences)

    _, summary = make(tmp_path, MeanwhileUploaded()).run(ScoreRequest(pairs, ["s1", "s2"], "bag"))
    assert (summary.rows, again.exists()) == (200, False)


def test_one_visitor_leaves_places_for_others_below_the_limit_for_all(pairs, tmp_path, monkeypatch):
    jobs = make(tmp_path)
    jobs._models.ready.clear()
    request = ScoreRequest(pairs, ["s1", "s2"], "bag", formats=(".csv",))
    theirs = [jobs.start(jobs.open(pairs).id, request, "192.0.2.1").id for _ in range(MOST_OF_ONE)]
    with pytest.raises(InputError, match=f"{MOST_OF_ONE} files from your address"):
        jobs.start(jobs.open(pairs).id, request, "192.0.2.1")
    others = [jobs.start(jobs.open(pairs).id, request, visitor).id for visitor in ("192.0.2.2", "")]
    monkeypatch.setattr("sbert_app.services.files.jobs.MOST_WAITING", MOST_OF_ONE + 2)
    with pytest.raises(InputError, match="files are being scored or wait for it"):
        started(jobs, pairs)
    jobs._models.ready.set()
    assert {ended(jobs, job) for job in [*theirs, *others]} == {"finished"}
    assert jobs.start(jobs.open(pairs).id, request, "192.0.2.1").state == "queued"


def test_results_that_do_not_fit_are_refused_before_and_while_they_wait(pairs, tmp_path):
    room = [10**9]

    def check_room(size):
        if size > room[0]:
            raise InputError("the folder for uploads and results is full")

    jobs = ScoreJobs(Models(), tmp_path / "tmp", check_room)
    jobs._models.ready.clear()
    waiting = [started(jobs, pairs) for _ in range(3)]
    while {jobs.get(job).state for job in waiting[:2]} != {"running"}:
        time.sleep(0.02)
    room[0] = 0  # what is computed has taken it
    with pytest.raises(InputError, match="is full"):
        started(jobs, pairs)
    jobs._models.ready.set()
    for job in waiting:
        with suppress(InputError):
            list(jobs.follow(job))
    assert sorted(jobs.get(job).state for job in waiting) == ["failed", "finished", "finished"]
    [refused] = [job for job in waiting if jobs.get(job).state == "failed"]
    assert "is full" in jobs.get(refused).reason
    with pytest.raises(InputError, match="is full"):
        jobs.apply_threshold(next(job for job in waiting if job != refused), 0.4)
