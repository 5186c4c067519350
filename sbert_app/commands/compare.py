"""compare A B: how similar two sentences are."""

from __future__ import annotations

from typing import Annotated

import typer

from sbert_app.commands import options
from sbert_app.formats import format_number
from sbert_app.terminal import clean_stdout, print_result
from training.catalogue import DEFAULT_CROSS_ENCODER
from training.names import ModelName


@options.grouped
def compare(
    first: Annotated[str, typer.Argument(metavar="A", help="The first sentence.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The second sentence.")],
    *,
    model: options.ModelOptions,
    cross_encoder: Annotated[
        str, typer.Option("--cross-encoder", metavar="NAME", help="Reads both at once; none for no such score.")
    ] = DEFAULT_CROSS_ENCODER,
    computing: options.Computing,
) -> None:
    """Compare two sentences: the cosine, and a cross-encoder's score.

    Prints also what each word adds to the cosine.
    """
    place = computing.prepare()
    from sbert_app.services.compare.comparison import compare as measure
    from training.models.cross_encoder import CrossEncoder

    with clean_stdout():
        encoder = options.load_encoder(model, computing)
        crosser = None
        if cross_encoder != "none":
            crosser = CrossEncoder.load(cross_encoder, computing.dtype, computing.device, place)
        found = measure(encoder, crosser, first, second)
    lines = [f"cosine         {found.cosine:.4f}   {ModelName.parse(model.name).label}, {found.pooling} pooling"]
    if found.cross_encoder is not None:
        lines.append(f"cross-encoder  {format_number(found.cross_score, 4)}   {found.cross_encoder}")
    if found.attribution is not None:
        for name, words, shares in (
            ("A", found.attribution.words_a, found.attribution.matrix.sum(axis=1)),
            ("B", found.attribution.words_b, found.attribution.matrix.sum(axis=0)),
        ):
            lines.append(
                f"words of {name}     " + "  ".join(f"{w} {x:+.3f}" for w, x in zip(words, shares, strict=True))
            )
    cut = " and ".join(name for name, side in (("A", found.a), ("B", found.b)) if side.truncated)
    lines += [f"{cut} is cut: the model reads {encoder.max_length:,} tokens"] if cut else []
    print_result(found.to_json(), computing.as_json, "\n".join([*lines, *filter(None, [found.advice])]))
