"""`training/models/endpoint.py`: our own /v1 gives the vectors that the model gives here, and vectors only."""

import json
from collections.abc import Iterator

import numpy as np
import pytest
from embedding_server import Server, embedding_server, vectors
from fastapi import FastAPI
from starlette.testclient import TestClient

from sbert_app.server import v1
from sbert_app.services.access import AccessPolicy
from sbert_app.services.background.watch import UNWATCHED
from sbert_app.services.compare.comparison import compare_by_name, leave_one_out
from sbert_app.services.container import Services
from sbert_app.services.files.score import score_file
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.results.grid import evaluate_grid, make_grid
from sbert_app.settings import Settings
from training.data.dataset import Dataset
from training.errors import InputError
from training.evaluation.attribution import attribute
from training.evaluation.scoring import evaluate
from training.models.encoder import Encoder
from training.models.endpoint import PROBE
from training.models.model import VectorModel, open_model
from training.names import ModelName
from training.trainer.config import RunConfig

MODEL = "scratch:1x32"
TEXTS = ["A cat sleeps.", "It rains. 北京 😀", "", "A cat sleeps.", "x" * 200, "\ud800 is half"]
PAIRS = Dataset(
    "pairs",
    (["A dog runs.", "It rains.", "A cat."], ["A dog.", "A bird.", "A cat!"]),
    scores=[3, 1, 5],
)


@pytest.fixture(scope="module")
def server(home) -> Iterator[Server]:
    """This app's own /v1, over HTTP."""
    app_of_v1 = FastAPI()
    app_of_v1.include_router(v1.router(Services.start(Settings(home=home))))
    with TestClient(app_of_v1) as app:

        def answer(path, body):
            found = app.post(path, json=body)
            return found.status_code, {}, found.content

        with embedding_server(answer) as running:
            yield running


@pytest.fixture
def name(server) -> str:
    server.requests.clear()
    return f"endpoint:{server.url}/v1#{MODEL}"


@pytest.fixture(scope="module")
def local(home) -> Encoder:
    return Encoder.load(MODEL, home=home, dtype="float32")


def test_the_vectors_of_an_endpoint_are_the_models_own(name, server, local):
    encoder = open_model(name)
    assert (encoder.dimension, encoder.pooling, encoder.sent_to) == (
        32,
        "none",
        server.url.removeprefix("http://"),
    )
    assert np.allclose(
        encoder.encode(TEXTS), local.encode([text or " " for text in TEXTS]), atol=2e-2
    )
    assert server.texts == [
        PROBE,
        *dict.fromkeys(text or " " for text in [*TEXTS[:-1], "? is half"]),
    ]


def test_a_text_is_sent_to_an_endpoint_once_in_small_batches(name, server):
    encoder = open_model(name)
    sentences = [f"Sentence {number}." for number in range(70)]
    first = encoder.encode(sentences)
    reports = []
    again = encoder.encode(
        [*sentences, "One more."], on_progress=lambda done, total: reports.append((done, total))
    )
    assert np.array_equal(first, again[:70])
    assert [len(body["input"]) for _, _, body in server.requests] == [1, 32, 32, 6, 1]
    assert reports[-1] == (71, 71)
    assert [len(part) for part in encoder.encode_stream(sentences, 50)] == [50, 20]


def test_prompts_and_fewer_dimensions_are_applied_here(name, server, local):
    encoder = open_model(f"{name}?dim=8&prompt=query%3A+")
    assert (encoder.dimension, encoder.name) == (8, f"{name}?dim=8&prompt=query%3A+")
    expected = local.with_dimension(8).with_prompt("query: ").encode(["A cat."])
    assert np.allclose(encoder.encode(["A cat."]), expected, atol=2e-2)
    assert server.texts[-1] == "query: A cat."
    for wrong, told in {
        "dim=33": "has 32 dimensions",
        "prompt_name=query": "no prompt named 'query'",
    }.items():
        with pytest.raises(InputError, match=told):
            open_model(f"{name}?{wrong}")


def test_an_endpoint_gives_vectors_only_and_has_no_tokens_or_weights(name, home):
    model = open_model(name)
    sentence = "is an endpoint, which gives vectors only: its tokens and weights are not here"
    for use in (
        lambda: attribute(model, "a", "b"),
        lambda: open_model(f"maxsim:{name}"),
        lambda: ModelCache(home).get(name, Encoder),
    ):
        with pytest.raises(InputError, match=sentence):
            use()


def test_an_endpoint_has_no_training_pooling_or_precision(name):
    with pytest.raises(
        InputError, match="is an endpoint, which gives vectors only and cannot be trained"
    ):
        RunConfig("regression", base=name)
    with pytest.raises(
        InputError, match="is an endpoint, which pools nothing; leave the pooling out"
    ):
        open_model(name, "cls")
    with pytest.raises(InputError, match="no precision to choose; leave int8 out"):
        open_model(f"{name}?dtype=int8")


def test_another_model_behind_the_same_name_is_noticed():
    size = [4]
    with embedding_server(
        lambda path, body: vectors(*([1.0] * size[0] for _ in body["input"]))
    ) as server:
        encoder = open_model(f"endpoint:{server.url}/v1#any")
        size[0] = 5
        with pytest.raises(InputError, match="gave 4 dimensions before and gives 5 now"):
            encoder.encode(["a"])


def strict(most=2_048, refusal=lambda count: (413, "")):
    """A server that limits the texts of a request, and refuses the word "forbidden"."""

    def answer(path, body):
        status = 200
        words = ""
        if len(texts := body["input"]) > most:
            status, words = refusal(len(texts))
        elif any("forbidden" in text for text in texts):
            status = 400
            words = "a text is longer than 512 tokens"
        rows = [[float(len(text)), 1.0] for text in texts]
        return (
            vectors(*rows) if status == 200 else (status, {}, json.dumps({"error": words}).encode())
        )

    return embedding_server(answer)


@pytest.mark.parametrize(
    "refusal",
    [
        lambda count: (413, ""),
        lambda count: (400, "batch size is invalid, it should not be larger than 8."),
    ],
)
def test_requests_shrink_to_what_the_server_takes_and_stay_so(refusal):
    with strict(8, refusal) as server:
        encoder = open_model(f"endpoint:{server.url}/v1#any")
        encoder.encode([f"{'x' * number}." for number in range(40)])
        refused = len(server.requests)
        encoder.with_settings(ModelName.parse(f"{encoder.name}?dim=1")).encode(
            [str(number) for number in range(20)]
        )
        assert [len(body["input"]) for _, _, body in server.requests[refused:]] == [8, 8, 4]


def test_the_size_of_a_request_and_its_time_can_be_stated():
    with strict() as server:
        encoder = open_model(f"endpoint:{server.url}/v1#any?batch=8&timeout=5")
        encoder.encode([str(number) for number in range(20)])
        assert [len(body["input"]) for _, _, body in server.requests] == [1, 8, 8, 4]
    for wrong in ("batch=0x8", "batch=0", "timeout=601", "batch=" + "9" * 5_000):
        with pytest.raises(InputError, match="must be a whole number from 1 to"):
            ModelName.parse(f"endpoint:http://x/v1#any?{wrong}")
    with pytest.raises(InputError, match="'batch' is no setting of a model"):
        ModelName.parse("tfidf?batch=8")


def test_a_text_that_the_endpoint_refuses_is_a_note_in_its_row(tmp_path):
    source = tmp_path / "pairs.csv"
    scored = tmp_path / "scored.csv"
    rows = [
        f"text {number},{'forbidden' if number == 11 else 'other'} {number}" for number in range(40)
    ]
    source.write_text("\n".join(["sentence1,sentence2", *rows]) + "\n")
    with strict() as server:
        encoder = open_model(f"endpoint:{server.url}/v1#any")
        summary = score_file(source, [scored], encoder)
        with pytest.raises(InputError, match="status 400: a text is longer than 512 tokens"):
            encoder.encode(["forbidden"])
        server.requests.clear()
        encoder.encode([str(number) for number in range(32)])
    assert (summary.rows, summary.scored, summary.truncated) == (40, 39, 0)
    notes = [line.split(",", 3)[3] for line in scored.read_text().splitlines()[1:]]
    assert "refuses sentence 2: a text is longer than 512 tokens" in notes[11]
    assert [row for row, note in enumerate(notes) if note] == [11]
    assert len(server.requests) == 1, "it was the text, not the number of them"


class TestWhereItIsUsed:
    """Compare, Evaluate, Bulk, Explore, the command line."""

    @pytest.fixture
    def models(self, home, server) -> ModelCache:
        allowed = AccessPolicy(endpoints=[server.url.removeprefix("http://")])
        return ModelCache(home, check_name=allowed.check_model)

    def test_compare_has_the_cosine_and_words_to_leave_out_and_no_map(self, models, name, local):
        found = compare_by_name(models, "A cat sleeps.", "A dog sleeps.", ModelName.parse(name))
        u, v = local.encode(["A cat sleeps.", "A dog sleeps."])
        assert found.cosine == pytest.approx(float(u @ v), abs=2e-2)
        assert found.by_pooling == {"none": found.cosine}
        assert (found.attribution, "vectors only" in found.no_map) == (None, True)
        assert found.sent_to and found.sent_to in name
        # A page sends a pooling with any model.
        changes = leave_one_out(models.get(name, VectorModel, "mean"), None, found)
        assert [change.word for change in changes] == ["A", "cat", "sleeps.", "A", "dog", "sleeps."]

    def test_evaluate_measures_it_as_the_model_itself(self, models, name, local, home, tmp_path):
        file = tmp_path / "pairs.csv"
        rows = zip(*PAIRS.columns, PAIRS.scores, strict=True)
        file.write_text(
            "sentence1,sentence2,score\n" + "".join(f"{a},{b},{score}\n" for a, b, score in rows)
        )
        grid = evaluate_grid(make_grid([name], [str(file)]), models, home, UNWATCHED)
        [result] = grid.results.values()
        first, second = map(local.encode, PAIRS.columns)
        assert np.allclose(result.scores["cosine"], (first * second).sum(axis=1), atol=2e-2)
        assert evaluate(open_model(name), PAIRS)["n"] == 3

    def test_what_nobody_has_named_is_not_asked(self, models, name, home):
        other = name.replace("127.0.0.1", "localhost")
        with pytest.raises(
            InputError, match=r"no texts are sent to 'localhost:.*serve --allow-endpoint HOST:PORT"
        ):
            models.get(other, VectorModel)
        services = Services.start(Settings(home=home))
        services.calibrate_later(name, "none")
        assert services.calibration_progress(name) is None  # it would send 11,498 sentences
