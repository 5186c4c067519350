"""Plug-ins: models, poolings, objectives and lessons that other installed packages add.

A package names its objects as entry points of the group "sbert_lab" in its pyproject.toml:

    [project.entry-points.sbert_lab]
    letters = "my_package:OPENER"          a `training.models.model.Opener`
    median = "my_package:MEDIAN"           a `training.pooling.Pooling`, under the name of the entry point
    absolute = "my_package:AbsoluteError"  a subclass of `training.objectives.base.Objective` with a name
    gold = "my_package:LESSON"             a `sbert_app.pages.learn.lesson.Lesson`

They are imported when a name is looked up that is not built in, or when everything is listed. A
built-in name takes precedence over a plug-in with the same name. docs/examples/plugin is an
example.
"""

import logging
from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

GROUP = "sbert_lab"

log = logging.getLogger("sbert_lab")

T = TypeVar("T")

_loaded: dict[str, Any] = {}


def plugins(type_: type[T]) -> dict[str, T]:
    """Returns the objects of this type that installed packages add, by the names of their entry points."""
    return {name: plugin for name, plugin in load_plugins().items() if isinstance(plugin, type_)}


def load_plugins() -> dict[str, Any]:
    """Imports every plug-in once. A plug-in that cannot be imported is skipped, with one sentence in the log."""
    # The list is the same in every call, and is emptied by the first one.
    pending = _entries()
    while pending:
        # Remove the entry before the import, which may call this function again.
        entry = pending.pop()
        plugin = tried(entry.name, entry.load)
        if plugin is not None:
            _loaded[entry.name] = plugin
    return _loaded


@cache
def _entries() -> list[EntryPoint]:
    # `load_plugins` takes them from the end.
    return sorted(entry_points(group=GROUP), reverse=True)


def tried(name: str, call: Callable[[], T]) -> T | None:
    """Calls a plug-in, and returns the result; None, with one sentence in the log, if it raises an error."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - the code of strangers may raise anything
        log.warning("the plug-in %s is left out: %s: %s", name, type(error).__name__, error)
        return None
