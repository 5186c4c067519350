"""What the tab of two sentences is asked, what it computes, and the same as a link, as Python and as curl."""

from __future__ import annotations

import json
import shlex
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlencode

from sbert_app.pages.components.messages import error_message
from sbert_app.pages.components.pickers import NO_CROSS_ENCODER, named_model
from sbert_app.services.compare.comparison import Comparison, compare_by_name
from sbert_app.services.compare.examples import ExamplePair, example_of
from sbert_app.services.compare.token_score import TokenScore, score_tokens
from sbert_app.services.models.cache import ModelCache
from training.errors import InputError, UserFacingError
from training.names import ModelName

LONGEST_LINK = 4_000  # characters of the query; servers and proxies refuse addresses of more than about 8,000


@dataclass(frozen=True)
class Question:
    """What is compared. The fields are also the query parameters of a link."""

    a: str
    b: str
    model: ModelName
    pooling: str = ""
    cross: str = ""  # as it was typed
    second: str = ""  # another model, beside the first, with its own pooling

    @classmethod
    def parse(cls, a: str, b: str, model: str, pooling: str, cross: str | None, second: str | None) -> Question:
        """What the fields of the page say. InputError if the name of the first model cannot be read."""
        return cls(a, b, named_model(model), pooling, "" if cross in (None, NO_CROSS_ENCODER) else cross, second or "")

    @property
    def models(self) -> list[ModelName]:
        """The models that are needed, without those whose names cannot be read: `compute` says why."""
        names = [self.model]
        for typed in filter(None, (self.second, self.cross)):
            with suppress(InputError):
                names.append(ModelName.parse(typed))
        return names


@dataclass(frozen=True)
class Answer:
    """Everything that was computed for the inputs. Kept in the session, to be shown again when a curve is measured."""

    inputs: Question
    comparison: Comparison
    second: Comparison | None
    example: ExamplePair | None  # that was compared, if it was one
    errors: tuple[str, ...]  # as HTML: why a score is missing
    tokens: TokenScore | None = None  # by the second model, if it compares tokens

    @property
    def comparisons(self) -> list[Comparison]:
        return [comparison for comparison in (self.comparison, self.second) if comparison is not None]


def compute(models: ModelCache, inputs: Question, pair: ExamplePair | None) -> Answer:
    """The answer. Raises UserFacingError if the sentences or the first model cannot be used."""
    errors = []
    cross_encoder, second, tokens = inputs.cross, None, None
    try:
        models.cross_encoder_or_none(cross_encoder)
    except UserFacingError as unusable:  # the cosine is worth showing without it
        errors.append(error_message(unusable))
        cross_encoder = ""
    comparison = compare_by_name(models, inputs.a, inputs.b, inputs.model, inputs.pooling, cross_encoder)
    if inputs.second:
        try:
            name = ModelName.parse(inputs.second)
            tokens = score_tokens(models, name, inputs.a, inputs.b)
            if tokens is None:
                second = compare_by_name(models, inputs.a, inputs.b, name)
        except UserFacingError as unusable:
            errors.append(error_message(unusable))
    return Answer(inputs, comparison, second, example_of(inputs.a, inputs.b, pair), tuple(errors), tokens)


def link(base_url: str, question: Question) -> str:
    """A link that opens the page with these inputs; a sentence that says so where they are too long for one."""
    query = {name: getattr(question, name) for name in question.__dataclass_fields__}
    encoded = urlencode({name: str(value) for name, value in query.items() if value})
    if len(encoded) > LONGEST_LINK:
        return "These sentences are too long for a link."
    return f"{base_url.rstrip('/')}/?{encoded}"


def as_python(question: Question) -> str:
    lines = [
        f"from training import {'CrossEncoder, ' if question.cross else ''}open_model",
        "",
        f"a, b = {question.a!r}, {question.b!r}",
        f"encoder = open_model({str(question.model)!r}, pooling={question.pooling!r})",
        "u, v = encoder.encode([a, b])",
        'print("cosine", float(u @ v))',
    ]
    if question.cross:
        lines.append(f'print("cross-encoder", float(CrossEncoder.load({question.cross!r}).predict([(a, b)])[0]))')
    return "\n".join(lines)


def as_curl(base_url: str, question: Question) -> str:
    models = {
        "model": str(question.model),
        "pooling": question.pooling,
        "cross_encoder": question.cross or NO_CROSS_ENCODER,
    }
    body = json.dumps({"sentence_a": question.a, "sentence_b": question.b, **models}, ensure_ascii=False)
    return (
        f"curl -s {shlex.quote(base_url.rstrip('/') + '/gradio_api/run/compare')} \\\n"
        f"  -H 'Content-Type: application/json' \\\n  -d {shlex.quote(body)}"
    )
