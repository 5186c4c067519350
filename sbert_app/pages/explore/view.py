"""What the Explore page has open, and what its tabs share: the view, a bar, one sentence about what is wrong.

A ``View`` is small and says everything: which corpus, under which model and pooling. The shell (explore.py) puts it
into a ``gr.State`` when the vectors are ready, so a tab's ``space_of(services, view)`` answers at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sbert_app.services.container import Services
    from sbert_app.services.corpus.embedded import EmbeddedCorpus


@dataclass(frozen=True)
class View:
    """An open corpus under a model."""

    corpus: str  # its key in services.embeddings
    model: str
    pooling: str

    def __iter__(self) -> Iterator[str]:
        """So that ``services.embeddings.embed(*view)`` reads well."""
        return iter((self.corpus, self.model, self.pooling))


def space_of(services: Services, view: View) -> EmbeddedCorpus:
    """The vectors of a view: at once, as the shell has encoded them.

    Raises:
        InputError: the corpus has been pushed out by others meanwhile.
    """
    return services.embeddings.embed(*view)
