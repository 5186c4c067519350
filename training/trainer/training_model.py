"""TrainingModel: an encoder and an objective, from token ids to the gradient of every trained weight.

All columns of a batch form one batch of sentences, as the network is siamese. On a CPU that batch is split into one
micro-batch per core; these run forward and backward in parallel and synchronise only for the loss. Splitting every
operation over the cores instead would wait for the slowest core hundreds of times a step. A GPU takes the whole batch.

The loss sees the vectors of the whole batch, so the graphs of all its micro-batches are in memory at once. With a
``mini_batch_size`` they are not: the vectors are computed without graphs first, and once the loss has given each of
them its gradient, a few micro-batches at a time are computed again, with the same dropout, and go backward (gradient
caching; Gao et al. 2021, "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup"). That is one more
forward pass, and the gradient is the same.

Master weights, pooled vectors, loss and sums of gradients are float32; the transformer computes in the dtype of the
encoder (see `training.trainer.replica`). The modules after the pooling (`Encoder.head`) are part of the loss: small,
and computed once for the whole batch. With LoRA only the adapters are trained; `export_encoder` merges them.
"""

import copy
import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.errors import InputError
from training.inference.batching import plan
from training.models.encoder import Encoder
from training.models.joint_pair_model import JointPairModel
from training.models.word_networks import WordBackbone
from training.objectives import Objective, Vectors
from training.parallel import num_threads, run_parallel
from training.pooling import pooling_function
from training.trainer.cross_encoder import TrainableCrossEncoder, head_modules
from training.trainer.language_model import MaskedReplica, TrainableLanguageModel, masked_targets
from training.trainer.replica import CompactEmbedding, ForwardOutput, JointReplica, MicroBatch, PairReplica, Replica

# With fewer sentences, reading the weights from memory dominates.
MIN_MICRO_BATCH = 8


@dataclass
class TrainingBatch:
    """The input of a step, which does not depend on the weights. B rows of C columns are B * C sentences.

    The vectors of a language model are the logits of the masked tokens, in the place of sentences.
    """

    micro_batches: list[MicroBatch]
    # The number of vectors, one for each sentence, of each micro-batch.
    sizes: list[int]
    order: Tensor | None  # (B * C,) int64: where each sentence, column by column, is among all; None = in this order
    columns: int
    target: Tensor | None  # (B,)
    # The number of the part of the data, whose objective is the loss.
    part: int = 0

    @property
    def sentences(self) -> int:
        return sum(len(batch.rows) for batch in self.micro_batches)


class TrainingModel(nn.Module):
    """An encoder and an objective with their trained weights.

    Args:
        encoder: the encoder, which encodes inside `export_encoder` only.
        objectives: the objective of each part of the data; see `training.objectives`.
        used: the token ids in the training data; None for all (weight decay changes every row).
        seed: the seed of dropout.
        rank: the rank of LoRA; 0 trains all weights.
        num_micro_batches: the micro-batches that are computed at a time; see `default_micro_batches`.
        mini_batch_size: rows that are computed at a time; None for the whole batch.
        max_tokens: the same in tokens, padding included.
        matryoshka_dims: the first dimensions that are trained too, beside all of them.
    """

    def __init__(
        self,
        encoder: Encoder | TrainableCrossEncoder | TrainableLanguageModel,
        objectives: Objective | Sequence[Objective],
        used: Iterable[int] | None = None,
        seed: int = 0,
        rank: int = 0,
        num_micro_batches: int = 1,
        mini_batch_size: int | None = None,
        matryoshka_dims: Sequence[int] = (),
        max_tokens: int | None = None,
    ) -> None:
        if encoder.dtype == torch.int8:
            raise InputError(f"{encoder.name}: int8 is for inference; train it without")
        super().__init__()
        self.encoder = encoder.train()
        self.seed, self.rank, self.num_micro_batches = seed, rank, num_micro_batches
        self.mini_batch_size, self.max_tokens = mini_batch_size, max_tokens
        dims = all_dims(matryoshka_dims, encoder.full_dimension)
        self.objective = Loss(objectives, dims, encoder.normalizes).to(encoder.device)
        self.head = encoder.head.requires_grad_(not rank)
        self.replica: Replica
        self.embeddings: CompactEmbedding | None = None
        if isinstance(encoder, TrainableLanguageModel):
            # Its word embeddings are the weights of its output too, and every token is predicted: all rows are in use.
            self.backbone = _with_lora(encoder.backbone, rank, is_language_model=True) if rank else encoder.backbone
            self.replica = MaskedReplica(self.backbone, encoder.tokenizer, encoder.dtype)
            return
        table = encoder.backbone.get_input_embeddings()
        # Word vectors whose folder says that they are not trained stay as they are.
        self.embeddings = CompactEmbedding(table, used).requires_grad_(not rank and table.weight.requires_grad)
        table.requires_grad_(False)
        self.backbone = _with_lora(encoder.backbone, rank) if rank else encoder.backbone
        if isinstance(encoder, TrainableCrossEncoder) and encoder.is_joint:
            self.replica = JointReplica(self.backbone, self.embeddings, encoder.dtype)
        elif isinstance(encoder, TrainableCrossEncoder):
            self.replica = PairReplica(self.backbone, self.embeddings, encoder.has_token_types, encoder.dtype)
        else:
            pool = pooling_function(encoder.pooling, encoder.skipped_tokens)
            self.replica = Replica(self.backbone, self.embeddings, encoder.dtype, pool)

    def collate(
        self, columns: Sequence[Sequence[Sequence[int]]], target: Tensor | None, step: int, part: int = 0
    ) -> TrainingBatch:
        """Builds a step's input from the token ids of each column. Dropout is a function of the seed and the step."""
        ids = [sentence for column in columns for sentence in column]
        rounds = math.ceil(len(columns[0]) / self.mini_batch_size) if self.mini_batch_size else 1
        most = self.max_tokens and self.max_tokens // self.num_micro_batches
        groups = split_by_length([len(sentence) for sentence in ids], rounds * self.num_micro_batches, most)
        device = self.encoder.device
        micro_batches = [
            self.replica.collate([ids[row] for row in rows], np.random.default_rng([self.seed, step, number]))
            for number, rows in enumerate(groups)
        ]
        if isinstance(self.replica, MaskedReplica):
            targets = masked_targets(micro_batches)
            sizes = [0 if batch.targets is None else len(batch.targets) for batch in micro_batches]
            return TrainingBatch(micro_batches, sizes, None, 1, targets, part)
        order = torch.from_numpy(np.argsort(np.concatenate(groups))).to(device)
        target = None if target is None else target.to(device)
        return TrainingBatch(micro_batches, [len(rows) for rows in groups], order, len(columns), target, part)

    def forward_backward(self, *batches: TrainingBatch) -> tuple[Tensor, Tensor]:
        """Sets the ``grad`` of every trained weight to its mean over the batches.

        Returns the mean loss of each batch and the norm of the gradient, float32, (n,) and a scalar.
        """
        self.objective.zero_grad(set_to_none=True)
        self.head.zero_grad(set_to_none=True)
        run_parallel(self.replica.sync_weights(self.num_micro_batches))
        losses, norms = [], list[Tensor]()
        for number, batch in enumerate(batches):
            loss, norms = self._accumulate(batch, 1 / len(batches), add=number > 0)
            losses.append(loss.detach())
        trained = [*self.objective.parameters(), *self.head.parameters()]
        norms += [torch.linalg.vector_norm(weight.grad) for weight in trained if weight.grad is not None]
        return torch.stack(losses), torch.linalg.vector_norm(torch.stack(norms))

    def _accumulate(self, batch: TrainingBatch, share: float, add: bool) -> tuple[Tensor, list[Tensor]]:
        """Sets the ``grad`` of the weights to a share of the batch's, or adds it; returns the loss and the norms."""
        replica, at_a_time, micro_batches = self.replica, self.num_micro_batches, batch.micro_batches
        rounds = [slice(start, start + at_a_time) for start in range(0, len(micro_batches), at_a_time)]
        if len(rounds) == 1:
            outputs = run_parallel([partial(replica.forward, batch) for batch in micro_batches])
            loss, gradients = self._loss(batch, [output.vectors.detach() for output in outputs], share)
            norms = self._backward(micro_batches, outputs, gradients, add)
        else:
            # On a GPU dropout draws from its generator; on a CPU each micro-batch has one.
            device, states, vectors = self.encoder.device, [], []
            for part in rounds:
                states.append(torch.cuda.get_rng_state(device) if device.type == "cuda" else None)
                vectors += run_parallel([partial(replica.embed, batch) for batch in micro_batches[part]])
            loss, gradients = self._loss(batch, vectors, share)
            for part, state in zip(rounds, states, strict=True):
                if state is not None:
                    torch.cuda.set_rng_state(state, device)
                outputs = run_parallel([partial(replica.forward, batch) for batch in micro_batches[part]])
                norms = self._backward(micro_batches[part], outputs, gradients[part], add or part.start > 0)
                # Their gradients, each as large as the model, are freed before the next forward pass.
                del outputs
        return loss, norms

    def _loss(self, batch: TrainingBatch, parts: Sequence[Tensor], share: float) -> tuple[Tensor, Sequence[Tensor]]:
        """The vectors of each micro-batch -> the loss of the batch, and a share of its gradient by them."""
        vectors = torch.cat(list(parts)).requires_grad_()  # (B * C, D)
        ordered = vectors if batch.order is None else vectors[batch.order]
        loss = self.objective(self.head(ordered).chunk(batch.columns), batch.target, batch.part)
        loss.backward(torch.full_like(loss, share))
        assert vectors.grad is not None  # noqa: S101 - the loss is a function of them
        return loss, vectors.grad.split(batch.sizes)

    def _backward(
        self, micro_batches: list[MicroBatch], outputs: list[ForwardOutput], gradients: Sequence[Tensor], add: bool
    ) -> list[Tensor]:
        """Sets the ``grad`` of the encoder's trained weights, or adds to it, and returns its norms."""
        run_parallel([partial(self.replica.backward, *output) for output in zip(outputs, gradients, strict=True)])
        tasks = self.replica.reduce_gradients(outputs, self.num_micro_batches, add)
        inputs = [output.input_gradient for output in outputs if output.input_gradient is not None]
        # The longest task comes first.
        if inputs and self.embeddings is not None:
            rows = [batch.rows for batch in micro_batches]
            tasks.insert(0, partial(self.embeddings.set_gradient, rows, inputs, add))
        return [norm for task in run_parallel(tasks) for norm in task]

    @contextmanager
    def export_encoder(self) -> Iterator[Any]:
        """The encoder or cross-encoder as it would be saved: the whole embedding table, LoRA merged, dropout off.

        Training may continue after the block.
        """
        if self.embeddings is not None:
            self.embeddings.write_back()
        self.encoder.backbone = self.backbone
        if self.rank:
            self.encoder.backbone = copy.deepcopy(self.backbone).merge_and_unload()  # type: ignore[operator]
        try:
            yield self.encoder.eval()
        finally:
            # The weights are about to change: train() drops the copy of them that encode has made.
            self.encoder.train()

    def parameter_groups(self, weight_decay: float) -> list[dict[str, object]]:
        """Adam's parameter groups. Biases and the weights of norms are not decayed."""
        trained = [weight for weight in self.parameters() if weight.requires_grad]
        return [
            {"params": [weight for weight in trained if weight.ndim > 1], "weight_decay": weight_decay},
            {"params": [weight for weight in trained if weight.ndim <= 1], "weight_decay": 0.0},
        ]


class Loss(nn.Module):
    """The loss of a run, by the objective of the part of the data that a batch is from.

    With ``dims`` it is the sum of the objective's losses on the first d dimensions, scaled to length 1, so that a
    vector can be truncated to any of these d after training. Targets that are vectors are truncated too.

    Without ``dims`` the vectors are taken as they are, or scaled to length 1 where the model's own output is
    (``normalizes``) and the objective compares that output.

    Source: Kusupati et al. 2022, "Matryoshka Representation Learning", equation 1, with weights of 1;
    `MatryoshkaLoss` in sentence-transformers.
    """

    def __init__(
        self, objectives: Objective | Sequence[Objective], dims: Sequence[int] = (), normalizes: bool = False
    ) -> None:
        super().__init__()
        self.objectives = [objectives] if isinstance(objectives, Objective) else objectives
        self.dims = tuple(sorted(dims, reverse=True))
        self.normalizes = [normalizes and objective.takes_output for objective in self.objectives]
        for part, objective in enumerate(self.objectives):
            for name, weights in vars(objective).items():
                if isinstance(weights, nn.Module):
                    self.add_module(f"part{part}_{name}" if part else name, weights)

    def forward(self, vectors: Vectors, target: Tensor | None = None, part: int = 0) -> Tensor:
        objective = self.objectives[part]

        def loss(dim: int) -> Tensor:
            short = target[..., :dim] if target is not None and target.ndim == 3 else target
            return objective([F.normalize(column[:, :dim], dim=1) for column in vectors], short)

        if self.dims:
            first, *others = map(loss, self.dims)
            return sum(others, first)
        return loss(vectors[0].shape[1]) if self.normalizes[part] else objective(vectors, target)


def all_dims(dims: Iterable[int], dimension: int) -> list[int]:
    """``matryoshka_dims`` and D, largest first; empty without ``matryoshka_dims``. InputError if one is above D."""
    dims = set(dims)
    if dims and max(dims) > dimension:
        raise InputError(f"matryoshka_dims has {max(dims)}, but the base's vectors have {dimension} dimensions")
    return sorted({dimension, *dims}, reverse=True) if dims else []


def default_micro_batches(device: torch.device, sentences: int) -> int:
    """One micro-batch per core of a CPU, of at least `MIN_MICRO_BATCH` sentences; one in all on a GPU."""
    return max(1, min(num_threads(), sentences // MIN_MICRO_BATCH)) if device.type == "cpu" else 1


def split_by_length(lengths: Sequence[int], parts: int, most_tokens: int | None = None) -> list[np.ndarray]:
    """Row numbers in at most ``parts`` groups, sorted by length, longest first.

    Groups are cut such that the largest has as few tokens, padding included, as possible. There are more of them where
    a group would have more than ``most_tokens``.
    """
    most = max(lengths) * len(lengths)
    budget = bisect_left(
        range(most), True, sum(lengths) // parts, key=lambda budget: len(list(plan(lengths, budget))) <= parts
    )
    return list(plan(lengths, min(budget, most_tokens or budget)))


def _with_lora(backbone: nn.Module, rank: int, is_language_model: bool = False) -> nn.Module:
    if isinstance(backbone, WordBackbone):
        raise InputError("LoRA adapts transformers; a model of word vectors is trained as a whole, with lora_rank 0")
    from peft import LoraConfig, get_peft_model

    settings = LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.05, target_modules="all-linear", bias="none")
    if isinstance(backbone, JointPairModel):
        layers = backbone.transformer.encoder.named_modules(prefix="transformer.encoder")
        settings.target_modules = {name for name, module in layers if isinstance(module, nn.Linear)}
        adapted = get_peft_model(cast("Any", backbone), settings)
        for name in backbone.head_tensors():
            backbone.get_parameter(name).requires_grad_()
        return adapted
    # A head is trained as a whole, as its weights are random at first, except for the vocabulary of a language model.
    if heads := head_modules(backbone):
        settings.exclude_modules = rf"(.*\.)?({'|'.join(heads)})(\..*)?"
        settings.modules_to_save = None if is_language_model else heads
    adapted = get_peft_model(cast("Any", backbone), settings)
    if is_language_model:
        vocabulary = cast("Any", backbone).get_output_embeddings().weight
        for head in heads:
            for weight in backbone.get_submodule(head).parameters():
                weight.requires_grad_(weight is not vocabulary)
    return adapted
