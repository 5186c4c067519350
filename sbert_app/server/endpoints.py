"""The HTTP endpoints: plain JSON in and out, each registered in the open Blocks by its function.

Annotations are not postponed here, as Gradio reads the types of the arguments from them.
"""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import gradio as gr

from sbert_app.formats import json_values
from sbert_app.process import is_ending
from sbert_app.server import answers
from sbert_app.server.endpoint import MOST_AT_ONCE, Between, endpoint, register, run_endpoint
from sbert_app.services.access import visitor_of
from sbert_app.services.compare.comparison import compare_by_name, explain
from sbert_app.services.compare.token_score import score_tokens
from sbert_app.services.container import Services
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.embedded import encode as embed
from sbert_app.services.corpus.search import MAX_K, check_query
from sbert_app.services.corpus.search import search as find
from sbert_app.services.files.jobs import ScoreRequest
from sbert_app.services.files.matches import threshold_of
from sbert_app.services.maps.corpus_map import compute_map
from sbert_app.services.maps.projection import MapSettings
from sbert_app.services.models.unknown import check_finite, unknown_warnings
from sbert_app.services.results.decisions import unread_pairs
from sbert_app.services.runs.estimate import estimate_run
from sbert_app.services.runs.record import Run
from sbert_app.services.usage import usage, usage_of_rows, usage_of_search
from training.catalogue import DEFAULT_CROSS_ENCODER, DEFAULT_MODEL
from training.data.load import load_data, load_retrieval
from training.errors import InputError, without_folders
from training.evaluation.scoring import evaluate as measure
from training.evaluation.thresholds import CRITERIA, Criterion, decide_data
from training.models.model import Model, VectorModel
from training.models.retrievers import load_retriever
from training.names import DataName, ModelName
from training.trainer.config import SETTINGS, RunConfig

UPLOAD_FIRST = "upload the file first: POST it to /gradio_api/upload"


@endpoint(sentences=("sentence_a", "sentence_b"))
def compare(
    services: Services,
    sentence_a: str,
    sentence_b: str,
    model: str = DEFAULT_MODEL,
    pooling: str = "",
    cross_encoder: str = DEFAULT_CROSS_ENCODER,
    words: bool = False,
    second: str = "",
) -> dict[str, Any]:
    """Compare two sentences: cosine, cross-encoder score (0 to 1; none with cross_encoder="none"), word map.

    Args:
        sentence_a: the first sentence.
        sentence_b: the second sentence.
        model: a bi-encoder: short name, Hub id, run:<id>.
        pooling: mean, max or cls; empty = the model's own.
        cross_encoder: a cross-encoder's name, or "none".
        words: also what each word adds: to the cosine where there is no word map, by integrated gradients; to the
            score of the cross-encoder, by occlusion.
        second: another model, whose answer is "second": a bi-encoder, or late interaction (maxsim:NAME, a ColBERT)
            or a SPLADE, with the tokens whose shares add up to the score.
    """
    name = ModelName.parse(model or DEFAULT_MODEL)
    comparison = compare_by_name(services.models, sentence_a, sentence_b, name, pooling, cross_encoder)
    answer = comparison.to_json()
    if words:
        scores = [False] * comparison.lacks_words + [True] * (comparison.cross_encoder is not None)
        answer["words"] = [explain(services.models, comparison, explains_cross).to_json() for explains_cross in scores]
    if second:
        other, pair = ModelName.parse(second), (sentence_a, sentence_b)
        by_tokens = score_tokens(services.models, other, *pair)
        answer["second"] = (by_tokens or compare_by_name(services.models, *pair, other)).to_json()
    return answer


@endpoint(at_once=MOST_AT_ONCE)
def encode(
    services: Services, sentences: list[str], model: str = DEFAULT_MODEL, pooling: str = "", normalize: bool = True
) -> dict[str, Any]:
    """Encode up to 10,000 sentences to vectors.

    Args:
        sentences: the sentences.
        model: a bi-encoder.
        pooling: mean, max or cls; empty = the model's own.
        normalize: scale each vector to length 1, so that the dot product is the cosine.
    """
    encoder = services.models.get(model or DEFAULT_MODEL, VectorModel, pooling or None)
    vectors = check_finite(encoder, encoder.encode(sentences, normalize, should_stop=is_ending.is_set))
    read = usage(encoder.name, *encoder.read_tokens(sentences))
    answer = {"model": encoder.name, "pooling": encoder.pooling, "dimension": encoder.dimension, **read}
    warnings = unknown_warnings([encoder], sentences)
    return {**answer, "embeddings": vectors.round(7).tolist(), "warnings": warnings}


@endpoint(at_once=MOST_AT_ONCE, match_from=Between(0.01, 5.0))
def evaluate(
    services: Services,
    data: str = "stsb:test",
    model: str = DEFAULT_MODEL,
    pooling: str = "",
    threshold: str = "",
    match_from: float = 4.0,
    keep_unknown: bool = False,
) -> dict[str, Any]:
    """Spearman and Pearson of a model on a named data set, correlations in -1 to 1; or its threshold for matches.

    Args:
        data: stsb:dev, sts16, … or hf:org/name:config:split on the Hub; files are for the command line. Retrieval
            (nDCG, MRR, recall, MAP): nanobeir:SciFact, …, or beir: before a set of pairs.
        model: a bi-encoder, tfidf, glove, or a cross-encoder such as minilm-stsb. For retrieval also bm25,
            NAME+bm25 and NAME?rerank=CROSS_ENCODER.
        pooling: mean, max or cls; empty = the model's own.
        threshold: best-f1, precision=0.95 or a number, several with commas: what it does to pairs it was not
            chosen on, in place of the correlations.
        match_from: the gold score (0 to 5) from which a pair counts as a match.
        keep_unknown: whether pairs count that have a text of which the model knows no token.
    """
    services.access.check_data(data)
    model, home = model or DEFAULT_MODEL, services.settings.home
    if DataName.parse(data).is_retrieval and not threshold:
        opened: list[Any] = []

        def load(name: str) -> Any:
            opened.append(services.models.get(name, Model, pooling or None))
            return opened[-1]

        judged = load_retrieval(data, home)
        result = measure(load_retriever(model, load), judged, home, should_stop=is_ending.is_set)
        return result | usage_of_search(opened, judged.queries, judged.documents)
    scorer, rows = services.models.get(model, Model, pooling or None), load_data(data, home, split="test")
    read = usage_of_rows(scorer, rows.columns)
    if not threshold:
        # A correlation may be undefined.
        return json_values(measure(scorer, rows, home, keep_unknown=keep_unknown)) | read
    rows, notes = unread_pairs(ModelName.parse(model), rows, home, match_from)
    decided = decide_data(scorer, rows, threshold.split(","), match_from, keep_unknown=keep_unknown)
    answer = {"model": scorer.name, "data": rows.name, **decided.to_dict(), **read}
    return json_values({**answer, "notes": [*notes, *answer["notes"]]})


@endpoint(at_once=MOST_AT_ONCE)
def score_file(
    services: Services,
    file: gr.FileData,
    columns: str = "",
    model: str = DEFAULT_MODEL,
    pooling: str = "",
    cross_encoder: str = "none",
    format: Literal["csv", "tsv", "jsonl", "parquet", "xlsx"] = "csv",
    encoding: str = "",
    threshold: str = "",
    keep_unknown: bool = False,
    read_as: str = "",
    request: gr.Request = None,
) -> tuple[dict[str, Any], gr.FileData]:
    """Score every sentence pair of a file: adds cosine (and cross_encoder) and note, keeps rows and columns.

    Args:
        file: an uploaded CSV, TSV, JSON Lines, Parquet or XLSX file.
        columns: "first,second" or "first,second,gold"; empty = detected by name (sentence1, sentence2, score).
        model: a bi-encoder: short name, Hub id, run:<id>.
        pooling: mean, max or cls; empty = the model's own.
        cross_encoder: a cross-encoder's name, or "none".
        format: of the scored file: csv, tsv, jsonl, parquet or xlsx.
        encoding: of a text file: windows-1251, shift_jis, …; empty = found out.
        threshold: adds a column match: 0.8, best-f1, precision=0.95; the last two need gold scores or labels.
        keep_unknown: score sentences of which the model knows no token, too.
        read_as: the scale of the scores or the values of the labels: 1-7, or similar:1,different:0; empty = found out.
    """
    criterion = Criterion.parse(threshold) if threshold.strip() else None
    path = Path(file.path).resolve()
    if not path.is_relative_to(services.settings.temp_folder.resolve()):
        raise InputError(UPLOAD_FIRST, public=UPLOAD_FIRST)
    task = ScoreRequest(
        source=path,
        columns=[name.strip() for name in columns.split(",")] if columns.strip() else None,
        model=model or DEFAULT_MODEL,
        pooling=pooling or None,
        cross_encoder=cross_encoder if cross_encoder not in ("", "none") else None,
        formats=(f".{format}", ".parquet") if criterion and format != "parquet" else (f".{format}",),
        criteria=(str(criterion),) if criterion else CRITERIA,
        keep_unknown=keep_unknown,
        read_as=read_as,
    )
    job, summary = services.scoring.run(task, visitor_of(request), encoding)
    answer, scored = summary.to_dict(), Path(summary.outputs[0])
    answer["outputs"] = [Path(path).name for path in summary.outputs]
    if criterion:
        matches = services.scoring.apply_threshold(job.id, threshold_of(summary, criterion))
        scored = next(path for path in map(Path, matches.outputs) if path.suffix == f".{format}")
        answer["matches"] = json_values(asdict(matches) | {"outputs": [Path(path).name for path in matches.outputs]})
    return answer, gr.FileData(path=str(scored), orig_name=scored.name)


def public_run(run: Run, **more: Any) -> dict[str, Any]:
    """A run as visitors see it: without the folders of this machine in which its files and models are."""
    values = json_values({**run.to_json(), **more}, without_folders)
    del values["folder"]
    return values


@run_endpoint
def start_run(
    services: Services,
    objective: str = "regression",
    train_data: str = "stsb:train",
    eval_data: str = "stsb:dev",
    base: str = DEFAULT_MODEL,
    pooling: str = "",
    concatenation: str = "uv+diff",
    epochs: float = 1,
    max_steps: int = 0,
    batch_size: int = 16,
    learning_rate: float = 0,
    seed: int = 0,
    name: str = "",
    options: dict[str, Any] | None = None,
    request: gr.Request = None,
) -> dict[str, Any]:
    """Queue a training run and return it; follow it with run_status.

    Args:
        {arguments}
        options: any other field of a run, as {{"lora_rank": 8, "matryoshka_dims": [128]}}.
    """
    optional = {"pooling", "max_steps", "learning_rate"}
    settings = {key: value for key, value in locals().items() if key in SETTINGS and (value or key not in optional)}
    config = services.access.check_run(RunConfig(**settings | (options or {})))
    estimate_run(config, services.jobs.store)
    return public_run(services.jobs.start(config, visitor_of(request)))


@endpoint(since=Between(0, 2**53))
def run_status(services: Services, run_id: str, since: int = 0) -> dict[str, Any]:
    """A run: state, progress, best figures, and its events from number ``since`` on.

    Args:
        run_id: the id that start_run returned.
        since: how many events the caller has already ("events_seen" of the last answer).
    """
    run = services.jobs.store.get(run_id)
    events = [*run.events[since if since <= len(run.events) else 0 :]]
    return public_run(run, events=events, events_seen=len(run.events))


@endpoint()
def stop_run(services: Services, run_id: str) -> dict[str, Any]:
    """Ask a run to stop: at once if it waits, at its next step if it runs. It can be resumed.

    Args:
        run_id: the id that start_run returned.
    """
    return public_run(services.jobs.store.stop(run_id))


@endpoint(limit=Between(1, 1_000))
def list_runs(services: Services, limit: int = 50, cursor: str = "") -> list[dict[str, Any]]:
    """Runs, the newest first.

    Args:
        limit: how many.
        cursor: the id of the last run of the page before; empty for the first page.
    """
    return [public_run(run) for run in services.jobs.store.list(limit, cursor)]


@endpoint(
    at_once=MOST_AT_ONCE,
    dimensions=Between(2, 3),
    neighbours=Between(2, 200),
    min_dist=Between(0, 0.99),
    seed=Between(0, 2**31 - 1),
)
def project(
    services: Services,
    sentences: list[str],
    model: str = DEFAULT_MODEL,
    pooling: str = "",
    dimensions: int = 2,
    neighbours: int = 15,
    min_dist: float = 0.1,
    seed: int = 0,
) -> dict[str, Any]:
    """Draw the UMAP map of 5 to 10,000 sentences: a point for each, near where their meanings are near.

    Args:
        sentences: the sentences; at least 5 different ones.
        model: a bi-encoder: short name, Hub id, run:<id>.
        pooling: mean, max or cls; empty = the model's own.
        dimensions: 2 or 3.
        neighbours: that hold each point, 2 to 200: few show detail, many show the whole.
        min_dist: how close points may lie, 0 to 0.99.
        seed: the same seed gives the same map.
    """
    key = services.embeddings.add(Corpus("sentences", sentences))
    name = ModelName.parse(model or DEFAULT_MODEL).with_pooling(pooling)
    settings = MapSettings(dimensions, neighbours, min_dist, seed)
    corpus_map = compute_map(services.embeddings, key, [name], settings)
    read = usage(model, *services.models.get(model or DEFAULT_MODEL, VectorModel).read_tokens(sentences))
    answer = {"model": corpus_map.embedded[0].model, "pooling": corpus_map.embedded[0].pooling, **read}
    points = corpus_map.maps[0].round(4).tolist()
    return {**answer, "seconds": round(corpus_map.seconds, 3), "from_cache": corpus_map.from_cache, "points": points}


@endpoint(at_once=MOST_AT_ONCE, sentences=("query",), k=Between(1, MAX_K))
def search(
    services: Services,
    query: str,
    data: str = "stsb:dev",
    sentences: list[str] | None = None,
    model: str = DEFAULT_MODEL,
    pooling: str = "",
    k: int = 10,
    cross_encoder: str = "none",
    keep_unknown: bool = False,
) -> dict[str, Any]:
    """Search: the k sentences nearest to a query, best first, with cosines, scores and milliseconds.

    Args:
        query: a sentence, a question, a few words.
        data: a data set whose sentences are searched: stsb:dev, sts16, snli:test, …
        sentences: up to 10,000 sentences to search instead of a data set.
        model: a bi-encoder: short name, Hub id, run:<id>.
        pooling: mean, max or cls; empty = the model's own.
        k: how many, 1 to 100.
        cross_encoder: a cross-encoder that reads the 4k nearest beside the query and re-ranks them; or "none".
        keep_unknown: whether sentences may be near of which the model knows no token.
    """
    check_query(query, k)
    model = model or DEFAULT_MODEL
    if sentences is None:
        key = services.embeddings.named(services.access.check_data(data))
        space = services.embeddings.embed(key, model, pooling or None)
    else:
        # The cache of corpora is left alone, as these sentences would evict corpora that visitors have open.
        encoder = services.models.get(model, VectorModel, pooling or None, "document")
        space = embed(Corpus("sentences", sentences), encoder, services.embeddings.cache)
    asking = services.models.get(model, VectorModel, pooling or None, "query")
    result = find(space, query, asking, k, services.models.cross_encoder_or_none(cross_encoder), keep_unknown)
    read = usage(space.model, *asking.read_tokens([query, *(sentences or ())]))
    return {"model": space.model, "pooling": space.pooling, "data": space.corpus.name, **result.to_json(), **read}


# The endpoints, with the types of their answers and the options of `gr.api`.
ENDPOINTS: dict[Callable[..., Any], tuple[Any, dict[str, Any]]] = {
    compare: (answers.Compared, {"queue": False}),
    encode: (answers.Encoded, {"concurrency_limit": 2}),
    evaluate: (answers.Evaluation, {"concurrency_limit": 1}),
    score_file: (answers.ScoredFile, {"concurrency_limit": 2}),
    start_run: (answers.RunState, {"queue": False}),
    run_status: (answers.RunStatus, {"queue": False}),
    stop_run: (answers.RunState, {"queue": False}),
    list_runs: (list[answers.RunState], {"queue": False}),
    project: (answers.Projection, {"concurrency_limit": 1}),
    search: (answers.SearchHits, {"concurrency_limit": 4}),
}


def build(services: Services) -> None:
    for function, (_, options) in ENDPOINTS.items():
        register(function, services, **options)
