"""What a visitor of the web app may name: known data sets and models, sets and models on the Hub, runs, uploads.

On the command line a name may also be a path: whoever runs a command can read their files anyway. A visitor of the
web app, over the pages, HTTP or MCP, is somebody else. For them a path is refused unless it lies in an upload folder
or in a folder named by ``serve --allow-path``, and the refusal is the same whether or not the file exists.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from training.data.load import DATA_NAMES, is_data_name
from training.data.reference import parse_file, split_names
from training.errors import InputError
from training.models.reference import bare_name
from training.registry import BASELINES, CROSS_ENCODERS
from training.sources.hub import is_repo_id

if TYPE_CHECKING:
    from training.trainer.config import RunConfig

MOST_JOINED = 20  # data sets in one name
QUOTED = 80  # characters of a refused name that the message repeats

MOST_SCRATCH = (12, 768)  # layers and dimensions of the largest model with random weights: the shape of BERT-base

_SCRATCH = re.compile(r"scratch:(\d{1,2})x(\d{1,4})", re.ASCII)
_PREFIXED = re.compile(r"run:[^/\\\x00-\x1f]{1,127}|scratch:[\w:x]{1,32}")  # a run by its id or its name


class AccessPolicy:
    """Decides which names are passed on to the loaders of models and data.

    Args:
        folders: whose contents may be named by path: uploads, and those of ``--allow-path``.
    """

    def __init__(self, folders: Iterable[Path] = ()) -> None:
        self._folders = [folder.expanduser().resolve() for folder in folders]

    def check_model(self, name: str) -> str:
        """``name``, if it is a bi-encoder, baseline or cross-encoder that a visitor may name.

        Raises:
            InputError: it is anything else; the message does not depend on which files exist.
        """
        bare = bare_name(name)
        _check_scratch(bare)
        known = bare in BASELINES or bare in CROSS_ENCODERS or _PREFIXED.fullmatch(bare) is not None
        on_hub = is_repo_id(bare) and not os.path.lexists(bare)
        if known or on_hub or self._in_allowed_folder(bare):
            return name
        raise InputError(
            f"model {_quoted(name)} cannot be used here; give a built-in name, org/name of the Hub or run:<id> "
            "(folders are for the command line and serve --allow-path)"
        )

    def check_data(self, name: str) -> str:
        """``name``, if each of its parts (joined by +) is a data set that a visitor may name.

        Raises:
            InputError: a part is anything else; the message does not depend on which files exist.
        """
        # "<upload>+<other path>" lies in the folder of uploads as a path, but the loader reads it as two names.
        may_be_file = self._in_allowed_folder(parse_file(name).path)
        parts = split_names(name) if may_be_file else [part.strip() for part in name.split("+")]
        if len(parts) > MOST_JOINED:
            raise InputError(f"{len(parts):,} data sets are joined; at most {MOST_JOINED} can be used here")
        for part in parts:
            if not is_data_name(part) and not self._in_allowed_folder(parse_file(part).path):
                raise InputError(
                    f"data {_quoted(part)} cannot be used here; upload a file, or give {', '.join(DATA_NAMES)} or "
                    "hf:<org>/<name> (paths are for the command line and serve --allow-path)"
                )
        return name

    def check_run(self, config: RunConfig) -> RunConfig:
        """``config``, if a visitor may name its base, its teacher and its data.

        Raises:
            InputError: they may not.
        """
        for model in filter(None, (config.base, config.teacher)):
            self.check_model(model)
        for name in filter(None, (config.train_data, config.eval_data)):
            self.check_data(name)
        return config

    def _in_allowed_folder(self, name: str) -> bool:
        try:
            path = Path(name).expanduser().resolve()
        except (OSError, RuntimeError, ValueError):  # too long, a loop of links, the home of ~nobody, a NUL
            return False
        return path.is_absolute() and any(path != folder and path.is_relative_to(folder) for folder in self._folders)


def _check_scratch(name: str) -> None:
    """InputError for random weights of a size that is built for nobody's use but to fill the memory."""
    if (shape := _SCRATCH.fullmatch(name)) is None:
        return
    layers, dimensions = int(shape[1]), int(shape[2])
    most_layers, most_dimensions = MOST_SCRATCH
    if layers * dimensions**2 > most_layers * most_dimensions**2:
        raise InputError(
            f"{name} is larger than scratch:{most_layers}x{most_dimensions}, the largest here; larger ones are for the "
            "command line"
        )


def _quoted(name: str) -> str:
    return repr(name if len(name) <= QUOTED else f"{name[:QUOTED]}…")
