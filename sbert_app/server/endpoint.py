"""Functions as HTTP endpoints: arguments are checked by their types, and an error is one sentence.

Gradio passes on whatever JSON a request holds. Here every argument is validated by pydantic against the type that the
function declares, and against a range or a length that is stated: text and lists have a limit, numbers a smallest and
a largest value. What does not fit is an error that names the argument; a fault of the app is logged, and the visitor
is told that there was one, not which.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import wraps
from types import MethodType
from typing import Annotated, Any, NamedTuple, TypeVar, get_type_hints

import gradio as gr
from pydantic import Field, TypeAdapter, ValidationError
from starlette.requests import Request

from sbert_app.pages.components.messages import gradio_errors
from sbert_app.services.access import Quota, TooMany, visitor_of
from sbert_app.services.container import Services
from sbert_app.services.runs.record import RunBusy, RunNotFound, RunStateError
from training.data.tables.cells import quoted
from training.errors import InputError, NotFoundError, UserFacingError
from training.trainer.config import SETTINGS

# An HTTP answer is no file: for more sentences there is the command line.
MOST_SENTENCES = 10_000
# The length of a sentence.
MOST_CHARACTERS = 100_000
# The length of the name of a model, a data set or a run, in characters.
LONGEST_NAME = 4_096
# `register` passes this argument to an endpoint.
SERVICES = "services"
# So many requests of one address to an endpoint that computes for seconds are worked on at once.
MOST_AT_ONCE = 16

# Under this key the scope of a plain call has a dictionary, for the status of a user's error.
STATUS = "sbert_lab.status"
STATUSES: dict[type[UserFacingError], int] = {TooMany: 429, NotFoundError: 404, RunNotFound: 404}
STATUSES |= {RunBusy: 409, RunStateError: 409}

Call = TypeVar("Call", bound=Callable[..., Any])


def status_of(error: UserFacingError) -> int:
    return next((status for kind, status in STATUSES.items() if isinstance(error, kind)), 400)


class Between(NamedTuple):
    """The smallest and the largest value of a numeric argument, both included."""

    low: float
    high: float


def endpoint(at_once: int | None = None, sentences: tuple[str, ...] = (), **ranges: Between) -> Callable[[Call], Call]:
    """A decorator for functions that `gr.api` registers.

    Args:
        at_once: requests of one address that are worked on at the same time; None for any number.
        sentences: the arguments that hold a sentence; other texts are names, which are shorter.
        ranges: for each numeric argument its range.
    """
    limit = Quota(at_once) if at_once else None

    def decorate(function: Call) -> Call:
        signature, hints = inspect.signature(function), get_type_hints(function)
        takes_request = hints.pop("request", None) is not None
        parameters = {name: part for name, part in signature.parameters.items() if name != "request"}
        defaults = {name: part.default for name, part in parameters.items() if part.default is not part.empty}
        adapters = {
            name: _adapter(hints[name], name in sentences, ranges.get(name)) for name in parameters if name != SERVICES
        }

        @wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            with gradio_errors(), ExitStack() as held:
                bound = whole.bind(*arguments, **named)
                bound.apply_defaults()
                request = bound.arguments.pop("request")
                try:
                    # null is the default of an argument that has one.
                    values = defaults | {name: value for name, value in bound.arguments.items() if value is not None}
                    checked = {name: _checked(name, values.get(name), adapter) for name, adapter in adapters.items()}
                    checked |= {name: value for name, value in bound.arguments.items() if name == SERVICES}
                    if takes_request:
                        checked["request"] = request
                    if limit is not None:
                        held.enter_context(limit.held(visitor_of(request)))
                    return function(**checked)
                except UserFacingError as error:
                    # `PlainCalls` answers with it. Gradio's request has no such request for what waits in its queue.
                    plain = getattr(request, "request", None)
                    getattr(plain, "scope", {}).get(STATUS, {})["status"] = status_of(error)
                    raise

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        request = inspect.Parameter("request", kind, default=None, annotation=gr.Request)
        whole = signature.replace(parameters=[*parameters.values(), request])
        call.__signature__ = whole  # type: ignore[attr-defined]
        call.__annotations__ = hints | {"request": gr.Request}
        return call  # type: ignore[return-value]

    return decorate


def _adapter(hint: Any, is_sentence: bool, between: Between | None) -> TypeAdapter[Any]:
    """The validator of an argument: of its type, within the limits."""
    sentence = Annotated[str, Field(max_length=MOST_CHARACTERS)]
    name = Annotated[str, Field(max_length=LONGEST_NAME)]
    many = Annotated[list[sentence], Field(max_length=MOST_SENTENCES)]
    limits: Mapping[Any, Any] = {str: sentence if is_sentence else name, list[str]: many, list[str] | None: many | None}
    if between is not None:
        finite = False if hint is float else None
        return TypeAdapter(Annotated[hint, Field(ge=between.low, le=between.high, allow_inf_nan=finite)])
    return TypeAdapter(limits.get(hint, hint))


def _checked(name: str, value: Any, adapter: TypeAdapter[Any]) -> Any:
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise InputError(_sentence(name, adapter, error.errors(include_url=False)[0])) from None


def _sentence(name: str, adapter: TypeAdapter[Any], mistake: Any) -> str:
    """The mistake in an argument, and the values that it takes."""
    schema, value = adapter.json_schema(), mistake["input"]
    place = next((f"{name}, number {step + 1:,}," for step in mistake["loc"] if isinstance(step, int)), name)
    if "minimum" in schema:
        kind = "a whole number" if schema["type"] == "integer" else "a number"
        return f"{name} is {quoted(value)}, but must be {kind} from {schema['minimum']:,} to {schema['maximum']:,}"
    if mistake["type"] in {"string_too_long", "too_long"} and isinstance(value, str):
        return f"{place} has {len(value):,} characters; at most {mistake['ctx']['max_length']:,} are taken"
    if mistake["type"] == "too_long":
        return f"{name} holds {len(value):,} texts; at most {mistake['ctx']['max_length']:,} are taken"
    if mistake["type"] == "literal_error":
        return f"{name} is {quoted(value)}, but must be {mistake['ctx']['expected']}"
    return f"{place} is {quoted(value)}, but must be {_KINDS.get(mistake['type'], 'something else')}"


_KINDS = {"string_type": "text", "list_type": "a list of texts", "dict_type": 'an object such as {"lora_rank": 8}'}
_KINDS |= dict.fromkeys(("bool_type", "bool_parsing"), "true or false")
_KINDS |= dict.fromkeys(("missing", "model_type", "model_attributes_type"), "an uploaded file")


class Endpoint:
    """A registered endpoint: the function that answers, its description, and the signature that callers see."""

    def __init__(self, function: Callable[..., Any]) -> None:
        signature = inspect.signature(function)
        # Gradio adds the request by itself.
        own = [parameter for parameter in signature.parameters.values() if parameter.annotation is not gr.Request]
        self.function, self.signature = function, signature.replace(parameters=own)
        self.description, _, self._arguments = (inspect.getdoc(function) or "").partition("\n\nArgs:\n")

    def complete(self, named: Mapping[str, Any]) -> dict[str, Any]:
        """Returns all arguments in their order, with the defaults of those that are left out.

        InputError if an argument is unknown, or one without a default is missing.
        """
        name, parameters = self.function.__name__, self.signature.parameters
        takes = ", ".join(parameters)
        if unknown := [key for key in named if key not in parameters]:
            raise InputError(f"{name} has no argument {unknown[0][:80]!r}; it takes {takes}")
        values = {key: named.get(key, parameter.default) for key, parameter in parameters.items()}
        if missing := [key for key, value in values.items() if value is inspect.Parameter.empty]:
            raise InputError(f"{name} needs {' and '.join(missing)}; it takes {takes}")
        return values

    def answer(self, arguments: Mapping[str, Any], request: Request, root_path: str = "") -> Any:
        """The answer to ``arguments`` as JSON values, in which a file is an address.

        InputError as `complete`; gr.Error says what is wrong with their values, or that the app has a fault.
        """
        answer = self.function(**self.complete(arguments), request=request)
        if isinstance(answer, tuple):
            answer, file = answer
            answer["file"] = f"{request.base_url}".rstrip("/") + f"{root_path}/gradio_api/file={file.path}"
        return answer

    def schema(self) -> dict[str, Any]:
        """The JSON schema of the arguments, by name; their descriptions are those of the docstring."""
        described = {key: " ".join(words.split()) for key, words in _ARGUMENT.findall(self._arguments)}
        properties = {}
        for key, parameter in self.signature.parameters.items():
            of_type = _FILE if parameter.annotation is gr.FileData else TypeAdapter(parameter.annotation).json_schema()
            default = {} if parameter.default is inspect.Parameter.empty else {"default": parameter.default}
            properties[key] = {**of_type, **default, "description": described.get(key, "")}
        required = [key for key, schema in properties.items() if "default" not in schema]
        return {"type": "object", "properties": properties, "required": required}


_ARGUMENT = re.compile(r"^    (\w+): (.*(?:\n     .*)*)", re.MULTILINE)
_FILE = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}

# The registered endpoints, by name.
endpoints: dict[str, Endpoint] = {}


def register(function: Callable[..., Any], services: Services, **options: Any) -> None:
    """Registers ``function`` in the open Blocks as the endpoint of its name; ``options`` are those of ``gr.api``."""
    bound = MethodType(function, services)
    endpoints[function.__name__] = Endpoint(bound)
    gr.api(bound, api_name=function.__name__, **options)


def run_endpoint(start_run: Callable[..., Any]) -> Callable[..., Any]:
    """Makes an endpoint whose arguments that are fields of `RunConfig` have their ranges and descriptions."""
    arguments: list[str] = []
    ranges: dict[str, Any] = {}
    for name, argument in inspect.signature(start_run).parameters.items():
        if (setting := SETTINGS.get(name)) is None:
            continue
        words = f"; {', '.join(setting.choices)}" if name == "objective" else ""
        if argument.default in (0, "") and setting.words not in ("", "0"):
            words = f"; {'empty' if setting.range is None else '0'} = {setting.words}"
        arguments.append(f"{name}: {setting.sentence()}{words}.")
        if setting.range is not None:
            # 0 stands for an argument that is left out; `RunConfig` refuses it elsewhere.
            low = setting.range.low if setting.range.includes_low and not setting.is_optional else 0
            ranges[name] = Between(low, setting.range.high)
    start_run.__doc__ = (start_run.__doc__ or "").format(arguments="\n        ".join(arguments))
    return endpoint(**ranges)(start_run)
