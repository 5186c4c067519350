"""Any data set of the Hub by name: the real `datasets` library against a Hub on loopback.

Importing the library takes seconds, so the names of one situation are loaded by one process.
"""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from hub_server import HubServer
from huggingface_hub.errors import HTTPError
from remote import Client, write

from training.catalogue import NLI_LABELS
from training.data.load import NANO_REPO
from training.errors import InputError
from training.sources import hub, hub_dataset
from training.sources.hub_dataset import read_dataset

NLI_CARD = """---
dataset_info:
  features:
  - name: premise
    dtype: string
  - name: hypothesis
    dtype: string
  - name: label
    dtype:
      class_label:
        names: {'0': contradiction, '1': neutral, '2': entailment}
  - name: idx
    dtype: int64
---
"""
CONFIGS_CARD = """---
configs:
- config_name: en
  data_files:
  - {split: train, path: en/train.csv}
  - {split: test, path: en/test.csv}
- config_name: de
  data_files:
  - {split: test, path: de/test.csv}
---
"""


def parquet(path: Path, **columns: list) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def text(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")


def nli(folder: Path) -> Path:
    """A Parquet set whose class labels are numbered otherwise than usual; one row has none."""
    for split, labels in {"train": [0, 1, 2, -1], "validation": [2, 0]}.items():
        rows = range(len(labels))
        parquet(
            folder / f"data/{split}-00000-of-00001.parquet",
            premise=[f"{split} {i}" for i in rows],
            hypothesis=[f"so {i}" for i in rows],
            label=labels,
            idx=list(rows),
        )
    text(folder / "README.md", NLI_CARD)
    return folder


def configs(folder: Path) -> Path:
    """Two configurations of CSV files, none of them the default."""
    for name in ("en/train", "en/test", "de/test"):
        text(
            folder / f"{name}.csv",
            f"id,text_a,Text B,similarity\n1,{name},yes,0.5\n2,{name},no,1.0\n",
        )
    text(folder / "README.md", CONFIGS_CARD)
    return folder


def sentences(folder: Path) -> Path:
    """A single JSON Lines file, without a card."""
    rows = [{"text": f"Number {i}.", "url": "x" * 50} for i in range(5)]
    text(folder / "all.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    return folder


def stsb(folder: Path) -> Path:
    """The Hub's copy of the STS benchmark: scores are divided by 5, the development split is called validation."""
    for split in ("train", "validation", "test"):
        parquet(
            folder / f"data/{split}-0.parquet",
            sentence1=[split, "a"],
            sentence2=["b", "c"],
            score=[0.7, 0.0],
        )
    return folder


def sts13(folder: Path) -> Path:
    text(folder / "test.jsonl", '{"sentence1": "a", "sentence2": "b", "score": 3.5}\n')
    return folder


def nanobeir(folder: Path) -> Path:
    """Two sets of NanoBEIR: a configuration for each table, a split for each set."""
    tables = {
        "corpus": {"_id": ["d1", "d2"], "text": ["A dog.", "A cat."]},
        "queries": {"_id": ["q1"], "text": ["dogs"]},
        "qrels": {"query-id": ["q1"], "corpus-id": ["d1"]},
    }
    card = "---\nconfigs:\n"
    for config, columns in tables.items():
        card += f"- config_name: {config}\n  data_files:\n"
        for split in ("NanoSciFact", "NanoNQ"):
            parquet(folder / f"{config}/{split}.parquet", **columns)
            card += f"  - {{split: {split}, path: {config}/{split}.parquet}}\n"
    text(folder / "README.md", f"{card}---\n")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("hub")


@pytest.fixture(scope="module")
def server(folder):
    triplets = folder / "triplets"
    parquet(triplets / "train.parquet", anchor=["a"], positive=["p"], negative=["n"])
    text(folder / "odd/train.csv", "id,headline,score\n1,Hello.,3\n")
    with HubServer(
        datasets={
            "org/nli": nli(folder / "nli"),
            "org/configs": configs(folder / "configs"),
            "org/sentences": sentences(folder / "sentences"),
            "org/triplets": triplets,
            "org/old": folder / "nli",
            "org/odd": folder / "odd",
            "org/empty": write(folder / "empty", "README.md", "model.bin"),
            "mteb/sts13-sts": sts13(folder / "sts13"),
            "sentence-transformers/stsb": stsb(folder / "stsb"),
            "org/script": write(folder / "script", "script.py", "train.csv"),
            "org/damaged": write(folder / "damaged", "train.parquet"),
            "org/gated": sentences(folder / "gated"),
            NANO_REPO: nanobeir(folder / "nanobeir"),
        }
    ) as server:
        server.gated.add("org/gated")
        server.aliases["datasets/old"] = "datasets/org/old"
        yield server


# What a name chooses of configurations and splits.
LOADED = {
    "hf:org/nli": "hf:org/nli:default:train",
    "hf:org/nli:validation": "hf:org/nli:default:validation",
    "hf:org/nli:default:dev": "hf:org/nli:default:validation",
    "hf:org/nli::train": "hf:org/nli:default:train",
    "hf:old": "hf:old:default:train",
    "hf:org/configs:de": "hf:org/configs:de:test",  # it has no other split
    "hf:org/configs:en:test": "hf:org/configs:en:test",
    "hf:org/sentences": "hf:org/sentences:default:train",
    "hf:org/triplets": "hf:org/triplets:default:train",
    "hf:org/nli:train+hf:org/nli:dev": "hf:org/nli:default:train+hf:org/nli:default:validation",
    "sts13": "sts13:test",
    "stsb:dev": "stsb:dev",
}
REFUSED = {
    "hf:org/no-such": "it has no data set of this name (misspelt, or private?)",
    "hf:org/gated": "to ask for access. (if it is gated, accept its terms on the Hub and set HF_TOKEN)",
    "hf:org/nli:test": "has no split or configuration 'test'; its splits are train, validation",
    "hf:org/nli:other:train": "data set org/nli has no configuration 'other'; choose default",
    "hf:org/configs": "has several configurations; name one, as in hf:org/configs:en: en, de",
    "hf:org/configs:fr": "has no configuration 'fr'; name one, as in hf:org/configs:en: en, de",
    "hf:org/odd": "hf:org/odd has the columns id, headline, score; it needs sentence1 and sentence2",
    "hf:org/empty": "data set org/empty holds no files of a known format",
    "hf:org/script": "is made by a script, and scripts of others are not run",
    "hf:org/damaged": "data set org/damaged cannot be read",
    "hf:org/nli:a:b:c": "write hf:org/name, hf:org/name:config:split",
    "hf:../x": "write hf:org/name, hf:org/name:config:split",
}


@pytest.fixture(scope="module")
def client(tmp_path_factory, server) -> Client:
    client = Client(tmp_path_factory.mktemp("client"))
    client.use(server)
    return client


@pytest.fixture(scope="module")
def answers(client) -> dict[str, dict]:
    names = [*LOADED, *REFUSED, "nanobeir:SciFact"]
    return dict(zip(names, client.load(*names), strict=True))


def test_columns_and_class_labels_of_hub_data_are_found_as_in_files(answers, server):
    labelled = answers["hf:org/nli"]
    assert labelled["columns"] == [["train 0", "train 1", "train 2"], ["so 0", "so 1", "so 2"]]
    assert (labelled["labels"], tuple(labelled["label_names"])) == ([2, 1, 0], NLI_LABELS)
    assert labelled["notes"] == ["1 row without a gold label left out"]
    assert labelled["source"] == f"Hub {server.url}"
    assert answers["hf:org/nli:train+hf:org/nli:dev"]["labels"] == [2, 1, 0, 0, 2]
    scored = answers["hf:org/configs:en:test"]
    assert (scored["columns"][1], scored["scores"]) == (["yes", "no"], [2.5, 5.0])
    assert scored["notes"] == ["read as: scores from 0 to 1 stretched to 0–5"]
    assert answers["hf:org/sentences"]["columns"] == [[f"Number {i}." for i in range(5)]]
    assert answers["hf:org/triplets"]["columns"] == [["a"], ["p"], ["n"]]
    assert answers["sts13"]["scores"] == [3.5]
    assert (answers["stsb:dev"]["columns"][0], answers["stsb:dev"]["scores"]) == (
        ["validation", "a"],
        [3.5, 0.0],
    )
    retrieval = answers["nanobeir:SciFact"]
    assert (retrieval["queries"], retrieval["documents"]) == (["dogs"], ["A dog.", "A cat."])
    assert retrieval["relevant"] == [{"0": 1.0}]


def test_a_name_chooses_configuration_and_split(answers):
    assert {name: answers[name]["name"] for name in LOADED} == LOADED


def test_a_data_set_that_cannot_be_had_is_one_clear_sentence(answers):
    for name, words in REFUSED.items():
        assert words in answers[name]["error"]
        assert "\n" not in answers[name]["error"]


def test_a_data_set_is_downloaded_once_without_its_script(answers, server, client):
    before = len(server.requests)
    dev, test = client.load("hf:org/nli", "hf:org/configs:de", split="dev")
    assert (dev["name"], dev["labels"]) == ("hf:org/nli:default:validation", [0, 2])
    assert test["name"] == "hf:org/configs:de:test"
    assert not [
        request for request in server.requests[before:] if request.endswith((".parquet", ".csv"))
    ]
    assert not [
        request
        for request in server.requests
        if request.startswith("GET") and request.endswith(".py")
    ]


def test_a_downloaded_data_set_is_there_offline(client, answers, server):
    client.environment["HF_HUB_OFFLINE"] = "1"
    try:
        before = len(server.requests)
        cached, chosen, several, unknown = client.load(
            "hf:org/nli:dev", "hf:org/configs:en:test", "hf:org/configs", "hf:org/never"
        )
    finally:
        client.environment["HF_HUB_OFFLINE"] = "0"
    assert len(server.requests) == before
    assert (cached["labels"], cached["source"]) == ([0, 2], "Hub cache")
    assert chosen["name"] == "hf:org/configs:en:test"
    assert "data set org/configs is not in the Hub cache" in several["error"]
    assert "data set org/never is not in the Hub cache" in unknown["error"]
    assert "offline (HF_HUB_OFFLINE)" in unknown["error"]


@pytest.mark.slow
def test_large_sets_are_streamed_and_leave_nothing(tmp_path, server):
    client = Client(tmp_path)
    client.use(server)
    labelled, plain = client.load(
        "hf:org/nli:train", "hf:org/sentences", LARGEST_DOWNLOAD=10, MOST_ROWS=3
    )
    assert labelled["labels"] == [2, 1, 0]
    assert plain["columns"] == [["Number 0.", "Number 1.", "Number 2."]]
    assert plain["notes"] == [
        "streamed from the Hub (0.0 GB); nothing is kept on the disk",
        "only the first 3 rows are read",
    ]
    assert not [
        file for file in client.cache.rglob("*") if file.suffix in (".arrow", ".parquet", ".jsonl")
    ]


def test_the_home_folder_comes_before_the_hub_and_needs_none(tmp_path):
    client = Client(tmp_path)
    configs(client.home / "data/org/configs")
    (nli(client.home / "data/org/nli") / "README.md").unlink()
    sts13(client.home / "data/mteb/sts13-sts")
    client.environment["HF_HUB_OFFLINE"] = "1"
    scored, labelled, sts = client.load("hf:org/configs:en:test", "hf:org/nli:dev", "sts13")
    assert (sts["scores"], sts["source"]) == ([3.5], "home folder")
    assert (scored["scores"], scored["source"]) == ([2.5, 5.0], "home folder")
    # Without a card numbers beside a premise and a hypothesis are those of inference, as in a file.
    assert [labelled["label_names"][label] for label in labelled["labels"]] == [
        "contradiction",
        "entailment",
    ]


def test_a_hub_that_is_away_or_breaks_off_is_one_sentence(alone):
    with pytest.raises(
        InputError, match=r"not in the Hub cache .* there is no connection to http://127.0.0.1:\d+"
    ):
        read_dataset("org/nli", (), "train", list)
    told = r"data set org/pairs: the connection to .* broke off \(connection reset by peer\)"
    with pytest.raises(InputError, match=told), hub_dataset._explained("org/pairs"):
        raise HTTPError("connection reset by peer")  # of the HTTP client that huggingface_hub has


@pytest.mark.parametrize("card", ["README.md", ".huggingface.yaml"])
@pytest.mark.parametrize(
    "place",
    [
        "/etc/passwd",
        "../../x.csv",
        "file:///x.csv",
        "http://127.0.0.1/x.csv",
        "zip://*.csv::/x.zip",
        "~/x.csv",
        "a\\b",
    ],
)
def test_a_card_that_names_places_outside_of_its_repository_is_refused(
    monkeypatch, tmp_path, card: str, place: str
):
    described = SimpleNamespace(
        id="evil/set", sha="0" * 40, siblings=[SimpleNamespace(rfilename=card, size=9)]
    )
    settings = json.dumps(
        {
            "configs": [
                {"config_name": "a", "data_files": [{"split": "test", "path": ["x.csv", place]}]}
            ]
        }
    )
    monkeypatch.setattr(hub_dataset, "is_offline", lambda: False)
    monkeypatch.setattr(hub, "repo_info", lambda _: described)
    monkeypatch.setattr(
        hub, "read_file", lambda *_: f"---\n{settings}\n---\n" if card == "README.md" else settings
    )
    with pytest.raises(InputError, match="outside of its repository"):
        read_dataset("evil/set", (), "test", list, tmp_path)
