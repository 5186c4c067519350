"""SparseEncoder: a text is a weight for each token of the vocabulary, nearly all 0 (SPLADE, Formal et al. 2021).

The head that predicts masked tokens says for each position of a text which tokens could stand there. The weight of a
token at a position is log(1 + ReLU(logit)), its weight in the text the largest of these (SPLADE v2) or their sum (the
first version). So a text has a weight for words that it does not contain, and an inverted index finds it by them. The
dot product of two texts is a sum over the tokens that both have, which says exactly what makes it.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

import numpy as np
import torch
from scipy.sparse import csr_matrix, vstack
from torch import Tensor

from training.device import pick_device, pick_dtype, to_host
from training.errors import InputError
from training.inference.batching import Row
from training.inference.runner import PaddedRunner
from training.models.files import read_object, read_tensors
from training.models.folder import ROUTER, SPARSE_ENCODER, TRANSFORMER, ModelFolder, ModelFormat
from training.models.lexical import SparseModel
from training.models.loading import max_input_length, open_tokenizer, open_transformer
from training.models.settings import NO_LIMIT, checked
from training.models.tokenization import TextTokenizer, text_tokenizer
from training.names import ModelName
from training.progress import Progress, ShouldStop

SPLADE, MLM = "SpladePooling", "MLMTransformer"  # the second is a transformer with its head, in older folders
# A weight for each token, the same in all texts: it reads queries alone, which then need no transformer.
TABLE = "SparseStaticEmbedding"
REDUCTIONS: dict[str, Callable[[Tensor], Tensor]] = {"max": lambda w: w.amax(dim=1), "sum": lambda w: w.sum(dim=1)}
ACTIVATIONS = {"relu": 1, "log1p_relu": 2}  # how often log(1 + x) is taken
MOST_TOKENS = 1_024  # of a batch: each has as many logits as the vocabulary has tokens


class Settings(NamedTuple):
    """The settings in a model's folder, in the terms of sentence-transformers."""

    pooling_strategy: str = "max"
    activation_function: str = "relu"
    max_active_dims: int | None = None


class Term(NamedTuple):
    """A token, its weight in two texts, and the product of these, its share of the dot product."""

    token: str
    first: float
    second: float
    share: float
    in_first: bool  # whether the text has it, or it was added
    in_second: bool


class LogitsRunner(PaddedRunner):
    """The predictions of a transformer with its head for masked tokens at each position: (n, T, V)."""

    output = "logits"

    def batches(self, lengths: list[int], token_budget: int) -> Iterator[list[Row]]:
        return super().batches(lengths, min(token_budget, MOST_TOKENS))


class SparseEncoder(SparseModel):
    """A sparse encoder of SPLADE's kind. ``SparseEncoder.load`` opens one."""

    has_dtype = True
    dimension: int  # V
    # What reads queries, where that is not the transformer: a tokenizer, and a weight for each token (V,).
    _table: tuple[TextTokenizer, np.ndarray] | None = None
    _reads_queries = False

    def __init__(self, name: str, runner: LogitsRunner, tokenizer: Any, form: ModelFormat, settings: Settings) -> None:
        self.name, self._runner, self._form, self._settings = name, runner, form, settings
        self._tokenizer, config = text_tokenizer(tokenizer, form), cast("Any", runner.transformer.config)
        self.dimension = int(config.vocab_size)
        self.vocabulary = tokenizer.convert_ids_to_tokens(range(self.dimension))

    @classmethod
    def load(
        cls,
        name: str | ModelName,
        dtype: str = "auto",
        device: str = "auto",
        home: str | Path | None = None,
        folder: ModelFolder | None = None,
    ) -> Self:
        """Load a folder or Hub id as sentence-transformers' SparseEncoder writes it: a transformer and SpladePooling.

        Arguments and errors are those of `CrossEncoder.load`; int8 is refused.
        """
        parsed = ModelName.parse(name)
        cls.check_settings(parsed)
        torch_device = pick_device(device)
        torch_dtype = pick_dtype(parsed.dtype or dtype, torch_device)
        if torch_dtype == torch.int8:
            raise InputError(f"{parsed.name} has no int8; choose auto")
        folder = folder or ModelFolder.of(parsed.name, home)
        general, settings = folder.general_settings((SPARSE_ENCODER,), Settings._fields), _settings(folder)
        form = ModelFormat(folder.first, **general | folder.transformer_settings("fill-mask"))
        backbone, tokenizer = open_transformer(folder, "AutoModelForMaskedLM")
        backbone.to(torch_device)
        form = replace(form, max_length=max_input_length(tokenizer, backbone, form.max_length))
        runner = LogitsRunner(backbone, torch_dtype, int(tokenizer.pad_token_id or 0))
        encoder = cls(str(parsed), runner, tokenizer, form, settings)
        if folder.query_modules:
            encoder._table = _open_table(folder, encoder.dimension)
        encoder._reads_queries = folder.default_role == "query"
        return encoder

    def for_role(self, role: str) -> Self:
        encoder, prompt = copy.copy(self), {"prompt": None, "name": None, **self._form.role_prompt(role)}
        if any(text is not None for text in prompt.values()):
            encoder._tokenizer = self._tokenizer.with_prompt(self._form.with_prompt(**prompt, model=self.name).prompt)
        encoder._reads_queries = role == "query"
        return encoder

    def is_unknown(self, sentences: Sequence[str]) -> list[bool]:
        return self._tokenizer.is_unknown(sentences)

    def weigh(self, queries: Sequence[str], documents: Sequence[str], **watch: Any) -> tuple[csr_matrix, csr_matrix]:
        """The weights of both, each side with the prompt that the folder has for it."""
        weights = self.for_role("document").encode_sparse(documents, **watch)
        return self.for_role("query").encode_sparse(queries), weights

    def encode_sparse(
        self, sentences: Sequence[str], on_progress: Progress | None = None, should_stop: ShouldStop | None = None
    ) -> csr_matrix:
        """Sentences -> float32 (N, V), in the caller's order; ``vocabulary`` names the columns."""
        if self._table and self._reads_queries:
            return self._looked_up(*self._table, sentences)
        ids, _ = self._tokenizer.ids(sentences)
        blocks, order = [csr_matrix(np.zeros((0, self.dimension), dtype=np.float32))], []
        for rows, block in self._runner.map(ids, self._weights, should_stop):
            blocks.append(block)
            order += rows
            if on_progress is not None:
                on_progress(len(order), len(ids))
        return vstack(blocks, format="csr")[np.argsort(order)]

    def _looked_up(self, tokenizer: TextTokenizer, weights: np.ndarray, sentences: Sequence[str]) -> csr_matrix:
        rows = [np.unique(ids) for ids in tokenizer.with_prompt(self._tokenizer.prompt).ids(sentences)[0]]
        columns = np.concatenate([np.empty(0, np.int64), *rows])
        starts = np.cumsum([0, *map(len, rows)])
        # The last column stands for texts without tokens.
        values = np.append(weights, 0)[columns]
        return csr_matrix((values, columns, starts), (len(rows), len(weights) + 1))[:, :-1]

    def terms(self, a: str, b: str) -> list[Term]:
        """The tokens that either text has a weight for, by their share of the dot product, then by weight."""
        weights = self.encode_sparse([a, b]).toarray()
        own = [np.isin(np.arange(self.dimension), row) for row in self._tokenizer.ids([a, b])[0]]
        columns = zip(self.vocabulary, *weights.tolist(), weights.prod(axis=0).tolist(), *own, strict=True)
        terms = [Term(*column) for column in columns if column[1] or column[2]]
        return sorted(terms, key=lambda term: (-term.share, -term.first - term.second))

    def _weights(self, logits: Tensor, mask: Tensor | None) -> csr_matrix:
        """(n, T, V), (n, T) -> (n, V)."""
        weights = logits.float().relu()
        for _ in range(ACTIVATIONS[self._settings.activation_function]):
            weights = weights.log1p()
        pooled = REDUCTIONS[self._settings.pooling_strategy](weights if mask is None else weights * mask[:, :, None])
        if most := self._settings.max_active_dims:
            top = pooled.topk(min(most, self.dimension), dim=1)
            pooled = torch.zeros_like(pooled).scatter(1, top.indices, top.values)
        return csr_matrix(to_host(pooled))


def _open_table(folder: ModelFolder, dimension: int) -> tuple[TextTokenizer, np.ndarray]:
    """The table that reads queries. InputError if something else does, or it does not fit the vocabulary."""
    entry, *more = folder.query_modules
    if entry.kind != TABLE or more or folder.general.get("max_active_dims"):
        raise InputError(f"{folder.path.name} reads queries by another model than {TABLE} alone; choose another one")
    checked(folder.path.name, TABLE, read_object(entry.folder / "config.json", {}), ("frozen",))
    weights = read_tensors(entry.folder).get("weight")
    tokenizer = open_tokenizer(replace(folder, first=entry.folder))
    if weights is None or weights.shape != (dimension,):
        raise InputError(f"{entry.folder} has no weight for each of {dimension:,} tokens; fetch the model again")
    longest = tokenizer.model_max_length
    form = ModelFormat(input_module=TABLE, max_length=int(longest) if longest < NO_LIMIT else None)
    return text_tokenizer(tokenizer.backend_tokenizer, form, dimension), weights.float().numpy()


def _settings(folder: ModelFolder) -> Settings:
    modules = folder.checked_modules((TRANSFORMER, MLM, SPLADE, *[ROUTER, TABLE] * bool(folder.query_modules)))
    if [entry.kind == SPLADE for entry in modules] != [False, True]:
        raise InputError(
            f"{folder.path.name} is not made of a transformer and {SPLADE}; choose a model of SPLADE's kind"
        )
    pooling_config = read_object(modules[1].folder / "config.json")
    checked(folder.path.name, "1_Pooling/config.json", pooling_config, Settings._fields)
    values = {**pooling_config, **folder.general}
    settings = Settings(**{name: values[name] for name in Settings._fields if name in values})
    pooling, activation, most = settings
    if pooling not in REDUCTIONS or activation not in ACTIVATIONS or not isinstance(most, int | None):
        raise InputError(f"{folder.path.name} takes the {pooling} of {activation}, {most} terms: this is not supported")
    return settings
