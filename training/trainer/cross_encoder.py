"""The model that a run of a cross-encoder trains, and its evaluation.

There are two kinds of head:

    joint       a `JointPairModel`. Its score starts as the cosine of the bi-encoder that it is made from, which must be
                a BERT or MPNet with mean pooling
    classifier  the sequence-classification head of transformers, with one logit and random weights, on any bi-encoder
                or BERT. sentence-transformers' CrossEncoder opens the folder too

A run can also start from a cross-encoder of either kind, and keeps its head.

The evaluation scores the pairs of the eval data, after the objective's transform. It measures the
rank correlation with gold scores (spearman), or the average_precision for data with labels, and the
loss of the objective.
"""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import torch
from torch import nn

from training.atomic import replace_folder
from training.catalogue import AUTO
from training.errors import InputError, first_line
from training.evaluation.metrics import precision_recall, spearman_or_reason
from training.models.cross_encoder import SIGMOID, CrossEncoder, PairParts
from training.models.encoder import Encoder
from training.models.files import check_replaceable, write_tensors
from training.models.folder import JOINT_HEAD, ModelFolder
from training.models.joint_pair_model import (
    ARCHITECTURES,
    JointPairModel,
    SequenceClassifier,
    build_pair_runner,
)
from training.models.loading import max_input_length, open_tokenizer
from training.models.model import Pair, PairModel, of_the_library, open_model, required
from training.models.pairs import PROBES, PairTokenizer
from training.models.word_networks import WordBackbone
from training.names import ModelName
from training.progress import ShouldStop
from training.trainer.config import CLASSIFIER, JOINT, RunConfig
from training.trainer.run_metrics import Figures
from training.trainer.teacher import Examples


class TrainableCrossEncoder:
    """A cross-encoder in training, with float32 weights. It has the part of the interface of `Encoder` that a run uses.

    ``backbone`` is a sequence classifier of transformers, or a `JointPairModel`. The vector of a
    pair is its logit.
    """

    pooling = None
    normalizes = False
    full_dimension = 1

    def __init__(
        self,
        name: str,
        backbone: Any,
        tokenizer: Any,
        max_length: int | None,
        dtype: torch.dtype,
        source: str,
    ) -> None:
        self.name = name
        self.backbone = backbone
        self.tokenizer = tokenizer
        self.dtype = dtype
        self.source = source
        self.device = next(backbone.parameters()).device
        self.is_joint = isinstance(backbone, JointPairModel)
        transformer = backbone.transformer if self.is_joint else backbone.base_model
        longest = max_input_length(tokenizer, transformer)
        if max_length is not None and max_length > longest:
            raise InputError(
                f"max_length is {max_length}, but {name} takes {longest} tokens at most"
            )
        # A classifier has its head inside the backbone, so nothing follows its logit.
        self.head = backbone.head if self.is_joint else nn.Sequential()
        self.has_token_types = "token_type_ids" in tokenizer.model_input_names
        # The token ids of a pair are one sequence or, with a joint head, one for each sentence.
        self.tokenize = PairTokenizer(tokenizer, max_length or longest, separately=self.is_joint)

    @classmethod
    def load(cls, config: RunConfig, device: str, home: str | Path | None = None) -> Self:
        """Loads the model that a run starts from. InputError if the base cannot become a cross-encoder."""
        name = ModelName.parse(config.base)
        # The name has settings besides the weights.
        if name != name.weights:
            raise InputError(
                f"{config.base} states a pooling, dimensions or a prompt, which a cross-encoder has not; leave them out"
            )
        if name.is_scratch:
            encoder = Encoder.load(
                name, dtype=config.dtype, device=device, home=home, seed=config.seed
            )
        else:
            opened = open_model(name, dtype=config.dtype, device=device, home=home)
            if isinstance(opened, CrossEncoder):
                return cls._from_cross_encoder(opened, config)
            # A reranker that only sentence-transformers computes.
            if isinstance(opened, PairModel):
                raise of_the_library(config.base, opened.kind)
            encoder = required(opened, Encoder)
        # None if the config does not set it.
        max_length = config.max_length
        if config.head == JOINT or (config.head == AUTO and can_start_joint(encoder)):
            model: Any = JointPairModel(encoder.backbone).to(encoder.device)
            # A joint model keeps the limit of its bi-encoder, to which each sentence is cut alone.
            # A classifier reads both as one sequence, and takes as many tokens as its transformer.
            max_length = max_length or encoder.max_length
        else:
            model = classifier_over(encoder, config.seed)
        return cls(
            encoder.name, model, encoder.tokenizer, max_length, encoder.dtype, encoder.source
        )

    @classmethod
    def _from_cross_encoder(cls, opened: CrossEncoder, config: RunConfig) -> Self:
        """Makes the model of a run that starts from a cross-encoder."""
        is_joint = isinstance(opened.scorer, JointPairModel)
        # The folder of an adapter has no config of a whole model.
        if not (opened.folder / "config.json").is_file():
            raise InputError(
                f"{config.base} is an adapter, which a run cannot continue; start from its base, a sentence encoder"
            )
        own_head = JOINT if is_joint else CLASSIFIER
        if config.head not in (AUTO, own_head):
            raise InputError(
                f"{config.base} is a cross-encoder, which keeps its head; leave {config.head} out"
            )
        # The ``transformer`` of a `SequenceClassifier` is the whole model, with its head.
        model: Any = opened.scorer if is_joint else opened.scorer.transformer
        tokenizer = open_tokenizer(ModelFolder.read(opened.folder))
        # A model that was opened in bfloat16 is trained in float32 too. Opening it has turned the
        # gradients of its weights off.
        model = model.float().requires_grad_()
        return cls(opened.name, model, tokenizer, config.max_length, opened.dtype, opened.source)

    def train(self) -> Self:
        self.backbone.train()
        return self

    def eval(self) -> Self:
        self.backbone.eval()
        return self

    def logits(self, pairs: Sequence[Pair], should_stop: ShouldStop | None = None) -> np.ndarray:
        """Computes logits (N,) float32 with the current weights, in the precision of the finished model."""
        # The weights in training stay float32, so a copy is converted.
        copied = copy.deepcopy(self.backbone).eval()
        scorer = copied if self.is_joint else SequenceClassifier(copied, self.has_token_types)
        # The head of a `JointPairModel` stays float32.
        scorer.transformer.to(self.dtype)
        # The probes show whether the scorer reads padding.
        runner = build_pair_runner(scorer, self.dtype, self.tokenize.pad_id, self.tokenize(PROBES))
        # With the identity as its activation, `predict` returns the logits.
        parts = PairParts(
            scorer, self.tokenize, activation=lambda logits: logits, source=self.source
        )
        model = CrossEncoder(self.name, parts, runner, dtype=self.dtype)
        return model.predict(pairs, should_stop=should_stop)

    def save(self, folder: str | Path) -> None:
        """Writes a folder for `CrossEncoder.load`, which sentence-transformers opens too if the model is a classifier.

        A model that is already in ``folder`` is replaced. InputError if something else is there.
        """
        target = check_replaceable(folder)
        model = self.backbone.transformer if self.is_joint else self.backbone
        if not self.is_joint:
            # The function that sentence-transformers applies to the logit.
            model.config.sentence_transformers = {"activation_fn": SIGMOID}
        self.tokenizer.model_max_length = self.tokenize.max_length
        with replace_folder(target) as fresh:
            model.save_pretrained(fresh)
            self.tokenizer.save_pretrained(fresh)
            if self.is_joint:
                write_tensors(fresh, self.backbone.head_tensors(), JOINT_HEAD)


def classifier_over(encoder: Encoder, seed: int = 0) -> nn.Module:
    """Adds a sequence-classification head with one logit and random weights to an encoder's transformer, float32.

    InputError if the encoder has no transformer, or transformers has no such head for it.
    """
    # transformers takes seconds to import.
    from transformers import AutoModelForSequenceClassification
    from transformers.modeling_layers import GenericForSequenceClassification

    # The reason of the error, unless transformers gives another.
    why = "is no transformer encoder"
    if not isinstance(encoder.backbone, WordBackbone):
        settings: Any = copy.deepcopy(encoder.backbone.config)
        settings.num_labels = 1
        try:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                model = AutoModelForSequenceClassification.from_config(settings).float()
            weights = encoder.backbone.state_dict()
            missing, _ = model.base_model.load_state_dict(weights, strict=False)
            # The pooler is part of the head, so its weights may be missing.
            is_whole = all(name.startswith("pooler.") for name in missing)
            # A decoder's head reads the last token that is not padding, and finds it by the token ids.
            # In training the model gets word embeddings instead of ids, so the head would read padding.
            is_decoder = isinstance(model, GenericForSequenceClassification)
            if is_whole and not is_decoder:
                return model.to(encoder.device)
        except (ValueError, RuntimeError, AttributeError) as error:
            why = f"has no head for pairs ({first_line(error)})"
    raise InputError(
        f"{encoder.name} {why}; start a cross-encoder from one such as BERT, MiniLM or MPNet"
    )


def can_start_joint(encoder: Encoder) -> bool:
    """Tells whether a `JointPairModel` can start from the cosine of an encoder.

    The encoder must have been trained to compare sentences.
    """
    # A `JointPairModel` pools by the mean, and has no modules after the pooling.
    if ModelName.parse(encoder.name).is_scratch or encoder.pooling != "mean" or len(encoder.head):
        return False
    config = cast("Any", encoder.backbone).config
    folder = encoder.model_format.transformer
    # Only sentence-transformers writes modules.json, so the encoder was trained to compare
    # sentences. Its transformer may be in a subfolder.
    is_trained = any((path / "modules.json").is_file() for path in (folder, folder.parent))
    return is_trained and getattr(config, "model_type", None) in ARCHITECTURES


def head_modules(backbone: Any) -> list[str]:
    """Names the modules of a sequence classifier that belong to its head; none for a transformer without head."""
    # `base_model` of a transformer without head is the transformer itself.
    transformer = backbone.base_model
    if transformer is backbone:
        return []
    heads = []
    for name, child in backbone.named_children():
        has_weights = next(child.parameters(), None) is not None
        if child is not transformer and has_weights:
            heads.append(name)
    # The pooler is a module of the transformer, but only the head reads its output.
    if getattr(transformer, "pooler", None) is not None:
        heads.append("pooler")
    return heads


class PairEvaluator:
    """Scores the pairs of the eval data, the same ones in every evaluation. Without eval data it measures nothing."""

    def __init__(self, examples: Examples | None) -> None:
        self.examples = examples
        labels = None if examples is None else examples.data.labels
        if examples is not None and labels is not None and len(set(labels)) < 2:
            raise InputError(
                f"{examples.data.name} needs pairs that belong together and others, to be evaluated on"
            )

    def measure(
        self, model: TrainableCrossEncoder, objective: nn.Module, should_stop: ShouldStop | None
    ) -> Figures:
        """Returns the figures that the module's docstring lists, none without eval data.

        Raises StoppedError if ``should_stop`` returns true.
        """
        # Pairs of eval data always have targets, so the second condition is for the type checker.
        if self.examples is None or self.examples.targets is None:
            return {}
        data = self.examples.data
        gold = self.examples.targets.values
        logits = model.logits(list(zip(*data.columns, strict=True)), should_stop)
        with torch.no_grad():
            # The vectors of the only column are the logits, (N, 1).
            loss = float(objective([torch.from_numpy(logits)[:, None]], gold))
        if data.scores is not None:
            return {**spearman_or_reason(logits, gold.numpy()), "loss": loss}
        curve = precision_recall(logits, gold.numpy())
        return {"average_precision": curve.average_precision, "loss": loss}
