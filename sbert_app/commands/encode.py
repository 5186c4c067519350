"""encode IN OUT: a file of sentences to a file of vectors."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from sbert_app.commands import options
from sbert_app.commands.parts import PartsOptions, local_path
from sbert_app.terminal import ProgressBar, clean_stdout, print_result


@options.grouped
def encode(
    source: Annotated[
        str,
        typer.Argument(
            metavar="IN",
            help=f"Sentences: .txt (one a line), {options.TABLES}; a folder, glob or URL; or -.",
        ),
    ],
    output: Annotated[
        str,
        typer.Argument(
            metavar="OUT", help="Vectors: .npy, .jsonl or .parquet; a folder, for IN with vectors in parts; or -."
        ),
    ],
    *,
    model: options.ModelOptions,
    file: options.FileOptions,
    normalize: Annotated[bool, typer.Option(help="Scale each vector to length 1.")] = True,
    pipe: options.Pipe,
    parts: PartsOptions,
    computing: options.Computing,
) -> None:
    """Encode sentences to vectors, rows in input order.

    Into a folder, many files are encoded in parts; the same command after an interruption does what is missing.
    """
    source, file = file.of(source)
    if parts.are_meant(source, output):
        columns = (file.columns,) if file.columns else ()
        parts.run(
            "encode", source, output, model, computing, columns=columns, normalize=normalize, encoding=file.encoding
        )
        return
    from sbert_app.services.background.watch import Watch
    from sbert_app.services.files.encode import encode_file, open_sentences
    from sbert_app.services.files.writers import VECTORS, check_output
    from training.data.tables.columns import has_pairs

    with pipe.files(source, output, computing.as_json, lines=file.columns is None) as (input_path, output_path):
        with clean_stdout(), ProgressBar("encoding", "sentences") as bar:
            path, target = local_path(input_path), Path(output_path)
            table, column = open_sentences(path, file.columns, file.encoding)  # errors come before the model is loaded
            if file.columns is None and has_pairs(table):
                print(
                    f"{source} holds pairs: {column} alone is encoded; --columns names another column", file=sys.stderr
                )
            check_output(target, VECTORS, path)
            encoder = options.load_encoder(model, computing)
            summary = encode_file(table, column, target, encoder, normalize, Watch.of(bar))
        print_result(asdict(summary), computing.as_json, summary.sentence.replace(output_path, output))
