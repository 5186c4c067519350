"""preview_negatives(config): the hard negatives that a run would mine, before it is started."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from training.trainer.config import RunConfig
    from training.trainer.negatives import MinedTriplet

SHOWN = 12  # triplets


@dataclass(frozen=True)
class NegativesPreview:
    """Some of the triplets, and what is to be said on all of them."""

    triplets: list[MinedTriplet]
    rows: int  # with a negative
    note: str


def preview_negatives(
    config: RunConfig,
    home: Path,
    on_progress: Callable[[int, int | None], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
    count: int = SHOWN,
) -> NegativesPreview:
    """Mine as the run will, and show ``count`` rows, spread over the data.

    ``on_progress`` is called with (sentences encoded, in all).

    Raises:
        InputError: the data or the base cannot be used, or no row gets a negative.
        Stopped: ``should_stop`` returned true.
    """
    from training.data.transforms import training_data
    from training.models.encoder import Encoder
    from training.trainer.negatives import mine_negatives

    data = training_data(config.train_data, config.objective, config.seed, home)
    encoder = Encoder.load(config.base, config.pooling, config.dtype, home=home, seed=config.seed)
    mined = mine_negatives(encoder, data, config.negative_margin, config.seed, should_stop, on_progress)
    return NegativesPreview(mined.examples(count), len(mined.data), mined.data.notes[-1])
