"""The evaluation of a run: the eval data, and random pairs that show a collapse.

    ndcg@10 …     of retrieval data, with map@10, mrr@10 and recall@10 (`training.evaluation.retrieval`)
    mrr@10        of pairs without scores, with accuracy@1 and ``queries``: whether each first sentence finds a partner
                  among the second ones (`training.evaluation.retrieval.find_partners`)
    changed       of such pairs, the one whose cosine has changed most since the first evaluation
    spearman      rank correlation of cosine and gold score, -1 to 1, if the eval data has scores; None where it is
                  undefined, and ``undefined`` is the reason in words
    accuracy      fraction of triplets whose anchor is nearer to the positive by cosine, if it has triplets
    loss          the objective's, if the data has the form that it needs; not for simcse, whose loss needs dropout
    by_dimension  spearman or accuracy of vectors truncated to each of the config's matryoshka_dims, by dimension
    alignment …   see `training.evaluation.diagnostics`; ``collapsed`` is null, or the reason in words

Sentences that have one prompt are encoded in one call, in the precision that the finished model will be used in.
"""

import random
from collections.abc import Sequence

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

Vectors = dict[str | None, np.ndarray]  # (N, D) of the sentences with the prompt of each role


class Evaluator:
    """Evaluates an encoder, always on the same sentences: those of the eval data, as loaded, and of ``training``.

    The loss is measured on the rows of ``loss``, which have the form that the objective needs. ``before`` are the
    cosines of pairs without scores at the first evaluation, which returns them as ``cosines``; None before it.
    """

    def __init__(
        self,
        training: Sequence[Dataset],
        dev: Dataset | RetrievalData | None,
        loss: Examples | None,
        config: RunConfig,
        before: list[float] | None = None,
    ) -> None:
        self.before = before
        self.data = dev if isinstance(dev, Dataset) else None
        self.retrieval = dev if isinstance(dev, RetrievalData) else None
        self.loss = loss
        self.batch_size = config.batch_size
        self.dims = config.matryoshka_dims
        self.role = config.role
        sentences = list(dict.fromkeys(text for part in training for column in part.columns for text in column))
        generator = random.Random(config.seed)
        self.random_sentences = generator.sample(sentences, min(RANDOM_SENTENCES, len(sentences)))
        self.plain_sentences = plain_sentences()
        by_role: dict[str | None, list[str]] = {None: self.random_sentences + self.plain_sentences}
        parts = [] if self.data is None else [self.data]
        if loss is not None:
            parts.append(loss.data)
        for part in parts:
            for number, column in enumerate(part.columns):
                by_role.setdefault(self.role(number), []).extend(column)
        self._rows = {role: {text: row for row, text in enumerate(dict.fromkeys(of))} for role, of in by_role.items()}

    def measure(self, encoder: Encoder, objective: nn.Module, should_stop: ShouldStop | None) -> Figures:
        """The figures listed above. Raises StoppedError if ``should_stop`` returns true during encoding."""
        vectors: Vectors = {}
        figures: Figures = {}
        # The first has no role, and its copy of the weights serves all.
        for role, row in self._rows.items():
            reader = encoder.for_role(role) if role else encoder
            vectors[role] = reader.encode(list(row), normalize=False, should_stop=should_stop)
        if self.retrieval is not None:
            result = evaluate_retrieval(encoder, self.retrieval, cutoffs=(10,), should_stop=should_stop)
            figures |= {name: float(values.mean()) for name, values in result.values.items()}
        if self.data is not None:
            columns = [self._of(column, vectors, self.role(number)) for number, column in enumerate(self.data.columns)]
            figures |= _compare(self.data, columns)
            if self.data.kind == PAIRS:
                figures |= self._changes(self.data, cosine(columns[0], columns[1]))
            if self.dims and (name := main_metric(figures)):
                shorter = {dim: [column[:, :dim] for column in columns] for dim in self.dims}
                values = {str(dim): _compare(self.data, shorter[dim])[name] for dim in self.dims}
                figures["by_dimension"] = {dim: value for dim, value in values.items() if value is not None}
        if self.loss is not None:
            of_loss = enumerate(self.loss.data.columns)
            columns = [self._of(column, vectors, self.role(number)) for number, column in of_loss]
            figures["loss"] = self._mean_loss(columns, self.loss, objective)
        figures |= diagnose(self._of(self.random_sentences, vectors), self._of(self.plain_sentences, vectors))
        figures["collapsed"] = collapsed(figures)
        return figures

    def _changes(self, pairs: Dataset, cosines: np.ndarray) -> Figures:
        if self.before is None:
            self.before = cosines.tolist()
            return {"cosines": self.before}
        row = int(np.abs(cosines - self.before).argmax())
        return {"changed": [column[row] for column in pairs.columns]}

    def _of(self, column: Sequence[str], vectors: Vectors, role: str | None = None) -> np.ndarray:
        return vectors[role][[self._rows[role][text] for text in column]]

    @torch.no_grad()
    def _mean_loss(self, columns: list[np.ndarray], examples: Examples, objective: nn.Module) -> float:
        """The objective's mean loss over the rows, in batches as large as in training."""
        device = next(objective.parameters(), torch.empty(0)).device
        total = 0.0
        rows = len(examples.data)
        for start in range(0, rows, self.batch_size):
            part = slice(start, start + self.batch_size)
            target = None if examples.targets is None else examples.targets[part].to(device)
            batch = [torch.from_numpy(column[part]).to(device) for column in columns]
            total += float(objective(batch, target, examples.part)) * len(batch[0])
        return total / rows


def _compare(data: Dataset, columns: list[np.ndarray]) -> Figures:
    """The figures that compare the vectors (N, D) of each column with the gold scores or the order of triplets."""
    if data.kind == SCORED:
        gold = np.asarray(data.scores)
        positive = gold >= POSITIVE_FROM
        figures: Figures = {**spearman_or_reason(cosine(columns[0], columns[1]), gold)}
        if positive.any():
            figures["alignment"] = alignment(columns[0][positive], columns[1][positive])
        return figures
    if data.kind == TRIPLETS:
        nearer = cosine(columns[0], columns[1]) > cosine(columns[0], columns[2])
        return {"accuracy": float(nearer.mean()), "alignment": alignment(columns[0], columns[1])}
    return dict(find_partners(data, columns)) if data.kind == PAIRS else {}
