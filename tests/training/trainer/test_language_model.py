"""Masked language modelling: loss and gradients are transformers' own, and a run's folder opens everywhere."""

from pathlib import Path

import numpy as np
import pytest
import torch
from run_helpers import curve, of_kind, run, stop_and_resume
from tiny_models import WORDS, make_model
from transformers import AutoModelForMaskedLM

from training.errors import InputError
from training.models.encoder import Encoder
from training.objectives.tokens import MaskedLanguageModelling, mask_tokens
from training.trainer.config import RunConfig
from training.trainer.language_model import TrainableLanguageModel
from training.trainer.train import train
from training.trainer.training_model import TrainingModel

SENTENCES = [
    f"the {noun} is {verb} {'the food ' * count}"
    for noun in ("man", "cat", "dog")
    for verb in ("eating", "on")
    for count in (0, 1, 3)
]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A file of sentences to learn from."""
    file = tmp_path / "text.txt"
    words = np.array(WORDS)
    draws = np.random.default_rng(0).integers(len(words), size=(200, 7))
    file.write_text("\n".join(" ".join(words[row]) for row in draws))
    return file


def load(base: Path | str, **settings: object) -> TrainableLanguageModel:
    config = RunConfig("mlm", base=str(base), dtype="float32", **settings)
    return TrainableLanguageModel.load(config, [], "cpu", None, None)


@pytest.mark.parametrize("architecture", ["bert", "roberta", "mpnet", "distilbert", "modernbert"])
def test_loss_and_gradients_are_those_of_transformers(architecture: str, tmp_path: Path):
    base = make_model(tmp_path / architecture, architecture, initializer_range=0.1)
    language_model = load(base)
    model = TrainingModel(language_model, MaskedLanguageModelling(), num_micro_batches=2)
    model.replica.module.eval()  # without dropout
    batch = model.collate([language_model.tokenize(SENTENCES)], None, step=3)
    losses, norm = model.forward_backward(batch)

    reference = AutoModelForMaskedLM.from_pretrained(base, dtype=torch.float32)
    reference.load_state_dict(language_model.backbone.state_dict())
    total = 0.0
    for part in batch.micro_batches:  # as many tokens as all have: the mean is over the whole batch
        labels = (
            torch.full((part.rows.numel(),), -100)
            .index_put((part.masked,), part.targets)
            .view(part.rows.shape)
        )
        mask = None if part.mask is None else part.mask.long()
        logits = reference.eval()(input_ids=part.rows, attention_mask=mask).logits
        total += torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), reduction="sum"
        )
    (total / sum(batch.sizes)).backward()
    assert losses.item() == pytest.approx(total.item() / sum(batch.sizes), abs=1e-5)
    gradients = {name: weight.grad for name, weight in language_model.backbone.named_parameters()}
    for name, weight in reference.named_parameters():
        if weight.grad is None:
            assert gradients[name] is None, name
        else:
            torch.testing.assert_close(gradients[name], weight.grad, atol=1e-5, rtol=1e-4, msg=name)
    norms = [weight.grad.norm() for weight in reference.parameters() if weight.grad is not None]
    assert norm.item() == pytest.approx(torch.stack(norms).norm().item(), rel=1e-4)


def test_masks_have_the_rates_of_bert_outside_special_tokens_and_padding():
    ids = np.random.default_rng(1).integers(5, 1_000, size=(500, 40))
    can = np.random.default_rng(2).random((500, 40)) < 0.8
    inputs, positions = mask_tokens(ids, can, 4, 1_000, np.random.default_rng(0))
    count = len(positions)

    def is_near(hits: int, of: int, rate: float) -> bool:  # within five standard deviations
        return abs(hits - of * rate) < 5 * (of * rate * (1 - rate)) ** 0.5

    assert is_near(count, can.sum(), 0.15)
    before = ids.flatten()[positions]
    after = inputs.flatten()[positions]
    assert is_near((after == 4).sum(), count, 0.8)
    assert is_near((after == before).sum(), count, 0.1 + 0.1 / 1_000)
    assert can.flatten()[positions].all()
    others = np.ones(ids.size, bool)
    others[positions] = False
    assert (inputs.flatten()[others] == ids.flatten()[others]).all()


def test_at_least_one_token_of_a_text_is_masked():
    can = np.array([[False, True, False]])
    assert mask_tokens(np.array([[2, 9, 3]]), can, 4, 10, np.random.default_rng(0))[1].tolist() == [
        1
    ]


def test_a_token_masked_because_chance_chose_none_is_hidden_like_others():
    """Of a short text alone in its batch."""
    ids = np.array([[2, 9, 3]])
    can = np.array([[False, True, False]])
    hidden = [
        int(mask_tokens(ids, can, 4, 1_000, np.random.default_rng(seed))[0][0, 1])
        for seed in range(1_000)
    ]
    assert hidden.count(4) == pytest.approx(800, abs=65)
    assert hidden.count(9) == pytest.approx(100, abs=50)


def test_a_step_masks_the_same_tokens_when_repeated_and_others_later(tmp_path: Path):
    model = TrainingModel(load(make_model(tmp_path)), MaskedLanguageModelling())
    ids = [model.encoder.tokenize(SENTENCES)]
    first, again, later = (
        model.collate(ids, None, step).micro_batches[0].rows for step in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, later)


def config(text: Path, **settings: object) -> RunConfig:
    values = {
        "base": "scratch:2x32",
        "train_data": str(text),
        "eval_data": str(text),
        "dtype": "float32",
    }
    return RunConfig(
        "mlm", **{**values, "max_steps": 12, "eval_every": 4, "vocabulary_size": 120, **settings}
    )


def test_a_run_from_random_weights_learns_and_opens_everywhere(text: Path, tmp_path: Path):
    from sentence_transformers import SentenceTransformer

    result, events = run(
        config(text, max_steps=30, batch_size=16, learning_rate=1e-2), tmp_path / "run"
    )
    figures = of_kind(events, "eval")
    assert result.metric == "loss"
    assert figures[-1]["loss"] < figures[0]["loss"] - 0.5
    assert figures[-1]["perplexity"] == pytest.approx(np.exp(figures[-1]["loss"]))
    assert figures[-1]["masked_accuracy"] > figures[0]["masked_accuracy"]
    folder = tmp_path / "run/model"
    ours = Encoder.load(str(folder), dtype="float32")
    theirs = SentenceTransformer(str(folder), device="cpu")
    assert ours.pooling == "mean"
    sentences = ["the man is eating", "a guitar was on the food in a cat"]
    np.testing.assert_allclose(
        ours.encode(sentences), theirs.encode(sentences, normalize_embeddings=True), atol=1e-5
    )
    whole = AutoModelForMaskedLM.from_pretrained(folder)
    assert whole.get_output_embeddings().weight is whole.get_input_embeddings().weight
    assert len(ours.tokenizer) <= 120
    follow = RunConfig("regression", base=str(folder), max_steps=2, eval_data=None, dtype="float32")
    assert train(follow, on_event=lambda event: None, folder=None).status == "finished"


def test_a_stopped_run_resumes_to_the_same_curve(text: Path, tmp_path: Path):
    _, whole = run(config(text), tmp_path / "whole")
    assert curve(stop_and_resume(config(text), tmp_path / "parts", 5)) == curve(whole)


@pytest.mark.parametrize(
    "settings",
    [
        {"lora_rank": 4, "gradient_accumulation_steps": 2},
        {"mini_batch_size": 4, "dtype": "bfloat16"},
    ],
)
def test_mlm_takes_the_settings_of_other_runs(settings: dict, text: Path, tmp_path: Path):
    base = make_model(tmp_path / "base", initializer_range=0.1)
    wide = {"base": str(base), "vocabulary_size": None, "max_steps": 2, "eval_data": None}
    result, _ = run(config(text, **wide, **settings), tmp_path / "run")
    assert result.status == "finished"
    weights = AutoModelForMaskedLM.from_pretrained(tmp_path / "run/model")
    before = AutoModelForMaskedLM.from_pretrained(base)
    assert weights.get_output_embeddings().weight is weights.get_input_embeddings().weight
    layer = "base_model.encoder.layer.0.output.dense.weight"
    assert not torch.equal(weights.get_parameter(layer), before.get_parameter(layer)), (
        "it has been trained"
    )


def test_a_batch_in_parts_has_the_gradient_of_the_whole(tmp_path: Path):
    language_model = load(make_model(tmp_path))
    model = TrainingModel(
        language_model, MaskedLanguageModelling(), num_micro_batches=1, mini_batch_size=5
    )
    model.replica.module.eval()
    batch = model.collate([language_model.tokenize(SENTENCES)], None, 0)
    assert len(batch.micro_batches) > 1
    results = []
    for at_a_time in (1, len(batch.micro_batches)):
        model.num_micro_batches = at_a_time
        loss, norm = model.forward_backward(batch)
        gradient = model.backbone.get_input_embeddings().weight.grad.clone()
        results.append((loss, norm, gradient))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)


def test_sentences_of_several_sets_are_learned_once_each(text: Path, tmp_path: Path):
    other = tmp_path / "other.csv"
    other.write_text("sentence1,sentence2,score\nthe cat,the dog,3\nthe cat,a man,1\n")
    _, events = run(
        config(text, train_data=f"{text}+{other}+{other}", max_steps=1, eval_data=None),
        tmp_path / "run",
    )
    lines = {*text.read_text().splitlines(), "the cat", "the dog", "a man"}
    assert of_kind(events, "state")[0]["rows"] == len(lines)


class TestRefusals:
    @pytest.mark.parametrize(("settings", "message"), [
        ({"pooling": "cls"}, "mlm trains no sentence vectors"),

        ({"base": "all-MiniLM-L6-v2", "vocabulary_size": 200}, "vocabulary_size is for mlm from random weights"),

    ])  # fmt: skip
    def test_settings_that_mean_nothing_to_it(self, settings: dict, message: str):
        with pytest.raises(InputError, match=message):
            RunConfig("mlm", **settings)

    def test_a_base_without_masks_a_head_or_positions_is_refused(self, tmp_path: Path):
        base = make_model(tmp_path, "t5")
        with pytest.raises(InputError, match=r"no token \[MASK\]"):
            load(base)
        base = make_model(tmp_path, "qwen3")
        with pytest.raises(InputError, match="cannot be opened as a transformer"):
            load(base)
        with pytest.raises(InputError, match=r"max_length is 65, but .* takes 64 tokens at most"):
            load(make_model(tmp_path), max_length=65)
