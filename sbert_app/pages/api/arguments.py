"""Endpoints and their arguments: how each is registered, and how plain HTTP may name its arguments.

Gradio's own clients fill in defaults before they post; curl does not. A body that is posted to an endpoint may
therefore be any of ``{"data": [all arguments]}``, ``{"data": [the first arguments]}`` and ``{"name": value, …}``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import gradio as gr

from training.errors import InputError

_signatures: dict[str, inspect.Signature] = {}


def register(function: Callable[..., Any], **options: Any) -> None:
    """Register ``function`` in the open Blocks as the endpoint of its name; ``options`` are those of ``gr.api``."""
    name = function.__name__
    signature = inspect.signature(function)
    own = [each for each in signature.parameters.values() if each.annotation is not gr.Request]  # which Gradio adds
    _signatures[name] = signature.replace(parameters=own)
    gr.api(function, api_name=name, **options)


def is_registered(name: str) -> bool:
    """Whether there is an endpoint of that name."""
    return name in _signatures


def with_all_arguments(name: str, body: dict[str, Any]) -> dict[str, Any]:
    """The body of a request to the endpoint ``name`` with every argument in ``data``, those left out by default.

    Raises:
        InputError: an argument is unknown, or one without a default is missing.
    """
    signature = _signatures.get(name)
    given = body.get("data")
    if signature is None:
        if not isinstance(given, list):
            raise InputError('the request must be a JSON object with the arguments as a list: {"data": […]}')
        return body
    parameters = signature.parameters
    names = list(parameters)
    if not isinstance(given, list):  # an argument may be called data, too
        session = {key: value for key, value in body.items() if key in ("session_hash", "event_data")}
        named = {key: value for key, value in body.items() if key not in session}
    else:
        session = {key: value for key, value in body.items() if key != "data"}
        if len(given) > len(names):
            raise InputError(f"{name} takes at most {len(names)} arguments: {', '.join(names)}")
        named = dict(zip(names, given, strict=False))
    unknown = [key for key in named if key not in parameters]
    if unknown:
        raise InputError(f"{name} has no argument {unknown[0][:80]!r}; it takes {', '.join(names)}")
    missing = [key for key in names if key not in named and parameters[key].default is inspect.Parameter.empty]
    if missing:
        raise InputError(f"{name} needs {' and '.join(missing)}; it takes {', '.join(names)}")
    return {**session, "data": [named.get(key, parameters[key].default) for key in names]}
