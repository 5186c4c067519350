"""What a person has changed about clusters: names, and clusters that were merged. Kept in the home folder.

    store = edit_store(home)
    found = edited(labels, store.get(key))           key = edits_key(embedded, settings)
    rename(store, key, found, 0, "finance")          the largest cluster
    merge(store, key, found, [0, 3])

Clusters are found again from the corpus, the model and the settings, and come out the same; changes are kept under the
numbers that the clusters have then, before anything is merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path

import numpy as np

from sbert_app.services.clusters.clustering import NOISE, ClusterSettings, by_size
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.embedded import EmbeddedCorpus
from sbert_app.services.store.cache import digest
from sbert_app.services.store.documents import DocumentStore
from training.errors import InputError

MAX_NAME = 60  # characters


@dataclass(frozen=True)
class ClusterEdits:
    """Changes of the clusters of one corpus under one model and one setting. Labels count from 0."""

    names: dict[int, str] = field(default_factory=dict)
    merged: dict[int, int] = field(default_factory=dict)  # label -> the label that it is part of now


EditStore = DocumentStore[ClusterEdits]


@dataclass(frozen=True, eq=False)
class EditedClusters:
    labels: np.ndarray  # int64 (N,): 0 the largest, −1 noise
    names: dict[int, str]  # of the labels that have one
    originals: list[int]  # of each label, the label under which its changes are kept


def edit_store(home: Path) -> EditStore:
    return DocumentStore(home / "explore" / "clusters", ClusterEdits, default=ClusterEdits())


def edits_key(embedded: EmbeddedCorpus, settings: ClusterSettings) -> str:
    """Under which changes are kept: the sentences, the model and the settings."""
    return digest(["cluster edits", embedded.key, *map(str, astuple(settings))])


def edited(labels: np.ndarray, edits: ClusterEdits) -> EditedClusters:
    """Apply changes to the labels of `clustering.cluster`, int64 (N,); the result is numbered by size again."""
    count = int(labels.max(initial=NOISE)) + 1
    part_of = np.arange(count + 1)
    part_of[-1] = NOISE  # of label −1
    for label, into in edits.merged.items():
        if 0 <= label < count and 0 <= into < count:
            part_of[label] = into
    merged = part_of[labels]
    numbered = by_size(merged)
    originals = [int(merged[np.argmax(numbered == label)]) for label in range(int(numbered.max(initial=NOISE)) + 1)]
    names = {label: edits.names[original] for label, original in enumerate(originals) if edits.names.get(original)}
    return EditedClusters(numbered, names, originals)


def rename(store: EditStore, key: str, found: EditedClusters, label: int, name: str) -> None:
    """Name a cluster; an empty name gives it back its keywords.

    Raises InputError if there is no such cluster, the name is too long, or it is empty and there was none.
    """
    original, name = _original(found, label), " ".join(name.split())
    if not name and label not in found.names:
        raise InputError("the cluster has no name to take away: type one, then press Rename.")
    if len(name) > MAX_NAME:
        raise InputError(f"the name has {len(name):,} characters; at most {MAX_NAME} fit.")
    store.change(key, lambda edits: replace(edits, names={**edits.names, original: name}))


def merge(store: EditStore, key: str, found: EditedClusters, labels: Sequence[int]) -> None:
    """Make one cluster of several. It has the name of the first of them that has one.

    Raises InputError if there are fewer than two, or one of them does not exist.
    """
    originals = sorted({_original(found, label) for label in labels})
    if len(originals) < 2:
        raise InputError("choose two clusters or more to merge.")
    into, parts = originals[0], set(originals[1:])

    def edit(edits: ClusterEdits) -> ClusterEdits:
        merged = {label: into if target in parts else target for label, target in edits.merged.items()}
        names = {label: name for label, name in edits.names.items() if label not in parts}
        name = next((edits.names[label] for label in originals if edits.names.get(label)), "")
        return ClusterEdits({**names, into: name} if name else names, {**merged, **dict.fromkeys(parts, into)})

    store.change(key, edit)


def _original(found: EditedClusters, label: int) -> int:
    if not 0 <= label < len(found.originals):
        raise InputError(f"there is no cluster {label + 1}; there are {len(found.originals)}.")
    return found.originals[label]


MAX_GROUPS = 20  # of a corpus: the map tells 21 apart
MAX_NAME = 60  # characters


@dataclass(frozen=True)
class Group:
    name: str
    colour: str  # of the palette: "blue"
    rows: tuple[int, ...]  # positions in the corpus, ascending


@dataclass(frozen=True)
class Groups:
    groups: tuple[Group, ...] = ()


GroupStore = DocumentStore[Groups]


def group_store(home: Path) -> GroupStore:
    return DocumentStore(home / "explore" / "groups", Groups, default=Groups())


def groups_of(store: GroupStore, corpus: Corpus) -> tuple[Group, ...]:
    """The groups of a corpus, the oldest first. Sentences that the corpus does not have are left out."""
    found = store.get(corpus.digest).groups
    return tuple(replace(group, rows=tuple(row for row in group.rows if row < len(corpus))) for group in found)


def save_group(store: GroupStore, corpus: Corpus, name: str, colour: str, rows: tuple[int, ...]) -> Group:
    """Keep a group; one of the same name is replaced.

    Raises InputError if the name is empty or too long, there is no sentence, or there are too many groups.
    """
    name = name.strip()
    if not name:
        raise InputError("the group has no name yet: type one, then press Save.")
    if len(name) > MAX_NAME:
        raise InputError(f"the name has {len(name):,} characters; at most {MAX_NAME} fit.")
    if not rows:
        raise InputError("no sentence is selected: draw a lasso or a box on the map first.")
    group = Group(name, colour, rows)

    def edit(document: Groups) -> Groups:
        others = _without(document, name)
        if len(others) >= MAX_GROUPS:
            raise InputError(f"this corpus has {len(others)} groups, which is the most: delete one first.")
        return Groups((*others, group))

    store.change(corpus.digest, edit)
    return group


def delete_group(store: GroupStore, corpus: Corpus, name: str) -> None:
    """Forget a group; nothing happens if there is none of that name."""
    store.change(corpus.digest, lambda document: Groups(_without(document, name)))


def _without(document: Groups, name: str) -> tuple[Group, ...]:
    return tuple(group for group in document.groups if group.name != name)
