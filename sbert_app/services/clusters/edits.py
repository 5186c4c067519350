"""People's changes to a corpus, in the home folder: names of clusters, merged clusters, and groups of sentences.

    store, key = edit_store(home), edits_key(embedded, settings)
    clusters = edited(labels, store.get(key))
    rename(store, key, clusters, 0, "finance")          the largest cluster
    merge(store, key, clusters, [0, 3])

    save_group(group_store(home), corpus, "to check", "vermillion", (3, 14))

The same corpus, model and settings always give the same clusters. Changes refer to the numbers of these clusters,
before anything is merged.
"""

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

# The most groups of a corpus: the map tells 21 apart.
MAX_GROUPS = 20
MAX_NAME = 60


@dataclass(frozen=True)
class ClusterEdits:
    """Changes to the clusters of one corpus under one model and one setting, by label.

    ``merged`` has the label that a label is part of now.
    """

    names: dict[int, str] = field(default_factory=dict)
    merged: dict[int, int] = field(default_factory=dict)


EditStore = DocumentStore[ClusterEdits]


@dataclass(frozen=True, eq=False)
class EditedClusters:
    """The clusters after the changes: labels, int64 (N,), and names of those that have one.

    ``originals`` are the labels under which their changes are saved.
    """

    labels: np.ndarray
    names: dict[int, str]
    originals: list[int]


def edit_store(home: Path) -> EditStore:
    return DocumentStore(home / "explore" / "clusters", ClusterEdits, default=ClusterEdits())


def edits_key(embedded: EmbeddedCorpus, settings: ClusterSettings) -> str:
    """The key of the changes, by the sentences, the model and the settings."""
    return digest(["cluster edits", embedded.key, *map(str, astuple(settings))])


def edited(labels: np.ndarray, edits: ClusterEdits) -> EditedClusters:
    """Apply changes to the labels of `clustering.cluster`, int64 (N,), and number the clusters by size again."""
    count = int(labels.max(initial=NOISE)) + 1
    part_of = np.arange(count + 1)
    part_of[-1] = NOISE
    for label, into in edits.merged.items():
        if 0 <= label < count and 0 <= into < count:
            part_of[label] = into
    merged = part_of[labels]
    numbered = by_size(merged)
    originals = [int(merged[np.argmax(numbered == label)]) for label in range(int(numbered.max(initial=NOISE)) + 1)]
    names = {label: edits.names[original] for label, original in enumerate(originals) if edits.names.get(original)}
    return EditedClusters(numbered, names, originals)


def rename(store: EditStore, key: str, clusters: EditedClusters, label: int, name: str) -> None:
    """Name a cluster; an empty name restores its keywords.

    Raises InputError if there is no such cluster, the name is too long, or it is empty and there was none.
    """
    original, name = _original(clusters, label), " ".join(name.split())
    if not name and label not in clusters.names:
        raise InputError("the cluster has no name to take away: type one, then press Rename.")
    if len(name) > MAX_NAME:
        raise InputError(f"the name has {len(name):,} characters; at most {MAX_NAME} fit.")
    store.change(key, lambda edits: replace(edits, names={**edits.names, original: name}))


def merge(store: EditStore, key: str, clusters: EditedClusters, labels: Sequence[int]) -> None:
    """Merge clusters into one, with the name of the first of them that has one.

    Raises InputError if there are fewer than two, or one of them does not exist.
    """
    originals = sorted({_original(clusters, label) for label in labels})
    if len(originals) < 2:
        raise InputError("choose two clusters or more to merge.")
    into, parts = originals[0], set(originals[1:])

    def edit(edits: ClusterEdits) -> ClusterEdits:
        merged = {label: into if target in parts else target for label, target in edits.merged.items()}
        names = {label: name for label, name in edits.names.items() if label not in parts}
        name = next((edits.names[label] for label in originals if edits.names.get(label)), "")
        return ClusterEdits({**names, into: name} if name else names, {**merged, **dict.fromkeys(parts, into)})

    store.change(key, edit)


def _original(clusters: EditedClusters, label: int) -> int:
    if not 0 <= label < len(clusters.originals):
        raise InputError(f"there is no cluster {label + 1}; there are {len(clusters.originals)}.")
    return clusters.originals[label]


@dataclass(frozen=True)
class Group:
    """A named group of sentences, with a colour of the palette and ascending positions in the corpus."""

    name: str
    colour: str
    rows: tuple[int, ...]


@dataclass(frozen=True)
class Groups:
    groups: tuple[Group, ...] = ()


GroupStore = DocumentStore[Groups]


def group_store(home: Path) -> GroupStore:
    return DocumentStore(home / "explore" / "groups", Groups, default=Groups())


def groups_of(store: GroupStore, corpus: Corpus) -> tuple[Group, ...]:
    """The groups of a corpus, the oldest first, without sentences that the corpus does not have."""
    groups = store.get(corpus.digest).groups
    return tuple(replace(group, rows=tuple(row for row in group.rows if row < len(corpus))) for group in groups)


def save_group(store: GroupStore, corpus: Corpus, name: str, colour: str, rows: tuple[int, ...]) -> Group:
    """Save a group, in place of one of the same name.

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
    """Delete a group, if there is one of that name."""
    store.change(corpus.digest, lambda document: Groups(_without(document, name)))


def _without(document: Groups, name: str) -> tuple[Group, ...]:
    return tuple(group for group in document.groups if group.name != name)
