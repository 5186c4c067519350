"""distill OUT: a static model of an encoder, a table of token vectors."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from sbert_app.commands import options
from sbert_app.terminal import ProgressBar, clean_stdout, print_result
from training.catalogue import DEFAULT_MODEL


@options.grouped
def distill(
    output: Annotated[Path, typer.Argument(metavar="OUT", help="The folder of the new model.")],
    *,
    model: options.Model = DEFAULT_MODEL,
    dimension: Annotated[int, typer.Option("--dim", metavar="N", min=2, help="Dimensions of the new vectors.")] = 256,
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="NAME_OR_FILE", help="Sentences to count the frequencies of tokens in."),
    ] = None,
    file: options.FileOptions,
    computing: options.Computing,
) -> None:
    """Distil an encoder into a static model.

    It has no network to compute and is a hundred times as fast.
    """
    place = computing.prepare()
    from training.data.load import load_data
    from training.models.distill import distill as make_static
    from training.models.files import check_replaceable

    data = None if data is None and file == options.FileOptions() else file.data(data or "")
    started = time.perf_counter()
    with clean_stdout(), ProgressBar("distilling", "tokens") as bar:
        check_replaceable(output.expanduser().absolute())  # reports errors before the model is loaded
        corpus = None if data is None else [text for column in load_data(data, place).columns for text in column]
        encoder = options.load_encoder(options.ModelOptions(model), computing)
        static = make_static(encoder, dimension, corpus, on_progress=bar)
        static.save(output)
    figures = {
        "model": str(output),
        "teacher": model,
        "dimension": dimension,
        "tokens": static.vocabulary_size,
        "seconds": round(time.perf_counter() - started, 2),
    }
    sentence = (
        f"{output}: {figures['tokens']:,} tokens of {dimension} dimensions from {model}, in {figures['seconds']:.1f} s"
    )
    print_result(figures, computing.as_json, sentence)
