"""docs/api.md: the public names of ``sbert_lab`` with their signatures and what each does.

python -m scripts.api_reference     writes it; tests/test_docs.py compares
"""

import inspect
import re
from pathlib import Path
from typing import Any

import training

PAGE = Path(__file__).parents[1] / "docs" / "api.md"
INTRODUCTION = """# Reference

The public names of `sbert_lab`, from their docstrings. `help(train)` describes the arguments, the result and the
errors of `train`; [Python](python.md) has examples. Many functions also take `home`, `on_progress`, `should_stop`,
`report` or `show_progress_bar`, which are left out here.
"""
# Arguments that mean the same in every function.
SHARED = {"self", "home", "on_progress", "should_stop", "report", "show_progress_bar"}
# Public methods for the rest of the package, which users of the library do not call, and second
# names.
INTERNAL = {
    "allows_pooling",
    "check_settings",
    "embed",
    "embed_all",
    "encode_batch",
    "eval",
    "evaluate_every",
    "for_role",
    "from_table",
    "get_sentence_embedding_dimension",
    "pool",
    "read_tokens",
    "role",
    "save_pretrained",
    "score",
    "search",
    "set_evaluation_metrics",
    "start_multi_process_pool",
    "steps_of_parts",
    "to_json",
    "token_vectors",
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


def reference() -> str:
    """The text of docs/api.md."""
    parts = [INTRODUCTION]
    for name in training.__all__:
        parts += _parts(name)
    return "\n".join(parts)


def _parts(name: str) -> list[str]:
    """The heading and the descriptions of a public name and its methods."""
    value = getattr(training, name)
    is_class = inspect.isclass(value)
    if not is_class:
        return [f"## {name}\n", _describe(name, value)]
    parts = [f"## {name}\n", f"{_summary(value)}\n"]
    methods = [] if issubclass(value, Exception) else _methods(value)
    if "load" in methods:
        # A model's constructor takes the arguments of `load`; its further arguments are for the rest of
        # the package.
        parts.append(_describe(name, value.load))
        methods.remove("load")
    elif inspect.isfunction(value.__init__) and value.__init__.__doc__:
        parts.append(_describe(name, value.__init__))
    for method in methods:
        parts.append(_describe(f"{name}.{method}", getattr(value, method)))
    return parts


def _methods(cls: type) -> list[str]:
    """The public methods that a class or its own bases define, in the order of the code."""
    names: dict[str, None] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("training"):
            names |= dict.fromkeys(vars(base))
    public = [name for name in names if not name.startswith("_") and name not in INTERNAL]
    return [name for name in public if inspect.isroutine(getattr(cls, name))]


def _describe(name: str, value: Any) -> str:
    """The signature and the first sentence of the docstring."""
    sentence = re.split(r"(?<=\.)\s", _summary(value))[0]
    return f"**`{name}{_signature(value)}`**\n\n{sentence}\n"


def _signature(function: Any) -> str:
    """The signature as it is written in a call: names and defaults, without types."""
    parameters = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name not in SHARED:
            parameters.append(parameter.replace(annotation=inspect.Parameter.empty))
    signature = str(inspect.Signature(parameters))
    # A default that is a function or a class is shown by its name.
    return re.sub(r"<(?:[\w-]+ )?(?:function|class) '?(\w+)'?[^>]*>", r"\1", signature)


def _summary(value: Any) -> str:
    """The first paragraph of a docstring, or the library that a function comes from."""
    library = value.__module__.partition(".")[0]
    if library != "training":
        return f"The function of {library}."
    return (inspect.getdoc(value) or "").partition("\n\n")[0].replace("``", "`")


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
