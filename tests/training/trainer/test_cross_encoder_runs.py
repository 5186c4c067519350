"""`trainer/cross_encoder.py`: the loss and the saved model are sentence-transformers', the run is like others."""

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from run_helpers import curve, run, stop_and_resume
from tiny_models import WORDS, make_model

from training.errors import InputError
from training.models.cross_encoder import CrossEncoder
from training.models.encoder import Encoder
from training.models.joint_pair_model import JointPairModel
from training.models.model import open_model
from training.models.pairs import PairTokenizer, pad_pairs
from training.objectives.pairs import BinaryCrossEntropy
from training.trainer.config import RunConfig
from training.trainer.cross_encoder import TrainableCrossEncoder
from training.trainer.training_model import TrainingModel

sentence_transformers = pytest.importorskip("sentence_transformers")

PAIRS = [
    ("a man is playing", "the man was playing guitar"),
    ("a cat", "food on the dog"),
    ("woman", "a"),
    ("", "in"),
]
GOLD = torch.tensor([1.0, 0.0, 0.35, 0.8])

NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> str:
    return str(make_model(tmp_path_factory.mktemp("tiny") / "bert"))


@pytest.fixture
def cross(config, tiny) -> RunConfig:
    return config.replace(objective="cross-encoder", base=tiny, max_length=32)


def test_loss_and_gradients_are_those_of_sentence_transformers(tmp_path):
    base = make_model(tmp_path / "base", **NO_DROPOUT)
    config = RunConfig("cross-encoder", base=str(base), dtype="float32", seed=3)
    trained = TrainableCrossEncoder.load(config, "cpu")
    trained.save(tmp_path / "start")
    model = TrainingModel(trained, BinaryCrossEntropy(), num_micro_batches=2)
    loss, _ = model.forward_backward(model.collate([trained.tokenize(PAIRS)], GOLD, 0))

    theirs = sentence_transformers.CrossEncoder(str(tmp_path / "start"), device="cpu")
    losses = sentence_transformers.cross_encoder.losses
    expected = losses.BinaryCrossEntropyLoss(theirs)(list(zip(*PAIRS, strict=True)), GOLD)
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    gradients = {
        name: each.grad for name, each in theirs.model.named_parameters() if each.grad is not None
    }
    ours = {
        name: each.grad
        for name, each in trained.backbone.named_parameters()
        if each.grad is not None
    }
    assert ours and set(gradients) - set(ours) <= {
        name for name in gradients if "word_embeddings" in name
    }
    for name, gradient in ours.items():
        torch.testing.assert_close(gradient, gradients[name], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("architecture", "rank"), [("bert", 0), ("mpnet", 4)])
def test_a_saved_cross_encoder_scores_as_in_sentence_transformers(
    cross, architecture, rank, tmp_path
):
    base = make_model(tmp_path / "base", architecture)
    result, _ = run(cross.replace(base=str(base), lora_rank=rank, max_steps=3), tmp_path / "run")
    ours = CrossEncoder.load(result.path, dtype="float32", device="cpu")
    theirs = sentence_transformers.CrossEncoder(result.path, device="cpu")
    np.testing.assert_allclose(ours.predict(PAIRS), theirs.predict(PAIRS), atol=1e-5)
    assert theirs.max_seq_length == ours.max_length == 32
    again, _ = run(cross.replace(base=result.path, max_steps=1, eval_every=1))
    assert again.baseline["spearman"] == pytest.approx(result.best["spearman"], abs=1e-6)


@pytest.fixture(scope="module")
def bi_encoder(tmp_path_factory) -> str:
    """The folder of a bi-encoder with mean pooling, without dropout."""
    base = make_model(tmp_path_factory.mktemp("bi") / "base", **NO_DROPOUT)
    Encoder.load(str(base), pooling="mean").save(base.parent / "encoder")
    return str(base.parent / "encoder")


@pytest.mark.parametrize("rank", [0, 4])
def test_a_joint_head_has_the_loss_and_gradients_of_its_model(bi_encoder, rank):
    config = RunConfig("cross-encoder", base=bi_encoder, dtype="float32")
    trained = TrainableCrossEncoder.load(config, "cpu")
    trained.head.dropout.p = 0.0
    reference = JointPairModel(Encoder.load(bi_encoder, dtype="float32").backbone)
    reference.load_head_tensors(trained.backbone.head_tensors())
    reference.head.dropout.p = 0.0
    rows = PairTokenizer(trained.tokenizer, 64, separately=True)(PAIRS)
    expected = BinaryCrossEntropy()(
        [reference(pad_pairs(rows, 0, torch.device("cpu")))[:, None]], GOLD
    )
    expected.backward()

    model = TrainingModel(trained, BinaryCrossEntropy(), rank=rank, num_micro_batches=2)
    loss, _ = model.forward_backward(model.collate([trained.tokenize(PAIRS)], GOLD, 0))
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    for name in ("cross", "head.scale", "head.linear.weight"):  # what is trained with LoRA too
        torch.testing.assert_close(
            trained.backbone.get_parameter(name).grad, reference.get_parameter(name).grad
        )
    if not rank:
        for name, weight in trained.backbone.named_parameters():
            if weight.requires_grad and weight.grad is not None:
                torch.testing.assert_close(
                    weight.grad, reference.get_parameter(name).grad, atol=1e-5, rtol=1e-4
                )


def test_a_joint_head_is_saved_stopped_resumed_and_continued(cross, bi_encoder, tmp_path):
    config = cross.replace(base=bi_encoder, lora_rank=4)
    result, whole = run(config, tmp_path / "run")
    model = CrossEncoder.load(result.path, dtype="float32", device="cpu")
    assert isinstance(model.scorer, JointPairModel) and model.max_length == 32
    np.testing.assert_allclose(
        model.predict(PAIRS), model.predict([(b, a) for a, b in PAIRS]), atol=1e-6
    )
    assert "from sbert_lab import CrossEncoder" in (tmp_path / "run/model/README.md").read_text()

    assert curve(stop_and_resume(config, tmp_path / "parts", 7)) == curve(whole)
    again, _ = run(config.replace(base=result.path, max_steps=1, eval_every=1))
    assert again.baseline["spearman"] == pytest.approx(result.best["spearman"], abs=1e-6)
    with pytest.raises(InputError, match="keeps its head; leave classifier out"):
        run(config.replace(base=result.path, head="classifier"))


def test_a_classifier_head_can_be_asked_for(cross, bi_encoder, tmp_path):
    result, _ = run(
        cross.replace(base=bi_encoder, head="classifier", max_steps=1), tmp_path / "run"
    )
    assert sentence_transformers.CrossEncoder(result.path, device="cpu").predict(PAIRS).shape == (
        4,
    )


def test_a_joint_head_needs_bert_or_mpnet(cross, tmp_path):
    other = make_model(tmp_path / "distilbert", "distilbert")
    with pytest.raises(InputError, match="needs a base of the architecture bert or mpnet"):
        run(cross.replace(base=str(other), head="joint"))


def toy(folder, column: str, **values: float) -> dict[str, str]:
    """Pairs whose target is decided by a word of the second sentence, to train and to evaluate on."""
    file = folder / "toy.csv"
    rows = [
        f"{word} is a {word},{other} the {word},{value}"
        for word in WORDS
        for other, value in values.items()
    ]
    file.write_text("\n".join([f"sentence1,sentence2,{column}", *rows]) + "\n")
    return {"train_data": str(file), "eval_data": str(file)}


def test_graded_pairs_are_learned_and_evaluated_by_rank(cross, tmp_path):
    data = toy(tmp_path, "score", cat=5, food=2.5, dog=0)
    result, _ = run(
        cross.replace(**data, base="scratch:1x32", max_steps=40, eval_every=40, learning_rate=3e-3)
    )
    assert result.best["spearman"] > max(0.5, result.baseline["spearman"])
    assert result.best["loss"] < result.baseline["loss"]
    assert set(result.final) == {"step", "spearman", "loss"}


def test_labelled_pairs_are_binary_and_evaluated_by_average_precision(cross, tmp_path):
    config = cross.replace(**toy(tmp_path, "label", cat=1, dog=0), name="Same or not")
    result, events = run(config, tmp_path / "run")
    assert any("belong together" in note for note in events[0]["notes"])
    assert 0 < result.best["average_precision"] <= 1 and result.best["loss"] > 0
    card = ModelCard.load(tmp_path / "run/model/README.md")
    assert card.data.pipeline_tag == "text-ranking" and "cross-encoder" in card.data.tags
    assert "CrossEncoder(" in card.text and "average precision %" in card.text
    assert "by their cosine" not in card.text


def test_a_run_is_known_by_its_kind(cross, tmp_path):
    home = tmp_path
    for name, objective in (("cross", "cross-encoder"), ("bi", "regression")):
        run(cross.replace(objective=objective, max_steps=1, eval_data=None), home / "runs" / name)
    kinds = [type(open_model(name, home=home)) for name in ("run:cross", "run:bi")]
    assert kinds == [CrossEncoder, Encoder]
    assert CrossEncoder.load("run:cross", home=home).predict(PAIRS).shape == (4,)
    with pytest.raises(InputError, match="run:cross is a cross-encoder, which scores pairs"):
        Encoder.load("run:cross", home=home)
    with pytest.raises(InputError, match="run:bi is not a cross-encoder"):
        CrossEncoder.load("run:bi", home=home)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"pooling": "mean"}, "no sentence vectors; leave out pooling"),
        ({"base": "scratch:1x32:cls"}, "leave them out"),
        ({"base": "minilm-stsb"}, "is an adapter"),
        ({"max_length": 4_096}, "tokens at most"),
        ({"mine_negatives": True}, "takes no negatives"),
    ],
)
def test_settings_that_a_cross_encoder_does_not_have_are_refused(cross, changes, reason):
    with pytest.raises(InputError, match=reason) as error:
        run(cross.replace(**changes))
    assert "\n" not in str(error.value)


def test_a_base_that_reads_pairs_unlike_bert_is_refused(cross, tmp_path):
    base = make_model(tmp_path / "base", "t5")
    with pytest.raises(InputError, match="start a cross-encoder from one such as BERT"):
        run(cross.replace(base=str(base)))
