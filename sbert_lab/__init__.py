"""SBERT Lab in Python: ``from sbert_lab import Encoder, train``.

The names are those of the core, the package ``training``, and are imported on first use. Importing
them from here works in a folder that has a package called ``training`` too: this package takes the
core that is installed beside it.
"""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

_FOLDER = Path(__file__).parents[1]


def _import_core() -> ModuleType:
    """The package ``training`` that lies beside this one.

    The working directory comes first on the path of a script or a notebook, so that a package of
    the user's with the same name would be found before it. Raises ImportError if the user's package
    has been imported already, because Python keeps only one package of a name.
    """
    sys.path.insert(0, str(_FOLDER))
    try:
        core = import_module("training")
    finally:
        sys.path.remove(str(_FOLDER))
    file = core.__file__
    if file is None or Path(file).parents[1] != _FOLDER:
        other = file or list(core.__path__)
        raise ImportError(
            f"another package called training was imported before ({other}); import sbert_lab first"
        )
    return core


_core = _import_core()
__version__: str = _core.__version__
__all__: list[str] = _core.__all__


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    return getattr(_core, name)
