"""In the gate each file of tests has a budget of processor time (`budgets.toml`): one that exceeds it fails.

Measured is what the process of the tests and all that it started have used, from the file's first test to the end of
its last: seconds of a core, which a busy machine stretches far less than the clock. Large budgets come first,
so that no worker ends with a long file that it has begun last.
"""

from __future__ import annotations

import resource
import tomllib
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from paths import ROOT

with (ROOT / "tests" / "budgets.toml").open("rb") as table:
    _TABLE = tomllib.load(table)
SECONDS: dict[str, float] = _TABLE["seconds"]
DEFAULT: float = _TABLE["default"]
BROWSER: float = _TABLE["browser"]

_began: dict[Path, float] = {}  # the files that have begun -> what had been used by then


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The largest budgets first; what has the same stays in its order, which may be random."""
    items.sort(key=lambda item: -budget_of(item.path))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """After a file's last test, whose teardown ends the file's fixtures: what has the file used?"""
    yield
    if nextitem is not None and nextitem.path == item.path:
        return
    used = _processor_seconds() - _began.pop(item.path)
    item.user_properties.append(("processor seconds of the file", f"{used:.1f}"))
    budget = budget_of(item.path)
    if item.config.option.markexpr == "not slow" and used > budget:
        pytest.fail(
            f"{_name(item.path)} has used {used:.1f} s of processor time, but its budget is {budget:g} s: make it"
            " cheaper, mark what guards against the rare as slow, or raise its budget in tests/budgets.toml"
        )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before a file's first test: what has been used so far?"""
    if item.path not in _began:
        _began[item.path] = _processor_seconds()


def budget_of(file: Path) -> float:
    """Seconds of processor time."""
    name = _name(file)
    return SECONDS.get(name, BROWSER if name.startswith("browser/") else DEFAULT)


def _name(file: Path) -> str:
    return file.relative_to(ROOT / "tests").as_posix()


def _processor_seconds() -> float:
    """User and system time of this process and of all that it has started, whether or not they are there still."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = sum(psutil.Process().cpu_times()[:2]) + ended.ru_utime + ended.ru_stime
    for child in psutil.Process().children(recursive=True):
        try:
            times = child.cpu_times()
        except psutil.Error:  # it has ended, and counts with its parent's
            continue
        seconds += sum(times[:4]) if len(times) > 3 else sum(times[:2])  # on Linux with those of its own children
    return seconds
