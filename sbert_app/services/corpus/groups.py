"""Groups of sentences that a person has selected, named and coloured. They are kept in the home folder, by corpus.

store = group_store(home)
save_group(store, corpus, Group(name="to check", colour="vermillion", rows=(3, 14)))
groups_of(store, corpus) -> [Group, …] in the order in which they were made
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.store.documents import DocumentStore
from training.errors import InputError

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
