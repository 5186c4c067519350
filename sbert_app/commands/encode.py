"""encode IN OUT: a file of sentences to a file of vectors."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from sbert_app.commands import options, sharded
from sbert_app.terminal import ProgressBar, clean_stdout, print_result
from training.registry import DEFAULT_MODEL


def encode(
    source: Annotated[
        str,
        typer.Argument(
            metavar="IN",
            help="Sentences: .txt (one a line), .csv, .tsv, .jsonl, .parquet or .xlsx; or a folder, glob or URL.",
        ),
    ],
    output: Annotated[
        str,
        typer.Argument(metavar="OUT", help="Vectors: .npy or .parquet; or a folder, for IN with vectors in parts."),
    ],
    model: options.Model = DEFAULT_MODEL,
    pooling: options.Pooling = None,
    dimension: options.Dimension = None,
    prompt: options.Prompt = None,
    prompt_name: options.PromptName = None,
    column: options.Column = None,
    encoding: options.Encoding = None,
    normalize: Annotated[bool, typer.Option(help="Scale each vector to length 1.")] = True,
    engine: sharded.EngineName = None,
    address: sharded.Address = None,
    concurrency: sharded.Concurrency = None,
    gpus_per_worker: sharded.GpusPerWorker = 0,
    cpus_per_worker: sharded.CpusPerWorker = 1,
    block_rows: sharded.BlockRows = 65_536,
    dtype: options.Dtype = "auto",
    device: options.Device = "auto",
    home: options.Home = None,
    offline: options.Offline = False,
    as_json: options.Json = False,
) -> None:
    """Encode sentences to vectors, rows in input order.

    Into a folder, many files are encoded in parts; the same command after an interruption does what is missing.
    """
    place = options.prepare(home, offline)
    model = options.with_settings(model, dimension, prompt, prompt_name)
    if sharded.is_sharded(source, output, engine):
        from sbert_app.services.shards.job import ShardJob

        job = ShardJob(
            "encode",
            output,
            model,
            pooling,
            columns=(column,) if column else (),
            normalize=normalize,
            dtype=dtype,
            device=device,
            home=str(place),
            offline=offline,
            block_rows=block_rows,
            encoding=encoding,
        )
        sharded.run(job, source, engine, address, concurrency, gpus_per_worker, cpus_per_worker, as_json)
        return
    from sbert_app.services.files.encode import check_output, encode_file, open_sentences

    with clean_stdout(), ProgressBar("encoding", "sentences") as bar:
        path, target = sharded.local_path(source), Path(output)
        table, chosen = open_sentences(path, column, encoding)  # reports errors before the model is loaded
        check_output(target, path)
        encoder = options.load_encoder(model, pooling, dtype, device, place)
        summary = encode_file(table, chosen, target, encoder, normalize, on_progress=bar)
    print_result(asdict(summary), as_json, summary.sentence)
