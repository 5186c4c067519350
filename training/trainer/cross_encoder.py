"""What a run of a cross-encoder trains, and how it is evaluated.

The model is a transformer with a sequence-classification head of one logit: that of transformers for the architecture,
which sentence-transformers' CrossEncoder opens too. It starts from the transformer of any bi-encoder, with a head of
random weights, or from a cross-encoder with the head that it has.

The evaluation scores the pairs of the eval data, in the form that the objective makes of them:

    spearman            rank correlation of score and gold score, of data with scores
    average_precision   of the score, of data that says which pairs belong together
    loss                the objective's
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import nn

from training.atomic import replace_folder
from training.errors import InputError, first_line
from training.evaluation.metrics import precision_recall, spearman
from training.models.cross_encoder import CrossEncoder
from training.models.encoder import Encoder
from training.models.folder_checks import check_replaceable
from training.models.joint_pair_model import JointPairModel, SequenceClassifier, build_pair_runner
from training.models.loading import max_input_length, open_tokenizer
from training.models.scorer import CROSS, kind_of
from training.models.tokenization import Pair, PairRow, PairTokenizer
from training.models.word_encoders import WordBackbone
from training.names import ModelName
from training.trainer.config import RunConfig
from training.trainer.events import Figures
from training.trainer.teacher import Examples

SIGMOID = "torch.nn.modules.activation.Sigmoid"  # as sentence-transformers names it in a model's config


class TrainableCrossEncoder:
    """A sequence classifier in training, its weights float32: what a run needs of an `Encoder`, for pairs."""

    pooling, normalizes, full_dimension = None, False, 1  # a pair's vector is its logit

    def __init__(
        self, name: str, backbone: Any, tokenizer: Any, max_length: int | None, dtype: torch.dtype, source: str
    ) -> None:
        self.name, self.backbone, self.tokenizer, self.dtype, self.source = name, backbone, tokenizer, dtype, source
        longest = max_input_length(tokenizer, backbone.base_model)
        if max_length is not None and max_length > longest:
            raise InputError(f"max_length is {max_length}, but {name} takes {longest} tokens at most")
        self.head = nn.Sequential()  # nothing comes after the logit
        self.has_token_types = "token_type_ids" in tokenizer.model_input_names
        self.tokenize_pairs = PairTokenizer(tokenizer, max_length or longest)

    @classmethod
    def load(cls, config: RunConfig, device: str, home: str | Path | None = None) -> Self:
        """The model that a run starts from. InputError if the base has no transformer of this kind."""
        name = ModelName.parse(config.base)
        if name != name.weights:
            raise InputError(
                f"{config.base} states a pooling, dimensions or a prompt, which a cross-encoder has not; leave them out"
            )
        if kind_of(name, home) == CROSS:
            opened = CrossEncoder.load(name, config.dtype, device, home)
            if isinstance(opened.scorer, JointPairModel):
                raise InputError(
                    f"{config.base} is an adapter, which a run cannot continue; start from its base, a sentence encoder"
                )
            model: Any = opened.scorer.transformer.float().requires_grad_()
            return cls(
                opened.name, model, open_tokenizer(opened.folder), config.max_length, opened.dtype, opened.source
            )
        encoder = Encoder.load(name, None, config.dtype, device, home, config.seed)
        model = classifier_over(encoder, config.seed)
        return cls(encoder.name, model, encoder.tokenizer, config.max_length, encoder.dtype, encoder.source)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.backbone.parameters()).device

    def tokenize(self, pairs: Sequence[Pair]) -> list[PairRow]:
        """Each pair as token ids, truncated at ``max_length``, which is that of both sentences together."""
        return self.tokenize_pairs(pairs)

    def train(self) -> Self:
        """Dropout on."""
        self.backbone.train()
        return self

    def eval(self) -> Self:
        """Dropout off."""
        self.backbone.eval()
        return self

    def logits(self, pairs: Sequence[Pair], should_stop: Callable[[], bool] | None = None) -> np.ndarray:
        """The logits (N,) float32 of the weights as they are now, in the precision of the finished model."""
        scorer = SequenceClassifier(copy.deepcopy(self.backbone).to(self.dtype).eval(), self.has_token_types)
        runner = build_pair_runner(scorer, self.dtype, self.tokenize_pairs.pad_id)
        model = CrossEncoder(
            self.name, scorer, runner, self.tokenize_pairs, lambda logits: logits, Path(), self.source, self.dtype
        )
        return model.predict(pairs, should_stop=should_stop)

    def save(self, folder: str | Path) -> None:
        """Write a folder that `CrossEncoder.load` opens, and sentence-transformers. Replaces a model alone."""
        target = Path(folder).expanduser().absolute()
        check_replaceable(target)
        self.backbone.config.sentence_transformers = {"activation_fn": SIGMOID}
        self.tokenizer.model_max_length = self.tokenize_pairs.max_length
        with replace_folder(target) as fresh:
            self.backbone.save_pretrained(fresh)
            self.tokenizer.save_pretrained(fresh)


def classifier_over(encoder: Encoder, seed: int = 0) -> nn.Module:
    """An encoder's transformer with a sequence-classification head of one logit and random weights, float32.

    InputError if it has none, or transformers has no such head for it.
    """
    from transformers import AutoModelForSequenceClassification
    from transformers.modeling_layers import GenericForSequenceClassification

    why = "is no transformer encoder"
    if not isinstance(encoder.backbone, WordBackbone):
        settings: Any = copy.deepcopy(encoder.backbone.config)
        settings.num_labels = 1
        try:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                model = AutoModelForSequenceClassification.from_config(settings).float()
            missing, _ = model.base_model.load_state_dict(encoder.backbone.state_dict(), strict=False)
            # The pooler is part of the head. A decoder's head reads the last token, which padding hides in training.
            is_whole = all(name.startswith("pooler.") for name in missing)
            if is_whole and not isinstance(model, GenericForSequenceClassification):
                return model.to(encoder.device)
        except (ValueError, RuntimeError, AttributeError) as error:
            why = f"has no head for pairs ({first_line(error)})"
    raise InputError(f"{encoder.name} {why}; start a cross-encoder from one such as BERT, MiniLM or MPNet")


def head_modules(backbone: Any) -> list[str]:
    """The modules of a sequence classifier that belong to its head, by name; none for a transformer alone."""
    transformer = backbone.base_model
    if transformer is backbone:
        return []
    heads = [
        name
        for name, child in backbone.named_children()
        if child is not transformer and next(child.parameters(), None) is not None
    ]
    return heads + ["pooler"] * (getattr(transformer, "pooler", None) is not None)


class PairEvaluator:
    """Scores the pairs of the eval data, always the same. Without eval data nothing is measured."""

    def __init__(self, examples: Examples | None) -> None:
        self.examples = examples
        labels = None if examples is None else examples.data.labels
        if examples is not None and labels is not None and len(set(labels)) < 2:
            raise InputError(f"{examples.data.name} needs pairs that belong together and others, to be evaluated on")

    def measure(
        self, model: TrainableCrossEncoder, objective: nn.Module, should_stop: Callable[[], bool] | None = None
    ) -> Figures:
        """The figures listed above. Raises Stopped if ``should_stop`` returns true meanwhile."""
        if self.examples is None or self.examples.targets is None:
            return {}
        data, gold = self.examples.data, self.examples.targets.values
        logits = model.logits(list(zip(*data.columns, strict=True)), should_stop)
        with torch.no_grad():
            loss = float(objective([torch.from_numpy(logits)[:, None]], gold))
        if data.scores is not None:
            return {"spearman": spearman(logits, gold.numpy()), "loss": loss}
        return {"average_precision": precision_recall(logits, gold.numpy()).average_precision, "loss": loss}
