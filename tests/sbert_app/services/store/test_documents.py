"""A damaged record is one sentence that names its file; it hides no other, and nothing is written over it."""

import multiprocessing
import os
import shutil
from dataclasses import dataclass, field

import pytest

from sbert_app.services.store.documents import DocumentStore, Timestamp
from training.errors import InputError


@dataclass(frozen=True)
class Note:
    text: str
    created: Timestamp = 1.0
    scores: tuple[int, ...] = ()
    runs: dict[str, str | None] = field(default_factory=dict)


NOTE = Note(
    "Äpfel, not pears", 1_790_000_000.5, (1, 22, 333), {"mean/0": None, "max/0": "20261121-max"}
)


@pytest.fixture(params=[".json", "/note.json"])
def store(request, tmp_path):
    store = DocumentStore(tmp_path / "notes", Note, request.param, what="note")
    for key in "abc":
        store.put(key, NOTE)
    return store


def expect_one_sentence(store, data: bytes | None = None) -> bool:
    """Whether b is damaged; then it is one sentence that names its file, and stays as it is."""
    documents, damaged = store.list()
    assert documents["a"] == documents["c"] == NOTE
    assert documents.keys() | {"b"} == {"a", "b", "c"}
    if not damaged:
        assert isinstance(store.get("b"), Note)
        return False
    (error,) = damaged
    assert str(error).startswith(f"{store.path('b')} cannot be read (")
    assert str(error).endswith("); repair it, or remove it")
    assert "\n" not in str(error)
    assert str(store.folder.parent) not in error.public  # a visitor sees no folder of the server
    for use in (lambda: store.get("b"), lambda: store.change("b", lambda note: NOTE)):
        with pytest.raises(InputError, match="repair it, or remove it"):
            use()
    assert data is None or store.path("b").read_bytes() == data
    assert store.create("b", NOTE) == "b-2"
    store.delete("b-2")
    return True


def test_documents_are_listed_changed_and_deleted(store):
    assert store.list() == ({"a": NOTE, "b": NOTE, "c": NOTE}, ())
    assert store.change("a", lambda note: Note("changed")) == store.get("a") == Note("changed")
    store.delete("a")
    assert list(store.list().documents) == ["b", "c"]
    assert {path.name for path in store.folder.glob("[!.]*")} <= {"b", "c", "b.json", "c.json"}


def test_documents_are_read_without_fields_of_later_versions(store):
    store.path("b").write_bytes(b'{"text": "b", "later": {"a": [1]}}')
    assert store.list() == ({"a": NOTE, "b": Note("b"), "c": NOTE}, ())


def test_what_is_not_a_document_is_left_alone(store):
    (store.folder / ".hidden.json").write_bytes(b"{")
    (store.folder / "read me").mkdir()
    (store.folder / os.fsdecode(b"\xff.json")).write_bytes(b"{")
    assert store.list() == ({"a": NOTE, "b": NOTE, "c": NOTE}, ())


def test_no_flipped_bit_and_no_truncation_hides_another_record(store):
    whole = store.path("b").read_bytes()
    damaged = 0
    for at in range(len(whole)):
        flipped = whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :]
        store.path("b").write_bytes(flipped)
        damaged += expect_one_sentence(store, flipped)
        store.path("b").write_bytes(whole[:at])
        assert at >= len(whole) - 2 or expect_one_sentence(store, whole[:at]), at
    assert damaged > len(whole) // 4


@pytest.mark.parametrize(
    "data",
    [
        bytes(range(256)),
        b"\xef\xbb\xbf{}",
        b"[" * 100_000,
        b'{"text": "a", "later": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"text": "a", "created": 1e400}',
        b'{"text": "a", "created": 1e12}',
        b'{"text": "a", "scores": [' + b"9" * 5_000 + b"]}",
        b'{"text": null}',
        b'{"text": "\\ud800"}',
        b'{"created": 1}',
        b"null",
        b"",
    ],
    ids=lambda data: data[:30].decode("latin-1"),
)
def test_a_damaged_document_is_one_sentence(store, data):
    store.path("b").write_bytes(data)
    assert expect_one_sentence(store, data)


@pytest.mark.parametrize("place", ["folder", "dangling link", "loop of links", "pipe"])
def test_another_thing_in_a_records_place_is_one_sentence(store, place):
    path = store.path("b")
    path.unlink()
    if place == "folder":
        path.mkdir()
    elif place == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(path if place == "loop of links" else path.parent / "nothing")
    assert expect_one_sentence(store)


def test_an_id_of_a_document_cannot_lead_out_of_its_folder(store):
    for key in ("", "..", "../a", "a/b", "a\0", "a\n", "-a", ".a", "a" * 200, "ä"):
        for use in (
            store.get,
            store.delete,
            lambda key: store.put(key, NOTE),
            lambda key: store.create(key, NOTE),
        ):
            with pytest.raises(InputError, match="there is no note"):
                use(key)


def test_a_document_that_cannot_be_written_stays_as_it_is(store):
    with pytest.raises(InputError, match="cannot be saved"):
        store.put("b", Note("\ud800"))
    assert store.get("b") == NOTE


def test_a_document_that_does_not_exist_is_named(store):
    with pytest.raises(InputError, match="there is no note 'd'"):
        store.get("d")


def test_a_full_disk_and_a_folder_that_is_none_are_one_sentence(store, monkeypatch):
    def write_bytes(path, data):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("sbert_app.services.store.documents.write_bytes", write_bytes)
        for use in (store.put, store.create, lambda key, note: store.change(key, lambda _: note)):
            with pytest.raises(InputError, match="cannot be written: No space left on device"):
                use("b", NOTE)
    assert store.list().documents == {"a": NOTE, "b": NOTE, "c": NOTE}
    shutil.rmtree(store.folder)
    assert store.list() == ({}, ())
    store.folder.write_text("a file")
    with pytest.raises(InputError, match="cannot be read"):
        store.list()
    with pytest.raises(InputError, match="cannot be written"):
        store.create("a", NOTE)


def _create(folder, suffix, start, number) -> None:
    store = DocumentStore(folder, Note, suffix)
    start.wait()
    for i in range(10):
        store.create("20261121-120000-pooling", Note(f"{number}/{i}"))


def test_processes_that_create_in_one_second_never_share_an_id(store):
    context = multiprocessing.get_context("fork")
    start = context.Event()
    makers = [
        context.Process(target=_create, args=(store.folder, store.suffix, start, n))
        for n in range(4)
    ]
    for maker in makers:
        maker.start()
    start.set()
    for maker in makers:
        maker.join()
    texts = [note.text for key, note in store.list().documents.items() if key.startswith("2026")]
    assert sorted(texts) == sorted(f"{n}/{i}" for n in range(4) for i in range(10))
