"""Encoder: the bi-encoder of Sentence-BERT. Tokenizer, transformer, pooling and what follows: sentences to vectors.

Both sentences of a pair pass through the same weights (a siamese network, section 3 of the paper), so there is one
``Encoder``. Pooling, a last Normalize, prompt and dimension are settings: ``with_…`` copies all but the weights.

The float32 weights are the ones that are trained and saved. ``encode`` computes with a copy of the backbone prepared
for inference (`training.inference.runner`), in bfloat16 where the hardware does that natively.
"""

import copy
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from training import parallel
from training.atomic import replace_folder
from training.catalogue import plain_sentences
from training.device import pick_device, pick_dtype, to_host
from training.errors import InputError
from training.inference.batching import pad
from training.inference.runner import InferenceRunner, build_runner, check_int8
from training.models.aliases import SentenceTransformerNames, converted
from training.models.files import check_replaceable
from training.models.folder import ModelFolder, ModelFormat, prompt_advice, role_prompt
from training.models.loading import DEFAULT_MAX_LENGTH, max_input_length, open_parts, save_parts
from training.models.model import TokenModel, VectorModel, log
from training.models.modules import EncoderParts
from training.models.random_weights import random_parts
from training.models.texts import CHUNK, GPU_CHUNK, Chunk, Forward, ReadReport, Rows, texts
from training.models.tokenization import TokenVectors, text_tokenizer
from training.models.word_networks import WordBackbone
from training.names import ModelName
from training.pooling import NO_POOLING, parse_pooling, pooling_function
from training.progress import Progress, ShouldStop, progress_bar

# Several threads may ask for the runner first; one copies the weights.
_building = threading.Lock()
# A token between those for the start and the end.
FEWEST_TOKENS = 3
# What ``encode`` may return, by sentence-transformers' names.
SENTENCE_EMBEDDING, TOKEN_EMBEDDINGS = "sentence_embedding", "token_embeddings"


class Encoder(SentenceTransformerNames, TokenModel):
    """A bi-encoder. ``Encoder(name)`` opens one, with the arguments of ``Encoder.load``.

    ``backbone`` comes before the pooling, a transformer or word vectors; ``head`` is the modules after it, without the
    last Normalize. ``dimension`` is D, the length of a sentence vector, ``full_dimension`` that before it is cut.
    """

    has_dtype = True
    _runner: InferenceRunner[Sequence[int]] | None = None

    def __init__(
        self,
        name: ModelName | Path | str,
        parts: EncoderParts | None = None,
        dtype: Any = "auto",
        truncate_dim: int | None = None,
        **options: Any,
    ) -> None:
        """Opens a model by name, or makes one of ``parts`` with the dtype of ``encode``. InputError if that fails.

        ``truncate_dim`` is the ``dimension`` of `load` as sentence-transformers calls it.
        """
        if parts is None:
            if truncate_dim is not None:
                options["dimension"] = truncate_dim
            vars(self).update(vars(self.load(name, dtype=dtype, **options)))
            return
        self.name, self.dtype = str(name), dtype
        self.backbone, self.tokenizer, model_format, self.source, self.head = parts
        self.chunk_size = CHUNK if self.device.type == "cpu" else GPU_CHUNK
        self._is_advised = False  # whether `prompt_advice` has been logged
        self._text_tokenizer = text_tokenizer(self.tokenizer, model_format)
        self.pad_id = self._text_tokenizer.pad_id
        self._width = parts.token_width(self.pad_id)
        self._apply(model_format)

    @classmethod
    def load(
        cls,
        name: ModelName | Path | str,
        pooling: str | None = None,
        dtype: str | torch.dtype = "auto",
        device: str | torch.device = "auto",
        home: str | Path | None = None,
        seed: int = 0,
        dimension: int | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        vocabulary_of: Iterable[str] = (),
        folder: ModelFolder | None = None,
    ) -> Self:
        """Load by name: a short name, Hub id, folder, ``run:<id>``, or ``scratch:`` and a shape for random weights.

        Random weights are those of a transformer, ``scratch:<layers>x<dim>``, or of `training.models.random_weights`.
        Dimension, prompt, dtype and pooling can be part of the name: ``all-mpnet-base-v2?dim=256:cls``.

        Args:
            pooling: one of `training.pooling.POOLINGS`, or several joined by +, such as mean+max; None takes the one
                that the folder names, else mean (of a decoder the last token).
            dtype: of inference: auto, float32, bfloat16 or int8. ``backbone`` stays float32.
            device: auto, cpu, cuda, cuda:1, mps.
            seed: of the random weights of ``scratch:``.
            dimension: keep only the first so many dimensions (Matryoshka); None = as many as the folder says.
            prompt: text put before every sentence; "" for none; None = as the folder says.
            prompt_name: the same by its name in the folder.
            vocabulary_of: sentences whose words ``scratch:bilstm`` and ``scratch:dan`` know, besides frequent ones.
            folder: what the folder of the name holds, where that has been read.

        InputError if the model cannot be found or opened, or the pooling, dimension or prompt does not fit it.
        """
        parsed = ModelName.parse(name).with_pooling(pooling)
        if parsed.maxsim:
            raise InputError(f"{parsed} scores pairs by late interaction; for sentence vectors load {parsed.name}")
        if parsed.endpoint:
            raise InputError(f"{parsed} is an endpoint; open_model opens it")
        torch_device = pick_device(device)
        torch_dtype = pick_dtype(parsed.dtype or dtype, torch_device)
        if parsed.is_scratch:
            parts = random_parts(parsed, home, seed, vocabulary_of)
        else:
            parts = open_parts(parsed, folder or ModelFolder.of(parsed.name, home))
        parts.backbone.to(torch_device).eval()
        parts.head.to(torch_device).eval()
        if torch_dtype == torch.int8:
            check_int8(parsed.name, parts.backbone)
        elif isinstance(parts.backbone, WordBackbone):
            torch_dtype = torch.float32
        encoder = cls(str(parsed.weights), parts, torch_dtype).with_settings(parsed)
        return encoder.with_dimension(dimension).with_prompt(prompt, prompt_name)

    def __repr__(self) -> str:
        prompt = f", prompt {self.prompt!r}" if self.prompt else ""
        kind = f"{self.pooling}, {self.dimension} dimensions, {str(self.dtype).removeprefix('torch.')}"
        return f"Encoder({self.name!r}, {kind}, {self.device}{prompt})"

    @property
    def max_length(self) -> int:
        """The tokens that are read of a sentence."""
        return self.model_format.max_length or DEFAULT_MAX_LENGTH

    @property
    def max_seq_length(self) -> int:
        """The same by sentence-transformers' name, which can be set. InputError for more than the model can read."""
        return self.max_length

    @max_seq_length.setter
    def max_seq_length(self, tokens: int) -> None:
        most = max_input_length(self.tokenizer, self.backbone, tokens) if hasattr(self.backbone, "config") else tokens
        if not FEWEST_TOKENS <= tokens <= most:
            raise InputError(f"max_seq_length is {tokens}; {self.name} reads {FEWEST_TOKENS} to {most} tokens")
        form = replace(self.model_format, max_length=tokens)
        self._text_tokenizer = text_tokenizer(self.tokenizer, form)
        self._apply(form)

    @property
    def prompts(self) -> Mapping[str, str]:
        """The prompts of the model's folder, by name; they can be set."""
        return self.model_format.prompts

    @prompts.setter
    def prompts(self, prompts: Mapping[str, str]) -> None:
        self._apply(replace(self.model_format, prompts=dict(prompts)))

    @property
    def vocabulary_size(self) -> int:
        """The number of different tokens."""
        return int(self.backbone.get_input_embeddings().num_embeddings)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.backbone.parameters()).device

    def weights_sample(self, most: int) -> Iterator[tuple[str, np.ndarray]]:
        """At most about ``most`` numbers of each parameter, module by module."""
        for module in (self.backbone, *self.head):
            for name, tensor in sorted(module.state_dict().items()):
                sample = tensor.reshape(-1)[:: max(1, tensor.numel() // most)]
                yield f"{name} {tuple(tensor.shape)}", sample.float().cpu().numpy()

    def with_settings(self, name: ModelName) -> Self:
        """The same weights with the settings that the name states. InputError if one does not fit."""
        encoder = self.with_pooling(name.pooling).with_dimension(name.dimension)
        return encoder.with_prompt(name.prompt, name.prompt_name)

    def with_pooling(self, pooling: str | None) -> Self:
        """The same weights (shared, not copied) under another pooling. InputError if the modules after it forbid it."""
        if pooling is None or pooling == self.pooling:
            return self
        if pooling != NO_POOLING:
            parse_pooling(pooling)
        return self._copied(replace(self.model_format, pooling=pooling))

    def with_dimension(self, dimension: int | None) -> Self:
        """The same weights, keeping only the first ``dimension`` numbers of each vector; None changes nothing."""
        if dimension is None or dimension == self.dimension:
            return self
        if not 1 <= dimension <= self.full_dimension:
            raise InputError(f"{self.name} has {self.full_dimension} dimensions; keep 1 to {self.full_dimension}")
        return self._copied(replace(self.model_format, dimension=dimension), dimension=dimension)

    def with_prompt(self, prompt: str | None = None, name: str | None = None) -> Self:
        """The same weights with a text before every sentence ("" for none), or with that of a name in the folder."""
        if prompt is None and name is None:
            return self
        form = self.model_format.with_prompt(prompt, name, self.name)
        return self._copied(form, prompt=prompt, prompt_name=name)

    def for_role(self, role: str) -> Self:
        encoder = copy.copy(self.with_prompt(**role_prompt(role, self.prompts, self.model_format.default_prompt)))
        encoder._is_advised = True
        return encoder

    def with_runner(self, runner: InferenceRunner[Sequence[int]]) -> Self:
        """The same weights, computed by ``runner`` in ``encode`` and ``token_vectors``."""
        encoder = copy.copy(self)
        encoder._runner = runner
        return encoder

    def tokenize(self, sentences: Sequence[str]) -> list[list[int]]:
        """Token ids with special tokens, truncated at ``max_length``, not padded."""
        return self._text_tokenizer.ids(sentences)[0]

    def is_unknown(self, sentences: Sequence[str]) -> list[bool]:
        return self._text_tokenizer.is_unknown(sentences)

    def embed(self, ids: Sequence[Sequence[int]]) -> Tensor:
        """Token ids -> sentence vectors (B, full_dimension) float32, differentiable, without the last Normalize."""
        batch, device = pad(ids, self.pad_id), self.device
        mask = None if batch.mask is None else batch.mask.to(device, non_blocking=True)
        attention_mask = None if mask is None else mask.long()
        hidden = self.backbone(batch.ids.to(device, non_blocking=True), attention_mask=attention_mask).last_hidden_state
        return self.pool(hidden, mask)

    def pool(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """Hidden states (B, T, H), mask -> sentence vectors (B, full_dimension), without the last Normalize."""
        return self.head(self._pool(hidden, mask))

    def encode(
        self,
        sentences: str | Sequence[str],
        normalize: bool | None = True,
        on_progress: Progress | None = None,
        should_stop: ShouldStop | None = None,
        report: ReadReport | None = None,
        *,
        batch_size: int | None = None,
        show_progress_bar: bool = False,
        convert_to_tensor: bool = False,
        normalize_embeddings: bool | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        deterministic: bool = False,
        convert_to_numpy: bool = True,
        precision: str | None = None,
        truncate_dim: int | None = None,
        output_value: str = SENTENCE_EMBEDDING,
        device: str | torch.device | None = None,
        pool: Any = None,
    ) -> Any:
        """Sentences -> float32 (N, D), in the caller's order, as NumPy; one string -> (D,).

        Args:
            sentences: any text, also empty; truncated at ``max_length`` tokens, which is counted and logged.
            normalize: True scales to length 1 (cosine = dot product); False leaves out the last Normalize, if the
                model has one; None does what the model's folder says.
            batch_size: sentences computed at a time, at most, to save memory; None = as many as is fast here.
            convert_to_tensor: return a tensor on the encoder's device, not a NumPy array.
            normalize_embeddings: as in sentence-transformers: True scales to length 1, False is ``normalize=None``.
            prompt_name: the prompt before each sentence of this call, by its name in the model's folder.
            prompt: the same as text, which goes before a name; "" for none.
            deterministic: the same vector to the bit whatever sentences are encoded beside it, which takes longer.
            convert_to_numpy: False returns a list of tensors.
            precision: float32, or codes in int8, uint8, binary or ubinary, as in sentence-transformers.
            truncate_dim: keep only the first so many dimensions.
            output_value: ``token_embeddings`` returns for each sentence a tensor (T, H), a row for each token before
                pooling.
            device: move the weights there first, as `to` does.
            pool: None; InputError for a pool of processes.

        InputError if a sentence is not text, or a prompt cannot be used.
        """
        if isinstance(normalize, str):
            raise InputError(f"normalize is {normalize!r}; the name of a prompt is given by prompt_name=")
        if normalize_embeddings is not None:
            normalize = normalize_embeddings or None
        if pool is not None:
            self.start_multi_process_pool()
        if device is not None and pick_device(device) != self.device:
            self.to(device)
        prompted = self.with_prompt(prompt) if prompt is not None else self.with_prompt(name=prompt_name)
        encoder = prompted.with_dimension(truncate_dim)
        listed = [sentences] if isinstance(sentences, str) else sentences
        if batch_size is not None:
            encoder = encoder.with_runner(encoder.inference.with_batch_size(batch_size))
        if deterministic:
            encoder = encoder.with_runner(encoder.inference.made_deterministic())
        if output_value != SENTENCE_EMBEDDING:
            if output_value != TOKEN_EMBEDDINGS:
                raise InputError(
                    f"output_value {output_value!r} is unknown; choose {SENTENCE_EMBEDDING} or {TOKEN_EMBEDDINGS}"
                )
            tokens = [torch.from_numpy(read.hidden) for read in encoder.token_vectors(texts(listed))]
            return tokens[0] if isinstance(sentences, str) else tokens
        with progress_bar(show_progress_bar, "Encoding", on_progress) as progress:
            vectors = VectorModel.encode(encoder, listed, normalize, progress, should_stop, report)
        results = converted(vectors, precision, convert_to_numpy, convert_to_tensor, self.device)
        return results[0] if isinstance(sentences, str) else results

    def token_vectors(self, sentences: Sequence[str]) -> list[TokenVectors]:
        """The output of the transformer for each token of each sentence, before pooling."""
        encodings = self._text_tokenizer.encodings(sentences)
        ids = [encoding.ids or [self.pad_id] for encoding in encodings]
        hidden: list[np.ndarray] = [np.empty(0)] * len(ids)
        for rows, states in self.inference.map(ids, lambda states, _: states.float().cpu()):
            for i, state in zip(rows, states, strict=True):
                hidden[i] = state[: len(encodings[i].ids)].numpy()
        return [
            TokenVectors(e.tokens, e.word_ids, e.offsets, states, self.prompt, self.skipped_tokens)
            for e, states in zip(encodings, hidden, strict=True)
        ]

    def read_tokens(self, sentences: Sequence[str]) -> tuple[int, list[int]]:
        ids, cut = self._text_tokenizer.ids(sentences)
        return sum(map(len, ids)), cut

    @property
    def inference(self) -> InferenceRunner[Sequence[int]]:
        """The copy of the weights that ``encode`` computes with, made when first needed and after each training."""
        if self.backbone.training:
            raise RuntimeError("the encoder is in training mode; call eval() before it encodes")
        with _building:
            if self._runner is None:
                calibration = self.tokenize(plain_sentences()) if self.dtype == torch.int8 else ()
                self._runner = build_runner(self.backbone, self.dtype, self.pad_id, calibration)
            return self._runner

    def save(self, folder: str | Path) -> None:
        """Write a folder that sentence-transformers opens too. Replaces a model, but no other files."""
        with replace_folder(check_replaceable(folder)) as fresh:
            save_parts(fresh, self.backbone, self.tokenizer, self.model_format, self.head, self._width)

    def _copied(self, form: ModelFormat, **settings: Any) -> Self:
        """A copy under another format; the ``settings`` become part of its name."""
        encoder = copy.copy(self)
        encoder.name = str(replace(ModelName.parse(self.name), **settings))
        encoder._apply(form)
        return encoder

    def _apply(self, form: ModelFormat) -> None:
        """Take over a format. InputError if it does not fit the modules."""
        self.model_format, self._text_tokenizer = form, self._text_tokenizer.with_prompt(form.prompt)
        self.skipped_tokens = 0 if form.include_prompt or not form.prompt else self._text_tokenizer.prompt_length()
        self.pooling, self.normalizes = form.pooling or "mean", form.normalizes
        self._pool = pooling_function(self.pooling, self.skipped_tokens)
        self.full_dimension = len(parse_pooling(self.pooling)) * self._width
        for module in self.head:
            self.full_dimension = module.output_dimension(self.full_dimension)
        self.dimension = form.dimension or self.full_dimension
        if self.dimension > self.full_dimension:
            raise InputError(f"{self.name} keeps {self.dimension} dimensions of {self.full_dimension}")
        self.similarity_fn_name = form.similarity
        self.prompt = form.prompt
        self.prompt_advice = "" if form.prompt else prompt_advice(self.name, form.transformer, form.prompts)
        settings = f"{self.pooling} {self.max_length} {self.dimension} {form.include_prompt} {self.prompt!r}"
        self.settings = settings if self.prompt or self.dimension < self.full_dimension else ""

    def _to_vectors(self, normalize: bool | None) -> Callable[[Tensor, Tensor | None], np.ndarray]:
        """A function of hidden states (B, T, H) and their mask to sentence vectors (B, D) on the host."""
        to_unit = self.normalizes if normalize is None else normalize
        # Truncation comes after the model's own Normalize, as in sentence-transformers.
        truncates, is_unit_before = self.dimension < self.full_dimension, normalize is None and self.normalizes

        def to_vectors(hidden: Tensor, mask: Tensor | None) -> np.ndarray:
            vectors = self.pool(hidden, mask)
            if truncates:
                vectors = (F.normalize(vectors, dim=1) if is_unit_before else vectors)[:, : self.dimension]
            if to_unit and not (truncates and is_unit_before):
                vectors = F.normalize(vectors, dim=1)
            return to_host(vectors)

        return to_vectors

    def _read(self, parts: Iterator[list[str]]) -> Iterator[Chunk]:
        if self.device.type == "cpu":
            return map(self._text_tokenizer.chunk, parts)
        # While a GPU computes one chunk, the next one is tokenized.
        return parallel.imap(self._text_tokenizer.chunk, parts, at_a_time=1)

    def _vectors(
        self, rows: Rows, normalize: bool | None, forward: Forward, should_stop: ShouldStop | None, report: ReadReport
    ) -> np.ndarray:
        if self.prompt_advice and not self._is_advised:
            self._is_advised = True
            log.warning(self.prompt_advice)
        return self.inference.collect(rows, self._to_vectors(normalize), (self.dimension,), should_stop, forward)
