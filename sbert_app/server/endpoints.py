"""The endpoints: the body of each request, and the function that answers it.

The arguments of an endpoint are the fields of its body, each described by the text below it.
`ENDPOINTS` lists the functions. Their addresses are ``/api/<name>``; gradio_client knows them as
``/<name>``, and agents as tools.
"""

from copy import copy
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import gradio as gr
from pydantic import AfterValidator, Field, TypeAdapter, create_model
from pydantic.fields import FieldInfo

from sbert_app.formats import json_values
from sbert_app.server.answers import (
    Compared,
    Encoded,
    Evaluation,
    Projection,
    RunState,
    RunStatus,
    ScoredFile,
    SearchHits,
    ThresholdAnswer,
)
from sbert_app.server.endpoint import (
    MOST_AT_ONCE,
    Body,
    Call,
    Endpoint,
    Name,
    Sentence,
    Sentences,
    example,
)
from sbert_app.services.background.watch import Watch
from sbert_app.services.compare.comparison import compare_by_name, leave_one_out_by_name
from sbert_app.services.compare.token_score import score_tokens
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.embedded import encode as embed
from sbert_app.services.corpus.search import MAX_K, check_query
from sbert_app.services.corpus.search import search as find
from sbert_app.services.files.jobs import ScoreRequest
from sbert_app.services.files.matches import threshold_of
from sbert_app.services.maps.corpus_map import compute_map
from sbert_app.services.maps.projection import MapSettings
from sbert_app.services.models.unknown import check_finite, unknown_warnings
from sbert_app.services.results.carry import EXAMPLE, ModelThreshold, advise
from sbert_app.services.results.evaluate import RETRIEVAL
from sbert_app.services.results.evaluate import evaluate as evaluate_by_name
from sbert_app.services.runs.estimate import estimate_run
from sbert_app.services.runs.record import Run
from sbert_app.services.usage import usage, usage_of_rows, usage_of_search
from training.catalogue import DEFAULT_CROSS_ENCODER, DEFAULT_MODEL
from training.data.load import load_data
from training.data.tables.table import open_table
from training.data.transforms import POSITIVE_FROM
from training.errors import InputError, without_folders
from training.evaluation.thresholds import BEST_F1, CRITERIA, PRECISION, Criterion
from training.models.model import Model, VectorModel
from training.names import ModelName
from training.pooling import POOLINGS
from training.trainer.config import SETTINGS, RunConfig

UPLOAD_FIRST = "upload the file first: POST it to /gradio_api/upload"


EncoderName = Annotated[
    Name,
    Field(description="A bi-encoder: short name, Hub id, run:<id>."),
    AfterValidator(lambda name: name or DEFAULT_MODEL),
]
Pooling = Annotated[
    Name | None,
    Field(description=f"{', '.join(POOLINGS)}, or several joined by +; empty = the model's own."),
    AfterValidator(lambda name: name or None),
]


class CompareBody(Body):
    model_config = example(sentence_a="A cat sleeps.", sentence_b="A kitten is asleep.")
    sentence_a: Sentence = Field(description="The first sentence.")
    sentence_b: Sentence = Field(description="The second sentence.")
    model: EncoderName = DEFAULT_MODEL
    pooling: Pooling = None
    cross_encoder: Name = Field(
        DEFAULT_CROSS_ENCODER, description='A cross-encoder\'s name, or "none".'
    )
    words: bool = Field(False, description="Also how both scores change without each word.")
    second: Name = Field(
        "",
        description=(
            'Another model, whose answer is "second": a bi-encoder, or late interaction '
            "(maxsim:NAME, a ColBERT) or a SPLADE, with the tokens whose shares add up to the "
            "score."
        ),
    )


def compare(call: Call, body: CompareBody) -> Compared:
    """Compare two sentences: cosine, cross-encoder score (0 to 1; none with cross_encoder="none"), word map."""
    models = call.services.models
    name = ModelName.parse(body.model)
    pair = (body.sentence_a, body.sentence_b)
    # A pooling of "" is the one in the name, or else the model's own.
    comparison = compare_by_name(models, *pair, name, body.pooling or "", body.cross_encoder)
    answer = Compared(**comparison.to_json())
    if body.words:
        changes = leave_one_out_by_name(models, comparison)
        answer.words = [change._asdict() for change in changes]
    if body.second:
        second = ModelName.parse(body.second)
        # Only models that compare tokens have a score of tokens.
        token_score = score_tokens(models, second, *pair)
        if token_score is None:
            answer.second = compare_by_name(models, *pair, second).to_json()
        else:
            answer.second = token_score.to_json()
    return answer


class EncodeBody(Body):
    model_config = example(sentences=["A cat sleeps.", "A kitten is asleep."])
    sentences: Sentences = Field(description="The sentences.")
    model: EncoderName = DEFAULT_MODEL
    pooling: Pooling = None
    normalize: bool = Field(
        True,
        description=(
            "Whether each vector is scaled to length 1, so that the dot product is the cosine."
        ),
    )


def encode(call: Call, body: EncodeBody) -> Encoded:
    """Encode up to 10,000 sentences to vectors."""
    encoder = call.services.models.get(body.model, VectorModel, body.pooling)
    vectors = encoder.encode(body.sentences, body.normalize, should_stop=call.should_stop)
    check_finite(encoder, vectors)
    tokens, cut = encoder.read_tokens(body.sentences)
    return Encoded(
        model=encoder.name,
        pooling=encoder.pooling,
        dimension=encoder.dimension,
        embeddings=vectors.round(7).tolist(),
        warnings=unknown_warnings([encoder], body.sentences),
        **usage(encoder.name, tokens, cut),
    )


class EvaluateBody(Body):
    model_config = example(data="stsb:dev")
    data: Name = Field(
        "stsb:test",
        description=(
            "stsb:dev, sts16, … or hf:org/name:config:split on the Hub; files are for the "
            "command line. Retrieval (nDCG, MRR, recall, MAP): nanobeir:SciFact, …, or beir: "
            "before a set of pairs."
        ),
    )
    model: EncoderName = Field(
        DEFAULT_MODEL,
        description=(
            "A bi-encoder, tfidf, glove, or a cross-encoder such as minilm-stsb. For retrieval "
            "also bm25, NAME+bm25 and NAME?rerank=CROSS_ENCODER."
        ),
    )
    pooling: Pooling = None
    threshold: Name = Field(
        "",
        description=(
            "best-f1, precision=0.95 or a number, several with commas: what it does to pairs it "
            "was not chosen on, in place of the correlations."
        ),
    )
    match_from: float | None = Field(
        None,
        ge=0.01,
        le=5,
        description=(
            "With a threshold, the gold score (0 to 5) from which a pair counts as a match; 4 by "
            "default. For retrieval, the grade from which a document is relevant."
        ),
    )
    keep_unknown: bool = Field(
        False, description="Whether pairs are included that have a text of unknown tokens only."
    )


def evaluate(call: Call, body: EvaluateBody) -> Evaluation:
    """Spearman and Pearson of a model on a named data set, correlations in -1 to 1; or its threshold for matches."""
    services = call.services
    # Raises InputError if a visitor may not use this data.
    services.access.check_data(body.data)

    def load(name: str) -> Model:
        return services.models.get(name, Model, body.pooling)

    result = evaluate_by_name(
        body.model,
        body.data,
        services.settings.home,
        load,
        body.threshold or None,
        body.match_from,
        body.keep_unknown,
        Watch(should_stop=call.should_stop),
    )
    token_usage: dict[str, Any] = {}
    if result.kind == RETRIEVAL:
        queries, documents = result.texts
        token_usage = usage_of_search(result.models, queries, documents)
    # A task of MTEB has no texts here. For pairs, only the model of the name is loaded.
    elif result.texts:
        token_usage = usage_of_rows(result.models[0], result.texts)
    # An undefined correlation becomes null.
    figures = {"model": body.model, "data": body.data, **result.figures, "notes": result.notes}
    return Evaluation(**json_values(figures), **token_usage)


class ThresholdBody(Body):
    model_config = example(model=DEFAULT_MODEL, was="tfidf@0.5", data="stsb:dev")
    model: EncoderName = DEFAULT_MODEL
    data: Name = Field(
        EXAMPLE,
        description=(
            "Pairs with labels or gold scores: stsb:dev, … or hf:org/name:config:split on the Hub."
        ),
    )
    was: Name = Field(
        "",
        description=(
            "The model before and its threshold, such as all-mpnet-base-v2@0.82: what does it "
            "become under this model?"
        ),
    )
    precision: float = Field(
        0.95,
        gt=0,
        lt=1,
        description="The minimum share of matches among the pairs above the threshold.",
    )
    match_from: float = Field(
        POSITIVE_FROM,
        ge=0.01,
        le=5,
        description="The gold score (0 to 5) from which a pair counts as a match.",
    )


def threshold(call: Call, body: ThresholdBody) -> ThresholdAnswer:
    """Find the similarity from which on two texts match, for any model, and what an old threshold becomes."""
    services = call.services
    home = services.settings.home
    data = services.access.check_data(body.data)
    # A name without a split stands for its test split.
    rows = load_data(data, home, split="test")
    earlier = ModelThreshold.parse(body.was) if body.was else None
    load = partial(services.models.get, type_=Model)
    criteria = (f"{PRECISION}={body.precision:g}", BEST_F1)
    advice = advise(
        ModelName.parse(body.model), rows, load, home, criteria, earlier, body.match_from
    )
    # A threshold with the precision of the earlier one may not exist, which becomes null.
    return ThresholdAnswer(**json_values(advice.to_dict()))


class ScoreFileBody(Body):
    model_config = example(file={"path": "(the path that POST /gradio_api/upload has answered)"})
    file: gr.FileData = Field(
        description="An uploaded CSV, TSV, JSON Lines or Parquet file, or a workbook."
    )
    columns: Name = Field(
        "",
        description=(
            '"first,second" or "first,second,gold"; empty = detected by name (sentence1, '
            "sentence2, score)."
        ),
    )
    model: EncoderName = DEFAULT_MODEL
    pooling: Pooling = None
    cross_encoder: Name = Field("none", description='A cross-encoder\'s name, or "none".')
    format: Literal["csv", "tsv", "jsonl", "parquet", "xlsx"] = Field(
        "csv", description="The format of the scored file."
    )
    encoding: Name = Field(
        "", description="The encoding of a text file: windows-1251, shift_jis, …; empty = detected."
    )
    threshold: Name = Field(
        "",
        description=(
            "Adds a column match: 0.8, best-f1, precision=0.95; the last two need gold scores or "
            "labels."
        ),
    )
    keep_unknown: bool = Field(
        False, description="Also score texts that consist only of unknown tokens."
    )
    read_as: Name = Field(
        "",
        description=(
            "The scale of the scores or the values of the labels: 1-7, or similar:1,different:0; "
            "empty = detected."
        ),
    )


SCORED_FILE = TypeAdapter(ScoredFile)


def score_file(call: Call, body: ScoreFileBody) -> ScoredFile:
    """Score every sentence pair of a file: adds cosine (and cross_encoder) and note, keeps rows and columns."""
    services = call.services
    criterion = Criterion.parse(body.threshold) if body.threshold.strip() else None
    path = Path(body.file.path).resolve()
    if not path.is_relative_to(services.settings.temp_folder.resolve()):
        # ``public`` is the message for visitors. By default, folders are removed from it, and
        # "/gradio_api/upload" would become "upload".
        raise InputError(UPLOAD_FIRST, public=UPLOAD_FIRST)
    columns = None
    if body.columns.strip():
        columns = [name.strip() for name in body.columns.split(",")]
    ending = f".{body.format}"
    formats = [ending]
    criteria: tuple[str, ...] = CRITERIA
    if criterion:
        criteria = (str(criterion),)
        # The threshold is applied to the scores in the Parquet file.
        if ending != ".parquet":
            formats.append(".parquet")
    cross_encoder = None
    if body.cross_encoder not in ("", "none"):
        cross_encoder = body.cross_encoder
    request = ScoreRequest(
        source=path,
        columns=columns,
        model=body.model,
        pooling=body.pooling,
        cross_encoder=cross_encoder,
        formats=tuple(formats),
        criteria=criteria,
        keep_unknown=body.keep_unknown,
        read_as=body.read_as,
    )
    if columns is None:
        # A question about the columns is asked at once; otherwise the job would fail with it.
        open_table(path, body.encoding or None).reading.check()
    # Scores a copy of the file, and waits until that is done.
    job, summary = services.scoring.run(request, call.visitor, body.encoding)
    answer = summary.to_dict()
    # The visitor learns the names of the files, and not the folder on this machine.
    answer["outputs"] = [Path(output).name for output in summary.outputs]
    # The first output has the format that was asked for.
    scored = Path(summary.outputs[0])
    if criterion:
        matches = services.scoring.apply_threshold(job.id, threshold_of(summary, criterion))
        outputs = [Path(output) for output in matches.outputs]
        # The file with the column match replaces the one without it.
        scored = next(output for output in outputs if output.suffix == ending)
        figures = asdict(matches)
        figures["outputs"] = [output.name for output in outputs]
        answer["matches"] = json_values(figures)
    answer["file"] = {"path": str(scored), "url": f"{call.files}{scored}", "orig_name": scored.name}
    return SCORED_FILE.validate_python(answer)


RUN_STATE = TypeAdapter(RunState)
RUN_STATUS = TypeAdapter(RunStatus)


def public_run(run: Run, **more: Any) -> dict[str, Any]:
    """Returns a run as visitors see it: without the paths of its files and models on this machine."""
    values = json_values({**run.to_json(), **more}, without_folders)
    del values["folder"]
    return values


def _state(run: Run) -> RunState:
    return RUN_STATE.validate_python(public_run(run))


def _field_of_run(name: str, field: FieldInfo) -> tuple[Any, FieldInfo]:
    """Returns the type and the definition of a body's field for a field of `RunConfig`."""
    setting = SETTINGS[name]
    body_field = copy(field)
    body_field.description = setting.sentence()
    if setting.allowed:
        body_field.description += f"; {', '.join(setting.allowed)}."
    # The metadata of `RunConfig` is for forms and commands.
    body_field.json_schema_extra = None
    # `RunConfig` has no default objective.
    if name == "objective":
        body_field.default = "regression"
    return field.annotation, body_field


StartRunBody = create_model(
    "StartRunBody",
    __base__=Body,
    **{name: _field_of_run(name, field) for name, field in RunConfig.model_fields.items()},  # type: ignore[call-overload]
)


def start_run(call: Call, body: StartRunBody) -> RunState:  # type: ignore[valid-type]
    """Queue a training run and return it; follow it with run_status. The arguments are the settings of a run."""
    services = call.services
    # Only the fields that the caller has set, as `RunConfig` derives others from them, such as the
    # learning rate. It has no default objective, so the body's default is added here.
    settings = body.model_dump(exclude_unset=True)  # type: ignore[attr-defined]
    config = services.access.check_run(RunConfig(**{"objective": "regression"} | settings))
    # Raises InputError if the run could not begin, so that it is not queued.
    estimate_run(config, services.jobs.store)
    return _state(services.jobs.start(config, call.visitor))


class RunBody(Body):
    model_config = example(run_id="(the id that start_run has answered)")
    run_id: Name = Field(description="The id that start_run returned.")


class RunStatusBody(RunBody):
    since: int = Field(
        0,
        ge=0,
        le=2**53,
        description=(
            'The number of events that the caller already has ("events_seen" of the last answer).'
        ),
    )


def run_status(call: Call, body: RunStatusBody) -> RunStatus:
    """A run: state, progress, best figures, and its events from number `since` on."""
    run = call.services.jobs.store.get(body.run_id)
    # A run that was resumed may have fewer events than the caller has seen.
    start = body.since if body.since <= len(run.events) else 0
    status = public_run(run, events=list(run.events[start:]), events_seen=len(run.events))
    return RUN_STATUS.validate_python(status)


def stop_run(call: Call, body: RunBody) -> RunState:
    """Ask a run to stop: at once if it waits, at its next step if it runs. It can be resumed."""
    return _state(call.services.jobs.store.stop(body.run_id))


class ListRunsBody(Body):
    model_config = example(limit=50)
    limit: int = Field(50, ge=1, le=1_000, description="The maximum number of runs.")
    cursor: Name = Field(
        "", description="The id of the last run of the previous page; empty for the first page."
    )


def list_runs(call: Call, body: ListRunsBody) -> list[RunState]:
    """Runs, the newest first."""
    runs = call.services.jobs.store.list(body.limit, body.cursor)
    return list(map(_state, runs))


class ProjectBody(Body):
    model_config = example(
        sentences=[
            "A cat sleeps.",
            "A kitten is asleep.",
            "Prices rose.",
            "Shares fell.",
            "It rains.",
            "The sun shines.",
        ],
        neighbours=3,
    )
    sentences: Sentences = Field(description="The sentences; at least 5 different ones.")
    model: EncoderName = DEFAULT_MODEL
    pooling: Pooling = None
    dimensions: int = Field(2, ge=2, le=3, description="2 or 3.")
    neighbours: int = Field(
        15,
        ge=2,
        le=200,
        description="The neighbours of each point: a few show detail, many show the whole.",
    )
    min_dist: float = Field(0.1, ge=0, le=0.99, description="How close points may lie.")
    seed: int = Field(0, ge=0, le=2**31 - 1, description="The same seed gives the same map.")


def project(call: Call, body: ProjectBody) -> Projection:
    """Draw the UMAP map of 5 to 10,000 sentences: a point for each, near where their meanings are near."""
    services = call.services
    # `compute_map` takes the key of an open corpus.
    key = services.embeddings.add(Corpus("sentences", body.sentences))
    model = body.model
    settings = MapSettings(body.dimensions, body.neighbours, body.min_dist, body.seed)
    name = ModelName.parse(model).with_pooling(body.pooling)
    corpus_map = compute_map(services.embeddings, key, [name], settings)
    # One model was asked for, so there is one map.
    embedded = corpus_map.embedded[0]
    # Opened to count the tokens, which do not depend on the pooling.
    encoder = services.models.get(model, VectorModel)
    tokens, cut = encoder.read_tokens(body.sentences)
    return Projection(
        model=embedded.model,
        pooling=embedded.pooling,
        seconds=round(corpus_map.seconds, 3),
        from_cache=corpus_map.from_cache,
        points=corpus_map.maps[0].round(4).tolist(),
        **usage(model, tokens, cut),
    )


class SearchBody(Body):
    model_config = example(query="cooking", data="stsb:dev", k=3)
    query: Sentence = Field(description="A sentence, a question, a few words.")
    data: Name = Field(
        "stsb:dev",
        description="A data set whose sentences are searched: stsb:dev, sts16, snli:test, …",
    )
    sentences: Sentences | None = Field(
        None, description="Up to 10,000 sentences to search instead of a data set."
    )
    model: EncoderName = DEFAULT_MODEL
    pooling: Pooling = None
    k: int = Field(10, ge=1, le=MAX_K, description="The maximum number of hits.")
    cross_encoder: Name = Field(
        "none",
        description=(
            "A cross-encoder that reads the 4k nearest beside the query and re-ranks them; or "
            '"none".'
        ),
    )
    keep_unknown: bool = Field(
        False, description="Whether sentences of unknown tokens only can be hits."
    )


def search(call: Call, body: SearchBody) -> SearchHits:
    """Search: the k sentences nearest to a query, best first, with cosines, scores and milliseconds."""
    services = call.services
    check_query(body.query, body.k)
    model = body.model
    pooling = body.pooling
    if body.sentences is None:
        data = services.access.check_data(body.data)
        corpus_key = services.embeddings.open_data(data)
        embedded = services.embeddings.embed(corpus_key, model, pooling)
    else:
        # These sentences stay out of the cache of corpora, where they would evict corpora that
        # visitors have open.
        encoder = services.models.get(model, VectorModel, pooling, "document")
        corpus = Corpus("sentences", body.sentences)
        embedded = embed(corpus, encoder, services.embeddings.cache)
    query_encoder = services.models.get(model, VectorModel, pooling, "query")
    cross_encoder = services.models.cross_encoder_or_none(body.cross_encoder)
    result = find(embedded, body.query, query_encoder, body.k, cross_encoder, body.keep_unknown)
    # The sentences of a data set are not counted.
    texts = [body.query, *(body.sentences or ())]
    tokens, cut = query_encoder.read_tokens(texts)
    return SearchHits(
        model=embedded.model,
        pooling=embedded.pooling,
        data=embedded.corpus.name,
        **result.to_json(),
        **usage(embedded.model, tokens, cut),
    )


# A map or an evaluation uses all cores, so only one is computed at a time.
_endpoints = (
    Endpoint(compare, threads=32),
    Endpoint(encode, threads=2, at_once=MOST_AT_ONCE),
    Endpoint(evaluate, threads=1, at_once=MOST_AT_ONCE),
    Endpoint(score_file, threads=2, at_once=MOST_AT_ONCE),
    Endpoint(start_run),
    Endpoint(run_status),
    Endpoint(stop_run),
    Endpoint(list_runs),
    Endpoint(project, threads=1, at_once=MOST_AT_ONCE),
    Endpoint(search, threads=4, at_once=MOST_AT_ONCE),
    Endpoint(threshold, threads=1, at_once=MOST_AT_ONCE),
)
ENDPOINTS = {endpoint.name: endpoint for endpoint in _endpoints}
