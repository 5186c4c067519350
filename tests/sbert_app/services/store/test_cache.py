"""Caches: what is stored is found, damaged files count as absent, the least recently used entries are evicted."""

import hashlib
import time

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sbert_app.services.store.cache import DiskCache, LRUCache, digest


class TestDiskCache:
    def test_a_stored_array_is_read_back(self, tmp_path):
        cache = DiskCache(tmp_path / "deep" / "cache")
        cache.put("a", np.arange(3))
        assert cache.get("a").tolist() == [0, 1, 2]
        assert cache.get("b") is None

    def test_an_array_that_is_larger_than_the_cache_is_not_stored(self, tmp_path):
        cache = DiskCache(tmp_path, max_bytes=1_000)
        cache.put("a", np.zeros(10))
        cache.put("b", np.zeros(1_000))
        assert (cache.get("a") is not None, cache.get("b")) == (True, None)

    @given(at=st.integers(0, 10**6), bit=st.integers(0, 7))
    def test_no_flipped_bit_is_an_error(self, tmp_path_factory, at, bit):
        """What is read has the shape that was written, or counts as absent and is computed anew."""
        cache = DiskCache(tmp_path_factory.mktemp("cache"))
        cache.put("a", np.zeros((8, 3), np.float32))
        cache.put_arrays("a", {"x": np.zeros((8, 3), np.float32), "y": np.arange(5)})
        for file in cache.folder.iterdir():
            content = bytearray(file.read_bytes())
            content[at % len(content)] ^= 1 << bit
            file.write_bytes(content)
        assert cache.get_or_compute("a", lambda: np.zeros((8, 3))).size == 24
        assert (
            (arrays := cache.get_arrays("a")) is None
            or "x" not in arrays
            or arrays["x"].shape == (8, 3)
        )

    def test_a_damaged_file_of_the_cache_counts_as_absent(self, tmp_path):
        for content in (
            b"",
            b"\x93NUMPY\x01\x00v\x00{'descr'",
            b"no array at all",
            b"PK\x03\x04 nothing",
        ):
            (tmp_path / "a.npz").write_bytes(content)
            assert DiskCache(tmp_path).get("a") is None
        (tmp_path / "b.npz" / "inside").mkdir(parents=True)
        DiskCache(tmp_path).get_or_compute("b", lambda: np.zeros(3))
        assert DiskCache(tmp_path).get("b") is not None
        np.savez(tmp_path / "a.npz", array=np.array([object()]))
        assert DiskCache(tmp_path).get("a") is None

    def test_an_unwritable_folder_of_the_cache_is_no_error(self, tmp_path):
        blocked = tmp_path / "file"
        blocked.write_text("not a folder")
        cache = DiskCache(blocked / "cache")
        cache.put("a", np.zeros(1))
        assert cache.get("a") is None

    def test_the_least_recently_used_is_evicted_though_one_may_exceed_the_size(self, tmp_path):
        cache = DiskCache(tmp_path, max_bytes=2_500)  # two of 928
        for name in "abc":
            cache.put(name, np.zeros(100))
            time.sleep(0.02)  # a file system's clock ticks slowly
            cache.get("a")
        assert [name for name in "abc" if cache.get(name) is not None] == ["a", "c"]
        cache = LRUCache(10, len)
        cache.put("short", "12345")
        cache.put("long", "x" * 11)
        assert ("short" in cache, cache.get("long")) == (False, "x" * 11)
        cache = LRUCache(2)
        for key in "abc":
            cache.put(key, key.upper())
            cache.get("a")
        assert [cache.get(key) for key in "abc"] == ["A", None, "C"]
        cache = LRUCache(5)
        for key in ("ab", "ac", "b"):
            cache.put(key, key)
        cache.remove(lambda key: key.startswith("a"))
        assert len(cache) == 1

    def test_shipped_files_are_read_and_never_changed(self, tmp_path):
        shipped = tmp_path / "shipped"
        DiskCache(shipped).put("a", np.arange(3))
        before = {file: hashlib.sha256(file.read_bytes()).digest() for file in shipped.iterdir()}
        cache = DiskCache(tmp_path / "own", max_bytes=10, shipped=shipped)
        assert cache.get("a").tolist() == [0, 1, 2]
        cache.put("b", np.zeros(1, dtype=np.int8))
        assert {
            file: hashlib.sha256(file.read_bytes()).digest() for file in shipped.iterdir()
        } == before

    def test_named_arrays_are_cached_together_and_count_towards_its_size(self, tmp_path):
        cache = DiskCache(tmp_path, max_bytes=2_500)
        cache.put_arrays("old", {"x": np.arange(200), "y": np.array([0.5])})
        arrays = cache.get_arrays("old")
        assert {name: array.tolist() for name, array in arrays.items()} == {
            "x": [*range(200)],
            "y": [0.5],
        }
        assert cache.get_arrays("b") is None
        time.sleep(0.02)
        cache.put("new", np.zeros(200))
        assert cache.get_arrays("old") is None
        assert cache.get("new") is not None


@given(st.lists(st.text()), st.lists(st.text()))
def test_a_digest_identifies_its_texts(first, second):
    without_nul = (
        [text.replace("\0", "") for text in first],
        [text.replace("\0", "") for text in second],
    )
    assert (digest(without_nul[0]) == digest(without_nul[1])) == (without_nul[0] == without_nul[1])


def test_many_entries_are_evicted_as_large_ones_are():
    cache = LRUCache(10, len, max_count=2)
    assert [cache.put(key, "x") for key in "abc"] == [False, False, True]
    assert list(cache) == ["b", "c"]
    assert cache.put("d", "x" * 10)
    assert list(cache) == ["d"]
