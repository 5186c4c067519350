"""`models/cache.py`: one load per name however many threads ask, the least recently used evicted."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch

from sbert_app.services.models.cache import ModelCache, model_bytes
from training.errors import InputError
from training.models.encoder import Encoder
from training.models.model import Model, VectorModel
from training.names import ModelName
from training.sources import hub
from training.sources.resolve import model_folder


@pytest.fixture
def loads(monkeypatch):
    """The names loaded, in order; each load takes a moment."""
    names = []
    real = Encoder.load

    def slow(name, **rest):
        names.append(str(name))
        time.sleep(0.05)
        return real(name, **rest)

    monkeypatch.setattr(Encoder, "load", slow)
    return names


def test_twenty_threads_cause_one_load(home, loads):
    models = ModelCache(home)
    got = []
    threads = [
        threading.Thread(target=lambda: got.append(models.get("scratch:1x32", Encoder)))
        for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert loads == ["scratch:1x32"]
    assert len(got) == 20
    assert all(encoder is got[0] for encoder in got)


def test_the_least_recently_used_model_goes(home, loads):
    models = ModelCache(home, capacity=2)
    for name in (
        "scratch:1x32",
        "scratch:1x64",
        "scratch:1x32",
        "scratch:1x96",
        "scratch:1x32",
        "scratch:1x64",
    ):
        models.get(name, Encoder)
    assert loads == ["scratch:1x32", "scratch:1x64", "scratch:1x96", "scratch:1x64"]


def test_poolings_of_a_model_share_its_weights(home, loads):
    models = ModelCache(home)
    mean = models.get("scratch:1x32", Encoder, "mean")
    cls = models.get("scratch:1x32", Encoder, "cls")
    assert loads == ["scratch:1x32"]
    assert mean.backbone is cls.backbone
    assert (mean.pooling, cls.pooling) == ("mean", "cls")


def test_another_precision_is_another_model_and_is_forgotten_with_it(home, loads):
    models = ModelCache(home)
    exact, short = (
        models.get(f"scratch:1x32?dtype=float32{more}", Encoder) for more in ("", "&dim=8")
    )
    models.get("scratch:1x32", Encoder)
    assert loads == ["scratch:1x32?dtype=float32", "scratch:1x32"]
    assert exact.dtype == torch.float32
    assert short.backbone is exact.backbone
    assert models.has("scratch:1x32?dim=4&dtype=float32")
    models.forget(ModelName("scratch:1x32"))
    assert not models.has("scratch:1x32?dtype=float32")
    models.get("scratch:1x32", Encoder)
    assert loads[2:] == ["scratch:1x32"]


def test_a_model_that_nobody_asks_for_leaves_the_memory(home, monkeypatch):
    models = ModelCache(home)
    now = [0.0]
    monkeypatch.setattr("sbert_app.services.models.cache.time.monotonic", lambda: now[0])
    for now[0], name in ((0.0, "scratch:1x32"), (50.0, "scratch:1x64")):
        models.get(name, Encoder)
    now[0] = 70.0
    models.drop_idle(60)
    assert not models.has("scratch:1x32") and models.has("scratch:1x64")


def test_a_download_that_hangs_holds_up_no_other_model(home, monkeypatch):
    has_begun = threading.Event()
    may_end = threading.Event()

    def hang(name, home, fetch):
        if name != "org/slow":
            return model_folder(name, home, fetch)
        has_begun.set()
        may_end.wait(60)
        raise InputError("the server says nothing")

    monkeypatch.setattr("training.models.folder.model_folder", hang)
    models = ModelCache(home)
    with ThreadPoolExecutor(1) as executor:
        slow = executor.submit(models.get, "org/slow", Encoder)
        assert has_begun.wait(60)
        assert models.get("scratch:1x32", Encoder).dimension == 32
        assert not slow.done()
        may_end.set()
        with pytest.raises(InputError, match="says nothing"):
            slow.result()


def test_a_failed_load_is_tried_again(home):
    models = ModelCache(home)
    for _ in range(2):
        with pytest.raises(InputError):
            models.get("scratch:99x7", Encoder)


def test_none_is_not_a_cross_encoder(home):
    assert ModelCache(home).cross_encoder_or_none("none") is None
    assert ModelCache(home).cross_encoder_or_none("") is None


@pytest.mark.slow
def test_the_least_recently_used_go_when_the_weights_take_too_much_memory(home):
    small = model_bytes(Encoder.load("scratch:1x32", home=home))
    models = ModelCache(home, capacity=100, max_bytes=3 * small)
    for layers in (1, 2, 1, 1):
        models.get(f"scratch:{layers}x32", Encoder)
    assert models.has("scratch:1x32")
    # Alone more than all may have together: the others go, it stays.
    models.get("scratch:1x128", Encoder)
    assert [models.has(name) for name in ("scratch:1x32", "scratch:2x32", "scratch:1x128")] == [
        False,
        False,
        True,
    ]


def test_the_size_of_a_model_counts_weights_and_the_copy_for_inference(home):
    encoder = Encoder.load("scratch:2x64", home=home)
    weights = sum(parameter.nbytes for parameter in encoder.backbone.parameters())
    assert model_bytes(encoder) == pytest.approx(weights, rel=0.05)
    encoder.encode(["a sentence"])
    assert 1.3 * weights < model_bytes(encoder) < 2.2 * weights
    assert model_bytes(encoder.with_pooling("max")) == model_bytes(encoder)  # shared, not copied


def test_a_run_is_one_model_by_its_id_and_by_its_name(tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "all-MiniLM-L6-v2").symlink_to(model_folder("all-MiniLM-L6-v2").path)
    Encoder.load("scratch:1x32", pooling="max", home=tmp_path).save(
        tmp_path / "runs/20261121-my-run/model"
    )
    (tmp_path / "runs/20261121-my-run/name.txt").write_text("my run")
    models = ModelCache(tmp_path)
    assert models.own_pooling("run:my run") == "max"
    assert (
        models.get("run:my run", Encoder).backbone
        is models.get("run:20261121-my-run", Encoder).backbone
    )
    assert models.get("run:my run", Encoder).name == "run:20261121-my-run"
    assert models.is_here("run:my run")
    assert models.own_pooling("run:no such run") is None


def test_a_model_that_is_not_downloaded_yet_is_not_opened_for_its_pooling(tmp_path):
    models = ModelCache(tmp_path)
    assert not models.is_here("all-mpnet-base-v2")
    assert not models.is_here("mpnet-stsb")
    assert models.is_here("scratch:1x32")
    assert models.own_pooling("org/some-model") is None


def test_the_pooling_of_a_model_is_asked_of_the_weights_that_the_name_states(home):
    models = ModelCache(home)
    assert models.own_pooling("scratch:1x32?dtype=bfloat16&dim=8:max") == "max"
    assert models.has("scratch:1x32?dtype=bfloat16")
    assert not models.has("scratch:1x32")


def test_what_a_model_has_to_be_is_asked_by_type(home):
    models = ModelCache(home)
    assert type(models.get("tfidf", Model)).__name__ == "TfIdf"
    assert models.get("scratch:1x32", VectorModel) is models.get("scratch:1x32", Encoder)
    for name, kind in {"tfidf": "sparse encoder", "minilm-stsb": "cross-encoder"}.items():
        with pytest.raises(InputError, match=f"{name} is a {kind}; choose a bi-encoder"):
            models.get(name, VectorModel)
    with pytest.raises(InputError, match="scratch:1x32 is a bi-encoder; choose a cross-encoder"):
        models.cross_encoder_or_none("scratch:1x32")


def test_a_model_with_a_prompt_for_each_side_is_downloaded_once(home, monkeypatch):
    models = ModelCache(home)
    monkeypatch.setattr(models, "is_here", lambda _: False)
    models.download(["scratch:1x32?prompt_name=query|document"])
    assert models.has("scratch:1x32")


def test_the_size_of_a_download_is_told_by_the_listing_alone(tmp_path, monkeypatch):
    files = {"model.safetensors": 3_000_000, "config.json": 500_000, "pytorch_model.bin": 9_000_000}
    siblings = [SimpleNamespace(rfilename=name, size=size) for name, size in files.items()]
    monkeypatch.setattr(hub, "repo_info", lambda _: SimpleNamespace(siblings=siblings))
    cache = ModelCache(tmp_path)
    assert cache.missing(["org/tiny?dim=8", "mpnet-stsb"]) == [
        "org/tiny?dim=8 (4 MB)",
        "mpnet-stsb (404 MB)",
    ]
    assert (
        cache.missing(["all-MiniLM-L6-v2", "tfidf", "scratch:1x32", "a:b"], "stsb:dev+mine.csv")
        == []
    )
    monkeypatch.setattr(hub, "repo_info", Mock(side_effect=ConnectionError("no answer")))
    assert cache.missing(["org/tiny"], "sts12") == [
        "org/tiny (of unknown size)",
        "sts12 (of unknown size)",
    ]
    monkeypatch.setattr(
        hub, "repo_info", Mock(side_effect=FileNotFoundError("it has no model of this name"))
    )
    assert cache.missing(["org/tiny"], "hf:org/set") == []
