"""Small training data and the config of a small run."""

import pytest

from training.data.load import load_data
from training.trainer.config import RunConfig


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> str:
    """160 scored pairs of the STS benchmark: a third alike, a third related, a third neither."""
    data = load_data("stsb:dev")
    chosen: list[int] = []
    for low, high in ((0, 1), (2, 3), (4, 5)):
        chosen += [i for i, score in enumerate(data.scores) if low <= score <= high][:54]
    rows = [f"{data.columns[0][i]}\t{data.columns[1][i]}\t{data.scores[i]}" for i in chosen]
    path = tmp_path_factory.mktemp("data") / "pairs.tsv"
    path.write_text("sentence1\tsentence2\tscore\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def config(pairs) -> RunConfig:
    """Twelve steps of a tiny random encoder, in float32, where every bit can be compared."""
    return RunConfig(
        "regression",
        base="scratch:1x32",
        train_data=pairs,
        eval_data=pairs,
        max_steps=12,
        eval_every=5,
        learning_rate=1e-3,
        dtype="float32",
    )
