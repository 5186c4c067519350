"""ModelShelf: one load per name however many ask, least recently used out, poolings share weights."""

import threading
import time

import pytest

from sbert_app.services.models.cache import ModelCache
from training.errors import InputError
from training.models.encoder import Encoder


@pytest.fixture
def loads(monkeypatch):
    """The names loaded, in order; each load takes a moment."""
    found = []
    real = Encoder.load

    def slow(name, **rest):
        found.append(name)
        time.sleep(0.05)
        return real(name, **rest)

    monkeypatch.setattr(Encoder, "load", slow)
    return found


def test_twenty_askers_cause_one_load(home, loads):
    shelf, got = ModelCache(home), []
    askers = [threading.Thread(target=lambda: got.append(shelf.encoder("scratch:1x32"))) for _ in range(20)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert loads == ["scratch:1x32"]
    assert len(got) == 20
    assert all(encoder is got[0] for encoder in got)


def test_the_least_recently_used_model_goes(home, loads):
    shelf = ModelCache(home, capacity=2)
    for name in ("scratch:1x32", "scratch:1x64", "scratch:1x32", "scratch:1x96", "scratch:1x32", "scratch:1x64"):
        shelf.encoder(name)
    assert loads == ["scratch:1x32", "scratch:1x64", "scratch:1x96", "scratch:1x64"]


def test_poolings_of_a_model_share_its_weights(home, loads):
    shelf = ModelCache(home)
    mean, cls = shelf.encoder("scratch:1x32", "mean"), shelf.encoder("scratch:1x32", "cls")
    assert loads == ["scratch:1x32"]
    assert mean.backbone is cls.backbone
    assert (mean.pooling, cls.pooling) == ("mean", "cls")


def test_a_failed_load_is_tried_again(home):
    shelf = ModelCache(home)
    for _ in range(2):
        with pytest.raises(InputError):
            shelf.encoder("scratch:99x7")


def test_a_forgotten_model_is_loaded_anew(home, loads):
    shelf = ModelCache(home)
    shelf.encoder("scratch:1x32")
    shelf.forget("scratch:1x32")
    shelf.encoder("scratch:1x32")
    assert loads == ["scratch:1x32"] * 2


def test_no_name_and_none_mean_no_cross_encoder(home):
    assert ModelCache(home).cross_encoder_or_none("none") is None
    assert ModelCache(home).cross_encoder_or_none("") is None
