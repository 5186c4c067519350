"""All pages and endpoints: visitors see no folder of the machine in errors, runs and names of files."""

import importlib
import json
import pkgutil
import time
from collections.abc import Iterator

import gradio as gr
import pytest

import sbert_app
import training
from sbert_app.pages.components.messages import error_message, error_of, gradio_errors
from sbert_app.pages.train.runs import status
from sbert_app.server.endpoints import public_run
from sbert_app.services.container import Services
from sbert_app.settings import Settings
from training.errors import NotFoundError, UserFacingError, summary_of, without_folders
from training.sources.endpoint import RefusedTextsError
from training.trainer.config import RunConfig


def carriers() -> list[type[UserFacingError]]:
    """Every class of a user's error in the product."""
    for root in (training, sbert_app):
        for module in pkgutil.walk_packages(root.__path__, f"{root.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    found = [UserFacingError]
    classes = [UserFacingError]
    while classes:
        subclasses = [
            each
            for each in classes.pop().__subclasses__()
            if each.__module__.startswith(("training", "sbert"))
        ]
        found += subclasses
        classes += subclasses
    return list(dict.fromkeys(found))


SERVER = "/srv/the lab/home of sbert"
SAID = f"{SERVER}/uploads/pairs.csv cannot be read ([Errno 13] Permission denied: '{SERVER}/uploads/pairs.csv')"


def said_to_a_visitor(error: UserFacingError) -> Iterator[str]:
    """Every form in which pages, endpoints and /v1 show an error."""

    def fail() -> None:
        raise error

    yield from (error_message(error), error_of(fail), summary_of(error), error.public)
    with pytest.raises(gr.Error) as shown, gradio_errors():
        fail()
    yield shown.value.message


@pytest.mark.parametrize("kind", carriers(), ids=lambda kind: kind.__name__)
def test_a_visitor_sees_the_name_of_a_file_and_never_its_folder(kind):
    more = {NotFoundError: (SAID, (SAID,)), RefusedTextsError: (400, SAID)}
    error = kind(SAID, *next((rest for base, rest in more.items() if issubclass(kind, base)), ()))
    assert SERVER in str(error), "whoever runs the command line sees where it is"
    for text in said_to_a_visitor(error):
        assert "pairs.csv cannot be read" in text.lower() and "permission denied" in text.lower()
        assert "lab" not in text and "uploads" not in text and "/srv" not in text


@pytest.mark.parametrize(
    ("message", "public"),
    [
        ("there is no file ~/x/y.csv, and no /z.csv", "there is no file y.csv, and no z.csv"),
        (r"C:\Users\a b\c.csv is empty", "c.csv is empty"),
        ("“/data/日本/ü.csv” is not/neither", "“ü.csv” is not/neither"),
        ("https://huggingface.co/org/name: 1/2 of org/name; see run:../x", None),
        ("score / label in and/or", None),
    ],
)
def test_only_the_folders_of_paths_are_left_out_of_a_message(message, public):
    assert without_folders(message) == (public or message)


def test_a_run_that_failed_says_why_without_the_folder(tmp_path):
    jobs = Services.start(Settings(home=tmp_path)).jobs
    run = jobs.store.create(RunConfig("regression"))
    with jobs.store.lease(run.id) as work:
        work.state = "failed"
        work.reason = SAID
    shown = status(jobs.store.get(run.id), 0)
    assert "Pairs.csv cannot be read" in shown and "uploads" not in shown


def test_a_run_names_its_files_and_models_without_their_folders(tmp_path):
    store = Services.start(Settings(home=tmp_path)).jobs.store
    data = f"{SERVER}/uploads/a.csv?encoding=koi8-r+stsb:train+{SERVER}/b.csv"
    run = store.create(
        RunConfig(
            "regression", train_data=data, eval_data=f"{SERVER}/c.csv", base=f"{SERVER}/my base"
        )
    )
    answer = public_run(run, events=[{"kind": "info", "files": [data]}])
    assert SERVER not in json.dumps(answer)
    assert (
        answer["config"]["train_data"]
        == answer["events"][0]["files"][0]
        == "a.csv?encoding=koi8-r+stsb:train+b.csv"
    )
    assert (answer["config"]["eval_data"], answer["config"]["base"]) == ("c.csv", "my base")
    hub = store.create(
        RunConfig("regression", train_data="hf:org/name:config:train", base="org/model")
    )
    assert public_run(hub)["config"] == hub.config.to_dict(), "names that are no paths stay"


def test_what_a_visitor_has_typed_is_quoted_as_it_was(tmp_path):
    services = Services.start(Settings(home=tmp_path))
    for refused in (
        services.access.check_model,
        services.access.check_data,
        services.jobs.store.get,
    ):
        with pytest.raises(UserFacingError) as error:
            refused("/etc/passwd")
        assert "'/etc/passwd'" in error.value.public


@pytest.mark.parametrize("part", ["~/( ", "/a b(", "/" + "a " * 50])
def test_a_thousand_slashes_are_read_in_no_time(part):
    text = (part * 20_000)[:20_000]
    started = time.process_time()
    without_folders(text)
    assert time.process_time() - started < 1
