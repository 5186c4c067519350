"""A day's work with `training` alone: data in memory, an objective and an evaluator of one's own, search, clusters."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny_models import WORDS, make_model
from torch import nn

import training
from training import (
    Dataset,
    Encoder,
    InputError,
    RunConfig,
    attribute,
    community_detection,
    evaluate,
    paraphrase_mining,
    quantize,
    semantic_search,
    similarity,
    train,
)

FIRST = [f"the {word} is on the {other}" for word in WORDS for other in WORDS[:6]]
SECOND = [f"a {word} was in a {other}" for word in WORDS for other in WORDS[:6][::-1]]
SCORES = [5.0 if row % 3 else 0.5 for row in range(len(FIRST))]


class Squared(nn.Module):
    """An objective with a weight of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, vectors: list[torch.Tensor], target: torch.Tensor | None) -> torch.Tensor:
        return (self.scale * torch.cosine_similarity(*vectors) - target).square().mean()


class Recorder:
    """What the run has called."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def on_step(self, step: int, loss: float) -> None:
        self.calls.append(f"step {step}")

    def on_end(self, result: object) -> None:
        self.calls.append("end")


def pearson(encoder: Encoder) -> dict[str, float]:
    return {"pearson": evaluate(encoder, list(zip(FIRST, SECOND, SCORES, strict=True)))["pearson"]["cosine"]}


@pytest.mark.slow
def test_from_pairs_in_memory_to_a_model_that_searches(tmp_path):
    data = Dataset.from_pairs(FIRST, SECOND, SCORES)
    recorder, objective = Recorder(), Squared()
    result = train(
        RunConfig("regression", base=str(make_model(tmp_path / "base")), max_steps=60, eval_every=5, patience=2),
        folder=tmp_path / "run",
        train_data=data,
        eval_data=data.select(range(20)),
        objective=objective,
        evaluators=[pearson],
        metric_for_best_model="pearson",
        callbacks=[recorder],
    )
    # The evaluator has chosen the checkpoint, the objective's own weight is trained, patience has ended the run.
    figures = [each["pearson"] for each in result.evaluations if each["step"]]
    assert result.metric == "pearson" and result.best["pearson"] == max(figures)
    assert objective.scale.item() != 1.0
    assert result.steps == 60 or result.reason == "no better figure in 2 evaluations"
    assert recorder.calls == [*(f"step {step}" for step in range(1, result.steps + 1)), "end"]
    encoder = Encoder.load(result.path)
    assert pearson(encoder)["pearson"] == pytest.approx(result.best["pearson"], abs=1e-6)
    with pytest.raises(InputError, match="objects of the program that started it"):
        train(RunConfig.model_validate_json((tmp_path / "run/config.json").read_bytes()), folder=tmp_path / "other")

    # Search, mining, clusters, fewer bits.
    corpus, query = encoder.encode(FIRST), encoder.encode(SECOND[0])
    assert query.shape == (corpus.shape[1],)
    hits = semantic_search(query, corpus, top_k=3)[0]
    best = np.sort(np.asarray(similarity(query, corpus))[0])[::-1][:3]
    np.testing.assert_allclose([hit["score"] for hit in hits], best, atol=1e-5)
    mined = paraphrase_mining(encoder, FIRST, max_pairs=5)
    assert len(mined) == 5 and mined[0][0] >= mined[-1][0] and all(i < j for _, i, j in mined)
    members = [row for each in community_detection(corpus, threshold=0.9, min_community_size=2) for row in each]
    assert members and len(members) == len(set(members))
    assert quantize(corpus, "int8").nbytes * 4 == quantize(corpus, "binary").nbytes * 32 == corpus.nbytes

    # What is shown: two lines in a terminal, a table, a curve and a map in a notebook.
    words = attribute(encoder, FIRST[0], SECOND[0])
    for shown in (data, encoder, RunConfig("mnrl", base="x"), result, words):
        assert len(repr(shown)) <= 240
    assert FIRST[0] in data._repr_html_() and "<svg" in result._repr_html_() and "guitar" not in words._repr_html_()
    assert {"train", "Encoder", "InputError", "__version__"} <= set(dir(training))
