"""ModelCache: one load per name however many threads ask, least recently used evicted, poolings share weights."""

import threading
import time

import pytest

from sbert_app.services.models.cache import ModelCache
from training.errors import InputError
from training.models.encoder import Encoder


@pytest.fixture
def loads(monkeypatch):
    """The names loaded, in order; each load takes a moment."""
    names = []
    real = Encoder.load

    def slow(name, **rest):
        names.append(name)
        time.sleep(0.05)
        return real(name, **rest)

    monkeypatch.setattr(Encoder, "load", slow)
    return names


def test_twenty_threads_cause_one_load(home, loads):
    models, got = ModelCache(home), []
    threads = [threading.Thread(target=lambda: got.append(models.encoder("scratch:1x32"))) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert loads == ["scratch:1x32"]
    assert len(got) == 20
    assert all(encoder is got[0] for encoder in got)


def test_the_least_recently_used_model_goes(home, loads):
    models = ModelCache(home, capacity=2)
    for name in ("scratch:1x32", "scratch:1x64", "scratch:1x32", "scratch:1x96", "scratch:1x32", "scratch:1x64"):
        models.encoder(name)
    assert loads == ["scratch:1x32", "scratch:1x64", "scratch:1x96", "scratch:1x64"]


def test_poolings_of_a_model_share_its_weights(home, loads):
    models = ModelCache(home)
    mean, cls = models.encoder("scratch:1x32", "mean"), models.encoder("scratch:1x32", "cls")
    assert loads == ["scratch:1x32"]
    assert mean.backbone is cls.backbone
    assert (mean.pooling, cls.pooling) == ("mean", "cls")


def test_a_failed_load_is_tried_again(home):
    models = ModelCache(home)
    for _ in range(2):
        with pytest.raises(InputError):
            models.encoder("scratch:99x7")


def test_a_forgotten_model_is_loaded_anew(home, loads):
    models = ModelCache(home)
    models.encoder("scratch:1x32")
    models.forget("scratch:1x32")
    models.encoder("scratch:1x32")
    assert loads == ["scratch:1x32"] * 2


def test_no_name_and_none_mean_no_cross_encoder(home):
    assert ModelCache(home).cross_encoder_or_none("none") is None
    assert ModelCache(home).cross_encoder_or_none("") is None
