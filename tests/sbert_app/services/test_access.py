"""What a visitor may name: never a path, unless it lies in an upload folder or in one that was allowed."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from sbert_app.server.endpoint import Call
from sbert_app.server.endpoints import ENDPOINTS
from sbert_app.services.access import AccessPolicy
from sbert_app.services.experiments.experiment import Experiments, new_seeds
from sbert_app.services.jobs.queue import RunQueue
from sbert_app.services.runs.store import RunStore
from training.data.load import load_data
from training.errors import InputError, NotFoundError
from training.trainer.config import RunConfig


@pytest.fixture
def files(tmp_path):
    (tmp_path / "uploads").mkdir()
    (tmp_path / "uploads" / "mine.csv").write_text("sentence\na\n")
    (tmp_path / "secret.env").write_text("PASSWORD=1")
    (tmp_path / "uploads" / "link.csv").symlink_to(tmp_path / "secret.env")
    return tmp_path


@pytest.fixture
def policy(files):
    return AccessPolicy([files / "uploads"])


def test_sets_and_models_may_be_named(policy):
    for name in (
        "stsb:dev",
        "sts12+sts16",
        "hf:glue:stsb:train",
        "nanobeir:SciFact",
        "beir:stsb:dev",
    ):
        assert policy.check_data(name) == name
    for name in (
        "all-MiniLM-L6-v2",
        "sentence-transformers/all-mpnet-base-v2",
        "tfidf",
        "run:r-1",
        "scratch:bilstm",
    ):
        assert policy.check_model(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "../x.csv",
        "~/x.csv",
        "~root/.bashrc",
        "C:\\x.csv",
        "file:///etc/passwd",
        "x" * 10_000,
        "\0",
    ],
)
def test_paths_may_not_alone_nor_as_a_part_of_a_joined_name(policy, name):
    for data in (name, f"stsb:dev+{name}", f"{name}+stsb"):
        with pytest.raises(InputError, match="cannot be used here") as error:
            policy.check_data(data)
        assert len(str(error.value)) < 500
    with pytest.raises(InputError, match="cannot be used here"):
        policy.check_model(name)


def test_the_refusal_does_not_tell_whether_a_file_exists(policy, files):
    for check in (policy.check_data, policy.check_model):
        refusals = set()
        for name in (str(files / "secret.env"), str(files / "sekret.env")):
            with pytest.raises(InputError) as error:
                check(name)
            refusals.add(str(error.value).replace("sekret", "secret"))
        assert len(refusals) == 1


def test_a_local_folder_is_not_a_model_for_visitors(policy, files, monkeypatch):
    (files / "org" / "model").mkdir(parents=True)
    monkeypatch.chdir(files)
    for name in (str(files / "org/model"), "./org/model", "run:../x", "scratch:/etc", "use:/etc"):
        with pytest.raises(InputError):
            policy.check_model(name)
    # As if it were nowhere.
    with pytest.raises(
        NotFoundError, match=r"^model org/model was not found; check the name and the network$"
    ):
        policy.check_model("org/model")
    assert policy.check_model("org/other") == "org/other"
    assert AccessPolicy([files / "org"]).check_model(str(files / "org/model"))


def test_retrieval_data_is_where_other_data_may_be(policy, files):
    folder = files / "uploads" / "beir"
    folder.mkdir()
    for name in (f"beir:{folder}", f"beir:{folder}:test", f"beir:{files}/uploads/mine.csv"):
        assert policy.check_data(name) == name
    for name in (
        f"{files}:test",
        f"{folder}/..:test",
        f"{folder}/../..:test",
        f"{files}/secret.env",
    ):
        with pytest.raises(InputError, match="cannot be used here"):
            policy.check_data(f"beir:{name}")
    # The answer is the same as if there were no such folder.
    with pytest.raises(InputError, match="data 'beir:/tmp:test' cannot be used here"):
        policy.check_data("beir:/tmp:test")


def test_an_upload_may_be_named_but_not_a_link_out_of_its_folder(policy, files):
    upload = str(files / "uploads" / "mine.csv")
    assert policy.check_data(upload) == upload
    assert policy.check_data(f"stsb:dev+{upload}")
    for name in ("link.csv", "../secret.env", "sub/../../secret.env", ""):
        with pytest.raises(InputError):
            policy.check_data(f"{files / 'uploads'}/{name}")


def test_a_name_joined_to_an_upload_is_checked_as_the_loader_reads_it(policy, files):
    """As a path, "<upload>+<other path>" lies in the folder of uploads; it is read as two files."""
    upload = files / "uploads" / "mine.csv"
    secret = files / "secret.env"
    for name in (
        f"{upload}+{secret}",
        f"{upload}?encoding=koi8-r+{secret}",
        f"{upload}+{secret}?encoding=koi8-r",
    ):
        with pytest.raises(
            InputError, match=r"cannot be used here|there is no text encoding"
        ) as error:
            load_data(policy.check_data(name))
        assert "PASSWORD" not in str(error.value)
    assert policy.check_data(f"{upload}?encoding=koi8-r")
    assert policy.check_data(f"{upload}=mnrl+stsb:train=cosent")
    for name in (
        f"{secret}?encoding=koi8-r",
        "/etc/passwd?encoding=utf-8",
        f"{upload}=mnrl+{secret}=cosent",
    ):
        with pytest.raises(InputError, match="cannot be used here"):
            policy.check_data(name)


def test_the_number_of_joined_data_sets_is_limited(policy):
    assert policy.check_data("+".join(["stsb:dev"] * 20))
    with pytest.raises(InputError, match="200,000 data sets are joined; at most 20"):
        policy.check_data("stsb+" * 200_000)


def test_a_file_named_like_joined_data_sets_is_a_file(policy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert policy.check_data("stsb+sts12")
    Path("stsb+sts12").touch()
    with pytest.raises(InputError, match=r"'stsb\+sts12' cannot be used here"):
        policy.check_data("stsb+sts12")


def test_the_size_of_random_weights_is_limited(policy):
    assert policy.check_model("scratch:12x768")
    assert policy.check_model("scratch:24x384")
    for name in ("scratch:24x1024", "scratch:13x768", "scratch:99x9999"):
        with pytest.raises(InputError, match="larger than scratch:12x768"):
            policy.check_model(name)


def test_the_base_and_the_teacher_of_a_run_are_checked(policy):
    assert policy.check_run(RunConfig("mse", teacher="minilm-stsb")).teacher == "minilm-stsb"
    for names in ({"base": "/etc/passwd"}, {"teacher": "/etc/passwd"}):
        with pytest.raises(InputError, match="model '/etc/passwd' cannot be used here"):
            policy.check_run(RunConfig("mse", **{"teacher": "minilm-stsb", **names}))


def test_texts_are_sent_to_the_servers_that_are_allowed_and_to_no_others(files):
    policy = AccessPolicy(endpoints=("localhost:11434", "api.openai.com:443"))
    for url in (
        "http://localhost:11434/v1",
        "HTTP://LocalHost:11434/v1",
        "https://api.openai.com/v1",
    ):
        assert policy.check_model(f"endpoint:{url}#m?dim=8")
    for address in (
        "localhost:11435",
        "localhost:80",
        "127.0.0.1:11434",
        "[::1]:11434",
        "localhost.:11434",
    ):
        name = f"endpoint:http://{address}/v1#m"
        with pytest.raises(
            InputError,
            match=r"no texts are sent to '.*' from here; .* serve --allow-endpoint HOST:PORT",
        ):
            policy.check_model(name)
        with pytest.raises(InputError, match="no texts are sent to"):
            policy.check_run(RunConfig("mse", teacher=name))
    with pytest.raises(InputError, match=r"no texts are sent to 'api\.openai\.com:80' from here"):
        # Which would send the key readable to all.
        policy.check_model("endpoint:http://api.openai.com/v1#m")


def test_an_app_for_everybody_fetches_nothing_and_trains_briefly(files):
    policy = AccessPolicy([files], is_public=True)
    for allowed in (
        "all-MiniLM-L6-v2",
        "minilm-stsb",
        "tfidf",
        "scratch:1x32",
        "run:20261124-031200-mine",
    ):
        assert policy.check_model(allowed) == allowed
    for refused in ("BAAI/bge-small-en-v1.5", "/etc", "scratch:99x9999"):
        with pytest.raises(InputError):
            policy.check_model(refused)
    assert policy.check_data("stsb:dev") == "stsb:dev"
    for refused in ("snli", "hf:org/name", "/etc/passwd"):
        with pytest.raises(InputError, match=r"give stsb$"):  # and nothing that it refuses
            policy.check_data(refused)
    for steps, trained in ((None, 200), (10_000, 200), (5, 5)):
        assert policy.check_run(RunConfig("regression", max_steps=steps)).max_steps == trained


def test_a_run_of_a_public_app_is_bounded_by_rows_and_tokens_of_a_batch(files):
    policy = AccessPolicy([files], is_public=True)
    assert policy.check_run(RunConfig("regression", batch_size=64)).max_steps == 200
    assert policy.check_run(
        RunConfig("regression", batch_size=64, gradient_accumulation_steps=20, max_steps=10)
    )
    for settings, sentence in (
        (
            {"batch_size": 65_536},
            "200 steps of 65,536 rows are 13,107,200, .* trains on 12,800 rows",
        ),
        ({"batch_size": 16, "gradient_accumulation_steps": 1_000}, "200 steps of 16,000 rows"),
        ({"batch_size": 128, "max_steps": 10}, "a batch may have 32,768 tokens, .* takes 16,384"),
        ({"batch_size": 64, "max_length": 512}, "a batch may have 32,768 tokens"),
    ):
        with pytest.raises(InputError, match=sentence):
            policy.check_run(RunConfig("regression", **settings))
    assert AccessPolicy([files]).check_run(RunConfig("regression", batch_size=65_536))


def test_every_way_to_start_runs_trains_as_briefly(tmp_path):
    (tmp_path / "pairs.csv").write_text(
        "sentence1,sentence2,score\n" + "A cat sleeps.,A dog barks.,1.5\n" * 400
    )
    jobs = RunQueue(RunStore(tmp_path / "home"))
    jobs.starts_workers = False
    access = AccessPolicy([tmp_path], is_public=True)
    pairs = str(tmp_path / "pairs.csv")
    config = RunConfig(
        "regression", base="scratch:1x32", train_data=pairs, eval_data=pairs, max_steps=10_000
    )
    experiment = Experiments(jobs, access.check_run).start(new_seeds(config, "0,1"))
    services = SimpleNamespace(access=access, jobs=jobs)
    endpoint = ENDPOINTS["start_run"]
    body = {"base": "scratch:1x32", "train_data": pairs, "eval_data": pairs, "max_steps": 10_000}
    endpoint.function(Call(services), endpoint.body.parse(body))
    assert len(experiment.runs) == 2 and len(jobs.store.list()) == 3
    assert {run.config.max_steps for run in jobs.store.list()} == {200}
