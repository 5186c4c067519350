"""search IN QUERY: the sentences of a file or a data set that are nearest to a query."""

from __future__ import annotations

from typing import Annotated

import typer

from sbert_app.commands import options
from sbert_app.formats import format_count
from sbert_app.terminal import ProgressBar, clean_stdout, print_result


@options.grouped
def search(
    source: options.Sentences,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="A sentence, a question, a few words.")],
    *,
    k: Annotated[int, typer.Option("-k", "--top-k", metavar="N", help="How many sentences, 1 to 100.")] = 10,
    model: options.ModelOptions,
    cross_encoder: Annotated[
        str | None,
        typer.Option("--cross-encoder", metavar="NAME", help="Ranks the 4k nearest again: minilm-stsb, …"),
    ] = None,
    file: options.FileOptions,
    computing: options.Computing,
) -> None:
    """Search sentences by meaning: the nearest to the query first.

    Vectors are kept in the home folder: the next search of the same sentences is quick.
    """
    place = computing.prepare()
    from sbert_app.services.corpus.search import check_query
    from sbert_app.services.corpus.search import search as find
    from training.models.cross_encoder import CrossEncoder

    check_query(query, k)  # reports errors before the model is loaded
    with options.received(source, lines=True) as given, clean_stdout(), ProgressBar("encoding", "sentences") as bar:
        corpus = options.open_corpus(given, file, place)
        encoder = options.load_encoder(model, computing)
        space = options.embed(corpus, encoder.for_role("document"), place, bar)
        crosser = cross_encoder and CrossEncoder.load(cross_encoder, computing.dtype, computing.device, place)
        found = find(space, query, encoder.for_role("query"), k, crosser or None)
    lines = [f"{hit.cosine:.4f}  {hit.row + 1:>8,}  {hit.sentence}" for hit in found.hits]
    if crosser:
        lines = [f"{hit.cross_score:.4f}  {line}" for hit, line in zip(found.hits, lines, strict=True)]
    head = ("score   " if crosser else "") + "cosine       row  sentence"
    lines = [f"{format_count(found.searched, 'sentence')} of {corpus.name}", head, *lines, *corpus.notes]
    print_result({"model": space.model, "data": corpus.name, **found.to_json()}, computing.as_json, "\n".join(lines))
