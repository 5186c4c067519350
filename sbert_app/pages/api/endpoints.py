"""The HTTP endpoints: plain JSON in and out, each registered in the open Blocks by its function.

Used with curl, with gradio_client and, under ``--mcp``, by agents; the README shows each.
(No postponed annotations here: Gradio reads the types of the endpoints from them.)
"""

import inspect
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import gradio as gr
from gradio.data_classes import FileData

from sbert_app.formats import json_values
from sbert_app.pages.api.endpoint import MOST_AT_ONCE, Between, endpoint, register
from sbert_app.pages.server.address import visitor_of
from sbert_app.process import is_ending
from sbert_app.services.compare.comparison import compare_by_name, explain
from sbert_app.services.container import Services
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.embedded import EmbeddedCorpus, encode
from sbert_app.services.corpus.search import MAX_K, check_query
from sbert_app.services.corpus.search import search as find
from sbert_app.services.files.jobs import ScoreRequest
from sbert_app.services.files.matches import threshold_of
from sbert_app.services.maps.corpus_map import MapRequest, compute_map
from sbert_app.services.maps.projection import MapSettings
from sbert_app.services.models.distillation import distill_to_home
from sbert_app.services.runs.estimate import estimate_run
from sbert_app.services.runs.record import Run
from training.catalogue import DEFAULT_CROSS_ENCODER, DEFAULT_MODEL
from training.data.tables.table import open_table
from training.errors import InputError, UserFacingError, without_folders
from training.evaluation.thresholds import CRITERIA, Criterion
from training.names import DataName, ModelName
from training.trainer.config import SETTINGS, RunConfig

UPLOAD_FIRST = "upload the file first: POST it to /gradio_api/upload"


def build(services: Services) -> None:
    """All of them, in this order."""
    for register_some in (core, score_file, runs, project, search, distill):
        register_some(services)


def core(services: Services) -> None:
    """Those that belong to no page: ``compare``, ``encode``, ``evaluate``."""

    @endpoint(sentences=("sentence_a", "sentence_b"))
    def compare(
        sentence_a: str,
        sentence_b: str,
        model: str = DEFAULT_MODEL,
        pooling: str = "",
        cross_encoder: str = DEFAULT_CROSS_ENCODER,
        words: bool = False,
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
        """
        name = ModelName.parse(model or DEFAULT_MODEL)
        found = compare_by_name(services.models, sentence_a, sentence_b, name, pooling, cross_encoder)
        answer = found.to_json()
        if words:
            scores = [False] * found.lacks_words + [True] * (found.cross_encoder is not None)
            answer["words"] = [explain(services.models, found, each).to_json() for each in scores]
        return answer

    @endpoint(at_once=MOST_AT_ONCE)
    def encode(
        sentences: list[str], model: str = DEFAULT_MODEL, pooling: str = "", normalize: bool = True
    ) -> dict[str, Any]:
        """Encode up to 10,000 sentences to vectors.

        Args:
            sentences: the sentences.
            model: a bi-encoder.
            pooling: mean, max or cls; empty = the model's own.
            normalize: scale each vector to length 1, so that the dot product is the cosine.
        """
        encoder = services.models.encoder(model or DEFAULT_MODEL, pooling or None)
        vectors = encoder.encode(sentences, normalize=normalize, should_stop=is_ending.is_set)
        return {
            "model": encoder.name,
            "pooling": encoder.pooling,
            "dimension": encoder.dimension,
            "embeddings": vectors.round(7).tolist(),
        }

    @endpoint(at_once=MOST_AT_ONCE, match_from=Between(0.01, 5.0))
    def evaluate(
        data: str = "stsb:test",
        model: str = DEFAULT_MODEL,
        pooling: str = "",
        threshold: str = "",
        match_from: float = 4.0,
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
        """
        from training.data.load import load_data
        from training.evaluation.scoring import evaluate as measure
        from training.evaluation.thresholds import decide_data
        from training.models.retrievers import load_retriever

        services.access.check_data(data)
        model, home = model or DEFAULT_MODEL, services.settings.home
        if DataName.parse(data).is_retrieval and not threshold:
            load = partial(services.models.scorer, pooling=pooling or None)
            return measure(load_retriever(model, load), data, home, should_stop=is_ending.is_set)
        scorer = services.models.scorer(model, pooling or None)
        if not threshold:
            return measure(scorer, data, home)
        pairs = load_data(data, home, split="test")
        found = decide_data(scorer, pairs, threshold.split(","), match_from)
        return json_values({"model": scorer.name, "data": pairs.name, **found.to_dict()})

    register(compare, queue=False)
    register(encode, concurrency_limit=2)
    register(evaluate, concurrency_limit=1)


def score_file(services: Services) -> None:
    """A file in, its statistics and the scored file out."""
    jobs, uploads = services.scoring, services.settings.temp_folder.resolve()

    @endpoint(at_once=MOST_AT_ONCE)
    def score_file(
        file: FileData,
        columns: str = "",
        model: str = DEFAULT_MODEL,
        pooling: str = "",
        cross_encoder: str = "none",
        format: Literal["csv", "parquet"] = "csv",
        encoding: str = "",
        threshold: str = "",
        request: gr.Request = None,
    ) -> tuple[dict[str, Any], FileData]:
        """Score every sentence pair of a file: adds cosine (and cross_encoder) and note, keeps rows and columns.

        Args:
            file: an uploaded CSV, TSV, JSON Lines, Parquet or XLSX file.
            columns: "first,second" or "first,second,gold"; empty = detected by name (sentence1, sentence2, score).
            model: a bi-encoder: short name, Hub id, run:<id>.
            pooling: mean, max or cls; empty = the model's own.
            cross_encoder: a cross-encoder's name, or "none".
            format: of the scored file: csv or parquet.
            encoding: of a text file: windows-1251, shift_jis, …; empty = found out.
            threshold: adds a column match: 0.8, best-f1, precision=0.95; the last two need gold scores or labels.
        """
        criterion = Criterion.parse(threshold) if threshold.strip() else None
        path = Path(file.path).resolve()
        if not path.is_relative_to(uploads):  # a path on this machine that nobody uploaded
            raise InputError(UPLOAD_FIRST, public=UPLOAD_FIRST)
        task = ScoreRequest(
            source=open_table(path, encoding or None),
            columns=[name.strip() for name in columns.split(",")] if columns.strip() else None,
            model=model or DEFAULT_MODEL,
            pooling=pooling or None,
            cross_encoder=cross_encoder if cross_encoder not in ("", "none") else None,
            formats=(f".{format}", ".parquet") if criterion and format != "parquet" else (f".{format}",),
            criteria=(str(criterion),) if criterion else CRITERIA,
        )
        job, summary = jobs.run(task, visitor_of(request))
        answer, scored = summary.to_dict(), Path(summary.outputs[0])
        if criterion:
            found = jobs.apply_threshold(job.id, threshold_of(summary, criterion))
            scored = next(path for path in map(Path, found.outputs) if path.suffix == f".{format}")
            answer["matches"] = json_values(asdict(found) | {"outputs": [Path(path).name for path in found.outputs]})
        return answer, FileData(path=str(scored), orig_name=scored.name)

    register(score_file, concurrency_limit=2)


def shown(run: Run, **more: Any) -> dict[str, Any]:
    """A run for visitors: without the folders in which it and the files and models lie that it names."""
    values: dict[str, Any] = {**run.to_json(), **more}
    del values["folder"]
    return cast(dict[str, Any], _without_folders(values))


def _without_folders(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_folders(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_folders(each) for each in value]
    return without_folders(value) if isinstance(value, str) else value


def runs(services: Services) -> None:
    """``start_run``, ``run_status``, ``stop_run``, ``list_runs``."""
    store = services.jobs.store

    def start_run(
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
        config = RunConfig(
            **{
                "objective": objective,
                "train_data": train_data,
                "eval_data": eval_data,
                "base": base,
                "pooling": pooling or None,
                "concatenation": concatenation,
                "epochs": epochs,
                "max_steps": max_steps or None,
                "batch_size": batch_size,
                **({"learning_rate": learning_rate} if learning_rate else {}),
                "seed": seed,
                "name": name,
                **(options or {}),
            }
        )
        estimate_run(services.access.check_run(config), store)
        return shown(services.jobs.start(config, visitor_of(request)))

    start_run = _as_endpoint(start_run)

    @endpoint(since=Between(0, 2**53))
    def run_status(run_id: str, since: int = 0) -> dict[str, Any]:
        """A run: state, progress, best figures, and its events from number ``since`` on.

        Args:
            run_id: the id that start_run returned.
            since: how many events the caller has already ("events_seen" of the last answer).
        """
        run = store.get(run_id)
        events = store.events(run_id)
        new = list(events[since:]) if since <= len(events) else list(events)
        return shown(run, events=new, events_seen=len(events))

    @endpoint()
    def stop_run(run_id: str) -> dict[str, Any]:
        """Ask a run to stop: at once if it waits, at its next step if it runs. It can be resumed.

        Args:
            run_id: the id that start_run returned.
        """
        return shown(store.stop(run_id))

    @endpoint()
    def list_runs() -> list[dict[str, Any]]:
        """All runs, the newest first."""
        return [shown(run) for run in store.list()]

    for function in (start_run, run_status, stop_run, list_runs):
        register(function, queue=False)


def _as_endpoint(start_run: Callable[..., Any]) -> Callable[..., Any]:
    """With the ranges of `RunConfig`, and its words for the arguments that are fields of it."""
    arguments: list[str] = []
    ranges: dict[str, Any] = {}
    for name, argument in inspect.signature(start_run).parameters.items():
        if name not in SETTINGS:
            continue
        setting = SETTINGS[name]
        words = f"; {', '.join(setting.choices)}" if name == "objective" else ""
        if argument.default in (0, "") and setting.words not in ("", "0"):
            words = f"; {'empty' if setting.range is None else '0'} = {setting.words}"
        arguments.append(f"{name}: {setting.sentence()}{words}.")
        if setting.range is not None:  # 0 stands for what is left out; RunConfig refuses it where it is not
            low = setting.range.low if setting.range.includes_low and not setting.is_optional else 0
            ranges[name] = Between(low, setting.range.high)
    start_run.__doc__ = (start_run.__doc__ or "").format(arguments=f"\n{' ' * 12}".join(arguments))
    return endpoint(**ranges)(start_run)


def project(services: Services) -> None:
    """The map of the Explore page."""

    @endpoint(
        at_once=MOST_AT_ONCE,
        dimensions=Between(2, 3),
        neighbours=Between(2, 200),
        min_dist=Between(0, 0.99),
        seed=Between(0, 2**31 - 1),
    )
    def project(
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
        drawn = compute_map(
            services.embeddings,
            MapRequest(
                services.embeddings.add(Corpus("sentences", sentences)),
                ModelName.parse(model or DEFAULT_MODEL).with_pooling(pooling),
                settings=MapSettings(dimensions, neighbours, min_dist, seed),
            ),
        )
        return {
            "model": drawn.embedded[0].model,
            "pooling": drawn.embedded[0].pooling,
            "seconds": round(drawn.seconds, 3),
            "from_cache": drawn.from_cache,
            "points": drawn.maps[0].round(4).tolist(),
        }

    register(project, concurrency_limit=1)


def search(services: Services) -> None:
    """The sentences of a data set, or of a list, that are nearest to a query."""
    keys: dict[str, str] = {}  # of the data sets that were searched; what they hold stays the same

    @endpoint(at_once=MOST_AT_ONCE, sentences=("query",), k=Between(1, MAX_K))
    def search(
        query: str,
        data: str = "stsb:dev",
        sentences: list[str] | None = None,
        model: str = DEFAULT_MODEL,
        pooling: str = "",
        k: int = 10,
        cross_encoder: str = "none",
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
        """
        check_query(query, k)
        model = model or DEFAULT_MODEL
        if sentences is None:
            space = named(data, model, pooling)
        else:  # not through the cache of corpora, where it would evict those that visitors have open
            encoder = services.models.encoder(model, pooling or None, "document")
            space = encode(Corpus("sentences", sentences), encoder, services.embeddings.cache)
        crosser = services.models.cross_encoder_or_none(cross_encoder)
        found = find(space, query, services.models.encoder(model, pooling or None, "query"), k, crosser)
        return {"model": space.model, "pooling": space.pooling, "data": space.corpus.name, **found.to_json()}

    def named(data: str, model: str, pooling: str) -> EmbeddedCorpus:
        spaces = services.embeddings
        if data in keys:
            with suppress(UserFacingError):  # pushed out by others meanwhile
                return spaces.embed(keys[data], model, pooling or None)
        keys[data] = spaces.add(Corpus.from_data(services.access.check_data(data), spaces.home))
        return spaces.embed(keys[data], model, pooling or None)

    register(search, concurrency_limit=4)


def distill(services: Services) -> None:
    """A static model of an encoder."""

    @endpoint(at_once=1, dimension=Between(2, 4096))
    def distill(model: str = DEFAULT_MODEL, dimension: int = 256, data: str = "") -> dict[str, Any]:
        """Distil an encoder into a static model: a table of token vectors, without a network, a hundred times as fast.

        Args:
            model: a bi-encoder: short name, Hub id, run:<id>.
            dimension: of the new vectors, 2 up to the model's.
            data: a named data set to count the frequencies of tokens in; empty = estimated by Zipf's law.
        """
        if data:
            services.access.check_data(data)
        return asdict(distill_to_home(services.models, model or DEFAULT_MODEL, dimension, data))

    register(distill, concurrency_limit=1)
