"""The evaluation of a run: the eval data, and random pairs that show a collapse.

    ndcg@10 …     for retrieval data, with map@10, mrr@10 and recall@10 (`training.evaluation.retrieval`)
    mrr@10        for pairs without scores, with accuracy@1 and ``queries``: whether each first sentence finds a partner
                  among the second ones (`training.evaluation.retrieval.find_partners`)
    changed       for such pairs, the one whose cosine has changed most since the first evaluation
    spearman      rank correlation of cosine and gold score, -1 to 1, if the eval data has scores; None if it is
                  undefined, and ``undefined`` is the reason in words
    accuracy      fraction of triplets whose anchor is nearer to the positive by cosine, if the data has triplets
    loss          the objective's loss, if the data has the form that it needs; not for simcse, which needs dropout
    by_dimension  spearman or accuracy of vectors truncated to each of the config's matryoshka_dims, by dimension
    alignment …   see `training.evaluation.diagnostics`; ``collapsed`` is null, or the reason in words

Sentences with the same prompt are encoded in one call, in the precision of the finished model.
"""

import random
from collections.abc import Sequence
from itertools import chain

import numpy as np
import torch
from torch import nn

from training.catalogue import PAIRS, SCORED, TRIPLETS, plain_sentences
from training.data.dataset import Dataset
from training.data.load import RetrievalData
from training.data.transforms import POSITIVE_FROM
from training.evaluation.diagnostics import RANDOM_SENTENCES, alignment, collapsed, diagnose
from training.evaluation.metrics import spearman_or_reason
from training.evaluation.retrieval import evaluate_retrieval, find_partners
from training.models.encoder import Encoder
from training.progress import ShouldStop
from training.similarities import cosine
from training.trainer.config import RunConfig
from training.trainer.run_metrics import Figures, main_metric
from training.trainer.teacher import Examples

# By role: (N, D), the sentences with the prompt of that role.
Vectors = dict[str | None, np.ndarray]


class Evaluator:
    """Evaluates an encoder, always on the same sentences.

    Args:
        training: the training data, which random pairs are drawn from.
        dev: the eval data as loaded.
        loss_examples: the rows that the loss is measured on, in the form that the objective needs.
        config: the config of the run.
        first_cosines: the cosines of pairs without scores at the first evaluation, which returns
            them as ``cosines``; None before it.
    """

    def __init__(
        self,
        training: Sequence[Dataset],
        dev: Dataset | RetrievalData | None,
        loss_examples: Examples | None,
        config: RunConfig,
        first_cosines: list[float] | None = None,
    ) -> None:
        self.first_cosines = first_cosines
        self.data = dev if isinstance(dev, Dataset) else None
        self.retrieval = dev if isinstance(dev, RetrievalData) else None
        self.loss_examples = loss_examples
        self.batch_size = config.batch_size
        self.dims = config.matryoshka_dims
        self.role = config.role
        columns = chain.from_iterable(part.columns for part in training)
        sentences = list(dict.fromkeys(chain.from_iterable(columns)))
        generator = random.Random(config.seed)
        self.random_sentences = generator.sample(sentences, min(RANDOM_SENTENCES, len(sentences)))
        # Sentences of other domains, which no run is trained on.
        self.plain_sentences = plain_sentences()
        # None comes first, as `measure` encodes in this order: the first call prepares the weights
        # for inference, and the encoders of the other roles share them.
        by_role: dict[str | None, list[str]] = {None: self.random_sentences + self.plain_sentences}
        parts = [] if self.data is None else [self.data]
        if loss_examples is not None:
            parts.append(loss_examples.data)
        for part in parts:
            for number, column in enumerate(part.columns):
                by_role.setdefault(self.role(number), []).extend(column)
        # The row of each distinct sentence of a role in the vectors that `measure` computes.
        self._rows: dict[str | None, dict[str, int]] = {}
        for role, texts in by_role.items():
            self._rows[role] = {text: row for row, text in enumerate(dict.fromkeys(texts))}

    def measure(
        self, encoder: Encoder, objective: nn.Module, should_stop: ShouldStop | None
    ) -> Figures:
        """Returns the figures listed above. Raises StoppedError if ``should_stop`` returns true during encoding.

        ``objective`` is the `Loss` of the run, which takes vectors, targets and the number of a
        part.
        """
        vectors: Vectors = {}
        figures: Figures = {}
        for role, row_of_text in self._rows.items():
            reader = encoder.for_role(role) if role else encoder
            texts = list(row_of_text)
            # As in training, the loss scales the vectors itself if it compares normalised ones.
            vectors[role] = reader.encode(texts, normalize=False, should_stop=should_stop)
        if self.retrieval is not None:
            result = evaluate_retrieval(
                encoder, self.retrieval, cutoffs=(10,), should_stop=should_stop
            )
            figures |= {name: float(values.mean()) for name, values in result.values.items()}
        if self.data is not None:
            columns = self._vectors_of(self.data, vectors)
            figures |= _compare(self.data, columns)
            if self.data.kind == PAIRS:
                figures |= self._changes(self.data, cosine(columns[0], columns[1]))
            metric = main_metric(figures)
            if self.dims and metric:
                figures["by_dimension"] = {}
                for dim in self.dims:
                    # The figure is undefined (None) if all cosines are equal.
                    value = _compare(self.data, [column[:, :dim] for column in columns])[metric]
                    if value is not None:
                        figures["by_dimension"][str(dim)] = value
        if self.loss_examples is not None:
            columns = self._vectors_of(self.loss_examples.data, vectors)
            figures["loss"] = self._mean_loss(columns, self.loss_examples, objective)
        random_vectors = self._column(self.random_sentences, vectors)
        figures |= diagnose(random_vectors, self._column(self.plain_sentences, vectors))
        figures["collapsed"] = collapsed(figures)
        return figures

    def _changes(self, pairs: Dataset, cosines: np.ndarray) -> Figures:
        """Returns the cosines at the first evaluation, later the pair whose cosine has changed most since then."""
        if self.first_cosines is None:
            self.first_cosines = cosines.tolist()
            return {"cosines": self.first_cosines}
        row = int(np.abs(cosines - self.first_cosines).argmax())
        return {"changed": [column[row] for column in pairs.columns]}

    def _vectors_of(self, data: Dataset, vectors: Vectors) -> list[np.ndarray]:
        """Returns the vectors (N, D) of each column."""
        columns = []
        for number, column in enumerate(data.columns):
            columns.append(self._column(column, vectors, self.role(number)))
        return columns

    def _column(
        self, sentences: Sequence[str], vectors: Vectors, role: str | None = None
    ) -> np.ndarray:
        rows = [self._rows[role][text] for text in sentences]
        return vectors[role][rows]

    @torch.no_grad()
    def _mean_loss(
        self, columns: list[np.ndarray], examples: Examples, objective: nn.Module
    ) -> float:
        """Computes the objective's mean loss over the rows, in batches as large as in training.

        ``columns`` are the vectors of the rows, (N, D) each.
        """
        # An objective without weights computes on the CPU, where the vectors are.
        device = next(objective.parameters(), torch.empty(0)).device
        total = 0.0
        count = len(examples.data)
        for start in range(0, count, self.batch_size):
            rows = slice(start, start + self.batch_size)
            target = None if examples.targets is None else examples.targets[rows].to(device)
            batch = [torch.from_numpy(column[rows]).to(device) for column in columns]
            # ``part`` is the number of the part of the run that has the form of these rows.
            total += float(objective(batch, target, examples.part)) * len(batch[0])
        return total / count


def _compare(data: Dataset, columns: list[np.ndarray]) -> Figures:
    """Compares the vectors (N, D) of each column with the gold scores, or with the order of triplets."""
    if data.kind == SCORED:
        gold = np.asarray(data.scores)
        # The alignment is a figure of pairs that belong together, here by a high gold score.
        is_positive = gold >= POSITIVE_FROM
        figures: Figures = {**spearman_or_reason(cosine(columns[0], columns[1]), gold)}
        if is_positive.any():
            figures["alignment"] = alignment(columns[0][is_positive], columns[1][is_positive])
        return figures
    if data.kind == TRIPLETS:
        is_nearer = cosine(columns[0], columns[1]) > cosine(columns[0], columns[2])
        return {"accuracy": float(is_nearer.mean()), "alignment": alignment(columns[0], columns[1])}
    if data.kind == PAIRS:
        return dict(find_partners(data, columns))
    # Other data is evaluated by the loss only.
    return {}
