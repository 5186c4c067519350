"""What the Map tab shows, as HTML. Pure functions; every text from a corpus is escaped here."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from sbert_app.pages.components.messages import spoken_seconds
from sbert_app.services.corpus.embedded import EmbeddedCorpus
from sbert_app.services.maps.corpus_map import MapResult, PairDistances

NEAREST = 10
WHENS = ("before", "after")
LONGEST = 400  # characters of a sentence in the list
HINT = '<p class="note">Click a point: its nearest sentences are listed here.</p>'
READING = (
    "Near points are near in meaning. How far apart two groups lie, how wide they are, and the direction of the axes "
    "say little: UMAP keeps neighbours, not distances."
)
MOVER = """<div class="mover" data-map="${value}"><span>before</span>
<input type="range" min="0" max="100" value="0" aria-label="from the map before to the map after">
<span>after</span><button type="button">Play</button></div>"""


def map_line(drawn: MapResult) -> str:
    """What the map shows and how long it took."""
    count, dimensions = drawn.maps[0].shape
    took = "from the cache" if drawn.from_cache else f"drawn in {spoken_seconds(drawn.seconds)}"
    what = "One map" if len(drawn.maps) == 1 else "Two aligned maps"
    names = "; ".join(title(space, when) for space, when in zip(drawn.embedded, WHENS, strict=False))
    which = f'<p class="note">{escape(names[0].upper() + names[1:])}.</p>' if len(drawn.maps) == 2 else ""
    return (
        f'<p class="lead"><b>{what}</b> of {count:,} sentences in {dimensions} dimensions, {took}.</p>'
        f'{which}<p class="note">{READING}</p>'
    )


def pairs_line(found: PairDistances | None) -> str:
    """How near the similar pairs are, before and after."""
    if found is None:
        return ""
    return (
        f'<p class="lead">The {found.count:,} pairs with a gold score of 4 or more: mean cosine '
        f"<b>{_arrow(found.cosines)}</b> (random pairs {_arrow(found.random_cosines)}); mean distance on the map "
        f"<b>{_arrow(found.on_map)}</b> of that of random pairs.</p>"
    )


def training_note(name: str, base: str, model: str) -> str:
    """What a run keeps of its training, and how to see it."""
    now = (
        "You see the model before training and after."
        if base == model
        else f"To see before and after training, choose its base {escape(base)} above."
    )
    return (
        f'<p class="note">{escape(name)} keeps its best checkpoint and its last state, not every step: '
        f"a map can show the best. {now}</p>"
    )


def nearest(spaces: Sequence[EmbeddedCorpus], row: int) -> str:
    """A clicked sentence and its nearest, under each model."""
    sentence = spaces[0].corpus.sentences[row]
    lists = "".join(_nearest_under(space, row, len(spaces) > 1) for space in spaces)
    return (
        f'<div class="nearest" aria-live="polite"><h3>{escape(sentence[:LONGEST])}</h3>'
        f'<div class="cards">{lists}</div></div>'
    )


def title(space: EmbeddedCorpus, when: str) -> str:
    """Above one of two maps."""
    return f"{when}: {space.model}, {space.pooling}"


def _nearest_under(space: EmbeddedCorpus, row: int, named: bool) -> str:
    wanted = min(NEAREST + 1, len(space))
    cosines, rows = space.index.nearest(space.vectors[row : row + 1], wanted)
    found = [(r, c) for r, c in zip(rows[0], cosines[0], strict=True) if r != row and r >= 0][:NEAREST]
    lines = "".join(
        f'<tr><td class="number">{cosine:.3f}</td><td>{escape(space.corpus.sentences[at][:LONGEST])}</td></tr>'
        for at, cosine in found
    )
    caption = f"Nearest under {escape(space.model)}, {escape(space.pooling)}" if named else "Nearest, by cosine"
    return f'<table class="plain"><caption>{caption}</caption><tbody>{lines}</tbody></table>'


def _arrow(values: Sequence[float]) -> str:
    return " → ".join(f"{value:.2f}" for value in values)
