"""The training objectives: sentence vectors in, a scalar loss out.

Each objective is a class that knows nothing of tokenizers or data sets: it takes the sentence
vectors of a batch, one tensor (B, D) float32 per column, and the targets of its B rows, and returns
the mean loss. Values and gradients equal sentence-transformers' losses
(tests/training/test_objectives.py). All other facts about it, from its equation to the forms of
data that it takes, are in the class (`training.objectives.base.Objective`).

`OBJECTIVES` contains all of them by name. Every file in this folder is imported, so a new file with
a class adds an objective.
"""

import pkgutil
from importlib import import_module

from training.objectives.base import OBJECTIVES, Objective, Vectors, training_data

__all__ = ["OBJECTIVES", "Objective", "Vectors", "training_data"]

# Objectives are offered in this order: the paper's, the other built-in ones, and the ones in new
# files.
_files = [module.name for module in pkgutil.iter_modules(__path__)]
for _name in ("pairs", "ranking", "tokens", *_files):
    import_module(f"{__name__}.{_name}")
