"""`trainer/teacher.py`: targets are what the teacher says, projected if it is wider; a student comes to agree."""

import re

import numpy as np
import pytest
import torch
from run_helpers import of_kind, run
from torch import nn

from training.data.dataset import Dataset
from training.errors import InputError
from training.models.cross_encoder import CrossEncoder
from training.models.encoder import Encoder
from training.objectives import OBJECTIVES
from training.objectives.base import TEXTS
from training.trainer.config import RunConfig
from training.trainer.teacher import Teacher, own_targets

SENTENCES = ["A man plays.", "A dog barks.", "Someone sings.", "A man plays.", "It rains."]
PAIRS = Dataset("pairs", (SENTENCES, SENTENCES[::-1]))
TRIPLETS = Dataset("triplets", (SENTENCES, SENTENCES[::-1], SENTENCES[1:] + SENTENCES[:1]))


def teacher(
    objective: str, name: str, base: str = "scratch:1x32", similarity: str = "dot"
) -> Teacher:
    student = Encoder.load(base, dtype="float32", device="cpu")
    config = RunConfig(objective, teacher=name, margin_similarity=similarity, dtype="float32")
    return Teacher(config, student, OBJECTIVES[objective].target, None, lambda: False)


def test_vectors_of_a_bi_encoder():
    labelled = teacher("mse", "scratch:1x32").label(PAIRS)
    vectors = Encoder.load("scratch:1x32", dtype="float32", device="cpu").encode(
        SENTENCES, normalize=False
    )
    found = labelled.targets[torch.tensor([1, 4])]
    assert found.shape == (2, 2, 32)
    assert np.allclose(found[0].numpy(), vectors[[1, 3]], atol=1e-6)
    assert np.allclose(found[1].numpy(), vectors[[4, 0]], atol=1e-6)
    assert len(labelled.targets.values) == 4  # each different sentence once
    assert labelled.data.notes == ("targets are the vectors of scratch:1x32",)


def test_wider_vectors_are_projected_to_their_principal_components():
    wide = teacher("mse", "scratch:1x64")
    labelled = wide.label(Dataset("words", ([f"the number {i}" for i in range(200)],)))
    assert labelled.targets[slice(0, 3)].shape == (3, 1, 32)
    note = r"projected from 64 to 32 dimensions by PCA \([5-9]\d\.\d% of their variance\)"
    assert re.search(note, labelled.data.notes[-1])
    projection = wide._projection
    assert np.allclose(projection.T @ projection, np.eye(32), atol=1e-5)
    other = wide.label(PAIRS).targets  # by the same projection
    vectors = Encoder.load("scratch:1x64", dtype="float32", device="cpu").encode(
        SENTENCES, normalize=False
    )
    assert np.allclose(other[slice(0, 1)][0, 0].numpy(), vectors[0] @ projection, atol=1e-5)


def test_a_teacher_has_vectors_of_a_fixed_meaning_as_wide_as_the_students():
    with pytest.raises(
        InputError, match=r"scratch:1x32 have 32 dimensions, fewer than the 64 of the base"
    ):
        teacher("mse", "scratch:1x32", "scratch:1x64").label(PAIRS)
    targets = teacher("mse", "all-MiniLM-L6-v2", "all-MiniLM-L6-v2").label(PAIRS).targets
    assert torch.allclose(targets.values.norm(dim=1), torch.ones(4), atol=1e-5)
    with pytest.raises(InputError, match="tfidf cannot be a teacher"):
        teacher("mse", "tfidf")


@pytest.mark.slow
def test_scores_and_margins_of_a_cross_encoder():
    model = CrossEncoder.load("minilm-stsb", dtype="float32", device="cpu")
    one, two, three = TRIPLETS.columns
    scored = teacher("mse", "minilm-stsb").label(PAIRS)
    assert scored.data.notes == ("targets are the scores of minilm-stsb",)
    assert np.allclose(
        scored.targets[slice(None)].numpy(),
        model.predict(list(zip(one, two, strict=True))),
        atol=1e-6,
    )
    margins = teacher("margin-mse", "minilm-stsb").label(TRIPLETS).targets
    expected = model.predict(list(zip(one, two, strict=True))) - model.predict(
        list(zip(one, three, strict=True))
    )
    assert np.allclose(margins[slice(None)].numpy(), expected, atol=1e-6)
    with pytest.raises(
        InputError, match="minilm-stsb is a cross-encoder, which scores pairs, but triplets holds"
    ):
        teacher("mse", "minilm-stsb").label(TRIPLETS)


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_margins_of_a_bi_encoder(similarity):
    margins = teacher("margin-mse", "scratch:1x64", similarity=similarity).label(TRIPLETS).targets
    vectors = Encoder.load("scratch:1x64", dtype="float32", device="cpu").encode(
        SENTENCES, normalize=similarity == "cosine"
    )
    expected = (vectors * vectors[::-1]).sum(1) - (vectors * np.roll(vectors, -1, axis=0)).sum(1)
    assert np.allclose(margins.values.numpy(), expected, atol=1e-4)


def test_targets_of_data():
    assert own_targets(PAIRS).targets is None
    scored = own_targets(Dataset("scored", (["a", "b"], ["c", "d"]), scores=[5.0, 2.5])).targets
    assert scored[slice(0, 2)].tolist() == [1.0, 0.5]
    labels = Dataset("labelled", (["a", "b"], ["c", "d"]), labels=[1, 0], label_names=("x", "y"))
    assert own_targets(labels).targets[torch.tensor([1])].tolist() == [0]
    pairs = Dataset("pairs", (["It rains.", "A dog"], ["a  dog", "it RAINS."]))
    assert own_targets(pairs, TEXTS).targets[slice(0, 2)].tolist() == [[0, 1], [1, 0]]


def test_a_student_comes_to_agree_with_its_teacher(config):
    config = config.replace(
        objective="mse", teacher="scratch:2x64", max_steps=30, learning_rate=2e-3
    )
    result, events = run(config)
    start = of_kind(events, "state")[0]
    assert any("the gold scores are not used" in note for note in start["notes"])
    assert any("of scratch:2x64" in note for note in start["notes"])
    assert result.final["loss"] < 0.8 * result.baseline["loss"]


def test_a_base_without_dropout_is_refused_by_simcse(pairs, tmp_path):
    encoder = Encoder.load("scratch:1x32", dtype="float32", device="cpu")
    for module in encoder.backbone.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    encoder.backbone.config.hidden_dropout_prob = (
        encoder.backbone.config.attention_probs_dropout_prob
    ) = 0.0
    encoder.save(tmp_path / "dry")
    with pytest.raises(
        InputError, match="has no dropout, by which the two vectors of a sentence differ in simcse"
    ):
        run(
            RunConfig(
                "simcse", base=str(tmp_path / "dry"), train_data=pairs, eval_data=None, max_steps=1
            )
        )
