"""docs/api.md: the public names of ``sbert_lab`` with their signatures and docstrings.

python -m scripts.api_reference     writes it; tests/test_docs.py compares
"""

import inspect
import re
from pathlib import Path
from typing import Any

import training

PAGE = Path(__file__).parents[1] / "docs" / "api.md"
INTRODUCTION = """# Reference

The public names of `sbert_lab`, from their docstrings, by `python -m scripts.api_reference`. [Python](python.md) has
examples. Arguments that mean the same everywhere are listed here and not repeated:

- `dtype`: auto, float32, bfloat16 or int8; auto is bfloat16 where the hardware does that natively.
- `device`: auto, cpu, cuda, cuda:1, mps.
- `home`: the home folder; None = $SBERT_HOME or the platform's.
- `on_progress`: called with (done, all) now and then.
- `should_stop`: asked now and then; if it returns true, `Stopped` is raised.
- `report`: filled with counts.
- `show_progress_bar`: draw a bar in a terminal or a notebook.

Wrong input raises `InputError` with one sentence: what, where, and what to do.
"""
# The entries that the introduction makes superfluous. `device` of `encode` takes a list, so its description stays.
SHARED = re.compile(
    r"- `(dtype|home|on_progress|should_stop|report|show_progress_bar|InputError|Stopped)`:|- `device`: auto"
)
# Public methods for the rest of the package, which users of the library do not call.
INTERNAL = {"allows_pooling", "check_settings", "embed", "embed_all", "encode_batch", "eval", "evaluate_every"}
INTERNAL |= {"for_role", "from_table", "pool", "role", "score", "search", "steps_of_parts", "to_json", "token_vectors"}
INTERNAL |= {
    "is_unknown",
    "warn_of_truncation",
    "total_steps",
    "train",
    "weigh",
    "weights_sample",
    "with_note",
    "with_runner",
    "with_settings",
}
ENTRY = re.compile(r"^([\w, ]+):")
SECTION = re.compile(r"(Args|Attributes|Raises):")


def reference() -> str:
    """The text of docs/api.md."""
    return "\n".join([INTRODUCTION, *(part for name in training.__all__ for part in _parts(name))])


def _parts(name: str) -> list[str]:
    value = getattr(training, name)
    if not inspect.isclass(value):
        return [f"## {name}\n", _described(name, value)]
    parts = [f"## {name}\n", f"{_markdown(inspect.getdoc(value) or '')}\n"]
    if inspect.isfunction(value.__init__) and value.__init__.__doc__:
        parts.append(_described(name, value.__init__))
    methods = [] if issubclass(value, Exception) else _methods(value)
    return [*parts, *(_described(f"{name}.{method}", getattr(value, method)) for method in methods)]


def _methods(cls: type) -> list[str]:
    """The public methods that a class or its own bases define, in the order of the code."""
    own = [base for base in reversed(cls.__mro__) if base.__module__.startswith("training")]
    names = dict.fromkeys(name for base in own for name in vars(base))
    public = (name for name in names if not name.startswith("_") and name not in INTERNAL)
    return [name for name in public if inspect.isroutine(getattr(cls, name))]


def _described(name: str, value: Any) -> str:
    return f"**`{name}{_signature(value)}`**\n\n{_markdown(inspect.getdoc(value) or '')}\n"


def _signature(function: Any) -> str:
    """The signature as it is written in a call: names and defaults, without types."""
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name != "self"
    ]
    return re.sub(r"<(?:[\w-]+ )?(?:function|class) '?(\w+)'?[^>]*>", r"\1", str(inspect.Signature(parameters)))


def _markdown(docstring: str) -> str:
    """Paragraphs as they are; entries of Args and Raises as a list; indented examples as code."""
    blocks = docstring.replace("``", "`").split("\n\n")
    return "\n\n".join(filter(None, map(_block, blocks)))


def _block(block: str) -> str:
    heading, _, rest = block.partition("\n")
    if heading == "Returns:":
        return f"Returns: {' '.join(rest.split())}"
    if SECTION.fullmatch(heading):
        entries = re.sub(r"\n {5,}", " ", rest).splitlines()
        items = ("- " + ENTRY.sub(r"`\1`:", entry.strip()) for entry in entries)
        listed = "\n".join(item for item in items if not SHARED.match(item))
        return f"Raises:\n\n{listed}" if listed and heading == "Raises:" else listed
    return f"```python\n{inspect.cleandoc(block)}\n```" if block.startswith("    ") else block


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
