"""encode IN OUT: a file of sentences to a file of vectors."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from sbert_app.commands import options
from sbert_app.terminal import ProgressBar, clean_stdout, print_result
from training.registry import DEFAULT_MODEL


def encode(
    source: Annotated[
        Path, typer.Argument(metavar="IN", help="Sentences: .txt (one a line), .csv, .tsv, .jsonl, .parquet or .xlsx.")
    ],
    output: Annotated[Path, typer.Argument(metavar="OUT", help="Vectors: .npy or .parquet, rows in input order.")],
    model: options.Model = DEFAULT_MODEL,
    pooling: options.Pooling = None,
    dimension: options.Dimension = None,
    prompt: options.Prompt = None,
    prompt_name: options.PromptName = None,
    column: Annotated[
        str | None, typer.Option("--column", metavar="NAME", help="The column with the sentences. [sentence, text, …]")
    ] = None,
    encoding: options.Encoding = None,
    normalize: Annotated[bool, typer.Option(help="Scale each vector to length 1.")] = True,
    dtype: options.Dtype = "auto",
    device: options.Device = "auto",
    home: options.Home = None,
    offline: options.Offline = False,
    as_json: options.Json = False,
) -> None:
    """Encode a file of sentences to vectors."""
    place = options.prepare(home, offline)
    model = options.with_settings(model, dimension, prompt, prompt_name)
    from sbert_app.services.files.encode import check_output, encode_file, open_sentences

    with clean_stdout(), ProgressBar("encoding", "sentences") as bar:
        table, chosen = open_sentences(source, column, encoding)  # reports errors before the model is loaded
        check_output(output, source)
        encoder = options.load_encoder(model, pooling, dtype, device, place)
        summary = encode_file(table, chosen, output, encoder, normalize, on_progress=bar)
    print_result(asdict(summary), as_json, summary.sentence)
