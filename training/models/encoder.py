"""Encoder: the bi-encoder of Sentence-BERT, with tokenizer, transformer, pooling and the modules after the pooling.

Both sentences of a pair pass through the same weights (a siamese network, section 3 of the paper),
so there is one ``Encoder``. Pooling, prompt, dimension and the final Normalize are settings. The
methods ``with_…`` return a copy with another setting, which shares the weights.

Training and saving use the float32 weights. ``encode`` computes with a copy of the backbone
prepared for inference (`training.inference.runner`), in bfloat16 where the hardware supports it
natively.
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
from training.models.aliases import SentenceTransformerNames, convert_vectors
from training.models.files import check_replaceable
from training.models.folder import (
    MIN_LENGTH,
    ModelFolder,
    ModelFormat,
    prompt_advice,
    role_prompt,
)
from training.models.loading import (
    DEFAULT_MAX_LENGTH,
    NO_LIMIT,
    max_input_length,
    open_parts,
    save_parts,
)
from training.models.model import TokenModel, VectorModel, log, sample_weights
from training.models.modules import EncoderParts
from training.models.random_weights import random_parts
from training.models.texts import CHUNK, GPU_CHUNK, Chunk, OnRows, ReadReport, Rows, texts
from training.models.tokenization import TokenVectors, text_tokenizer
from training.models.word_networks import WordBackbone
from training.names import ModelName
from training.pooling import parse_pooling, pooling_function
from training.progress import Progress, ShouldStop, progress_bar

# Several threads may need the runner at the same time. Only one of them copies the weights.
_building = threading.Lock()
# Values of ``output_value``, as in sentence-transformers.
SENTENCE_EMBEDDING = "sentence_embedding"
TOKEN_EMBEDDINGS = "token_embeddings"  # noqa: S105 - not a password


class Encoder(SentenceTransformerNames, TokenModel):
    """A bi-encoder. ``Encoder(name)`` opens one, with the arguments of ``Encoder.load``.

    Attributes:
        backbone: the module before the pooling: a transformer or word vectors, in float32.
        head: the modules after the pooling, without the final Normalize.
        dimension: D, the length of a sentence vector.
        full_dimension: the length of a sentence vector before it is cut to ``dimension``.
        pooling, prompt, prompts, max_seq_length: settings.

    Example::

        from sbert_lab import Encoder

        encoder = Encoder("all-MiniLM-L6-v2")
        embeddings = encoder.encode(["A man is eating.", "A man eats food."])
        print(embeddings.shape)  # (2, 384)
        print(encoder.similarity(embeddings[:1], embeddings[1:]))  # [[cosine]]
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
        """Opens a model by name, or builds one from ``parts``. InputError if that fails.

        ``dtype`` is the precision of ``encode``. ``truncate_dim`` is sentence-transformers' name
        for the ``dimension`` of `load`.
        """
        if parts is None:
            if truncate_dim is not None:
                options["dimension"] = truncate_dim
            # This object takes over the attributes of the one that `load` makes.
            vars(self).update(vars(self.load(name, dtype=dtype, **options)))
            return
        self.name = str(name)
        self.dtype = dtype
        self.backbone, self.tokenizer, model_format, self.source, self.head = parts
        # The number of sentences that are read and sorted by length together.
        self.chunk_size = CHUNK if self.device.type == "cpu" else GPU_CHUNK
        self._is_advised = False  # whether `prompt_advice` has been logged
        self._text_tokenizer = text_tokenizer(self.tokenizer, model_format)
        self.pad_id = self._text_tokenizer.pad_id
        # The length of a token's vector, measured with a text of one token of padding.
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
        """Loads a model by name: a short name, Hub id, folder, ``run:<id>``, or ``scratch:`` for random weights.

        ``scratch:<layers>x<dim>`` is a transformer with random weights;
        `training.models.random_weights` has others. Dimension, prompt, dtype and pooling can be
        part of the name: ``all-mpnet-base-v2?dim=256:cls``.

        Args:
            name: the name of the model.
            pooling: one of `training.pooling.POOLINGS`, or several joined by +, such as mean+max.
                None follows the folder. If the folder names no pooling, a decoder gets the last
                token, and any other model the mean.
            dtype: the precision of ``encode``: auto, float32, bfloat16 or int8. ``backbone`` stays
                float32.
            device: auto, cpu, cuda, cuda:1 or mps.
            seed: the seed of the random weights of ``scratch:``.
            dimension: keep only the first ``dimension`` numbers of each vector (Matryoshka); None
                follows the folder.
            prompt: text put before every sentence; "" for none; None follows the folder.
            prompt_name: the name of a prompt of the folder, instead of its text.
            vocabulary_of: sentences whose words are added to the vocabulary of ``scratch:bilstm``
                and ``scratch:dan``.
            folder: the model's folder, if it has been read already.

        Returns:
            An encoder in evaluation mode.

        Raises:
            InputError: the model cannot be found or opened, or the pooling, dimension or prompt
                does not fit it.
        """
        parsed = ModelName.parse(name).with_pooling(pooling)
        if parsed.maxsim:
            raise InputError(
                f"{parsed} scores pairs by late interaction; for sentence vectors load {parsed.name}"
            )
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
        # Half precision is for transformers. The networks over words are small.
        elif isinstance(parts.backbone, WordBackbone):
            torch_dtype = torch.float32
        # The name of the weights alone; `with_settings` adds the settings to it.
        encoder = cls(str(parsed.weights), parts, torch_dtype).with_settings(parsed)
        return encoder.with_dimension(dimension).with_prompt(prompt, prompt_name)

    def __repr__(self) -> str:
        prompt = f", prompt {self.prompt!r}" if self.prompt else ""
        dtype = str(self.dtype).removeprefix("torch.")
        settings = f"{self.pooling}, {self.dimension} dimensions, {dtype}, {self.device}"
        return f"Encoder({self.name!r}, {settings}{prompt})"

    @property
    def max_length(self) -> int:
        """The number of tokens at which a sentence is truncated."""
        return self.model_format.max_length or DEFAULT_MAX_LENGTH

    @property
    def max_seq_length(self) -> int:
        """``max_length`` by sentence-transformers' name. It can be set, up to the length that the model can read."""
        return self.max_length

    @max_seq_length.setter
    def max_seq_length(self, tokens: int) -> None:
        # Only the number of positions of the model counts. So NO_LIMIT - 1, the largest number that
        # is a limit, replaces the limit of the tokenizer.
        most = max_input_length(self.tokenizer, self.backbone, NO_LIMIT - 1)
        if not MIN_LENGTH <= tokens <= most:
            raise InputError(
                f"max_seq_length is {tokens}; {self.name} reads {MIN_LENGTH} to {most} tokens"
            )
        form = replace(self.model_format, max_length=tokens)
        self._text_tokenizer = text_tokenizer(self.tokenizer, form)
        self._apply(form)

    @property
    def prompts(self) -> Mapping[str, str]:
        """The prompts of the model's folder, by name.

        They can be set. If the default prompt is not among the new ones, there is no default prompt
        any more.
        """
        return self.model_format.prompts

    @prompts.setter
    def prompts(self, prompts: Mapping[str, str]) -> None:
        default = self.model_format.default_prompt
        if default not in prompts:
            default = None
        self._apply(replace(self.model_format, prompts=dict(prompts), default_prompt=default))

    @property
    def vocabulary_size(self) -> int:
        """The number of tokens in the vocabulary."""
        return int(self.backbone.get_input_embeddings().num_embeddings)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.backbone.parameters()).device

    def weights_sample(self, most: int) -> Iterator[tuple[str, np.ndarray]]:
        for module in (self.backbone, *self.head):
            yield from sample_weights(module, most)

    def with_settings(self, name: ModelName) -> Self:
        """Returns the same weights with the settings that the name states. InputError if one does not fit."""
        encoder = self.with_pooling(name.pooling).with_dimension(name.dimension)
        return encoder.with_prompt(name.prompt, name.prompt_name)

    def with_pooling(self, pooling: str | None) -> Self:
        """Returns the same weights (shared, not copied) with another pooling.

        InputError if it is unknown, or its vectors have a length that the modules after it do not
        accept.
        """
        if pooling is None or pooling == self.pooling:
            return self
        # The pooling does not become a part of the name, as the keys of stored vectors include it
        # besides the name.
        return self._with_format(replace(self.model_format, pooling=pooling))

    def with_dimension(self, dimension: int | None) -> Self:
        """Returns the same weights, keeping the first ``dimension`` numbers of each vector. None changes nothing."""
        if dimension is None or dimension == self.dimension:
            return self
        if not 1 <= dimension <= self.full_dimension:
            raise InputError(
                f"{self.name} has {self.full_dimension} dimensions; keep 1 to {self.full_dimension}"
            )
        # Both the format and the name get the dimension.
        return self._with_format(
            replace(self.model_format, dimension=dimension), dimension=dimension
        )

    def with_prompt(self, prompt: str | None = None, name: str | None = None) -> Self:
        """Returns the same weights with a text before every sentence ("" for none), or with a prompt of the folder."""
        if prompt is None and name is None:
            return self
        form = self.model_format.with_prompt(prompt, name, self.name)
        return self._with_format(form, prompt=prompt, prompt_name=name)

    def for_role(self, role: str) -> Self:
        arguments = role_prompt(role, self.prompts, self.model_format.default_prompt)
        # `with_prompt` may return this encoder itself, which must not change.
        encoder = copy.copy(self.with_prompt(**arguments))
        # The caller follows the advice to use prompts, so it is not logged.
        encoder._is_advised = True
        return encoder

    def with_runner(self, runner: InferenceRunner[Sequence[int]]) -> Self:
        """Returns the same weights, computed by ``runner`` in ``encode`` and ``token_vectors``."""
        encoder = copy.copy(self)
        encoder._runner = runner
        return encoder

    def tokenize(self, sentences: Sequence[str]) -> list[list[int]]:
        """Returns token ids with special tokens, truncated at ``max_length``, not padded."""
        ids, _ = self._text_tokenizer.ids(sentences)
        return ids

    def is_unknown(self, sentences: Sequence[str]) -> list[bool]:
        return self._text_tokenizer.is_unknown(sentences)

    def embed(self, ids: Sequence[Sequence[int]]) -> Tensor:
        """Computes sentence vectors from token ids, differentiably and without the final Normalize.

        Returns (B, full_dimension) float32.
        """
        # (B, T) each; a mask of None means that nothing is padded.
        input_ids, mask = pad(ids, self.pad_id).to(self.device)
        attention_mask = None if mask is None else mask.long()
        # (B, T, H)
        hidden = self.backbone(input_ids, attention_mask=attention_mask).last_hidden_state
        return self.pool(hidden, mask)

    def pool(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """Pools hidden states (B, T, H) with a mask (B, T): (B, full_dimension), without the final Normalize."""
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
        """Encodes sentences as vectors.

        Args:
            sentences: one text or N texts, which may be empty. A text longer than ``max_length``
                tokens is truncated; the number of truncated texts is logged.
            normalize: True scales vectors to length 1 (cosine = dot product); False leaves out the
                final Normalize of the model; None follows the model's folder.
            on_progress, should_stop, report: as in `VectorModel.encode`.
            batch_size: the most sentences that are computed at a time, to save memory; None chooses
                a fast size.
            convert_to_tensor: return a tensor on the encoder's device, not a NumPy array.
            normalize_embeddings: as in sentence-transformers: True scales to length 1, False is
                ``normalize=None``.
            prompt_name: the name of the folder's prompt to put before each sentence of this call.
            prompt: the text of a prompt, which takes precedence over ``prompt_name``; "" for none.
            deterministic: make each vector independent, bit for bit, of the other sentences. This
                is slower.
            convert_to_numpy: False returns a list of tensors.
            precision: float32, or codes in int8, uint8, binary or ubinary, as in
                sentence-transformers.
            truncate_dim: keep only the first ``truncate_dim`` dimensions.
            output_value: ``token_embeddings`` returns for each sentence a tensor (T, H) with a row
                for each token, before pooling.
            device: move the weights to this device first, as `to` does.
            pool: must be None; pools of processes are not supported.

        Returns:
            float32 (N, D) as a NumPy array, in the order of the sentences; (D,) for one text.

        Raises:
            InputError: a sentence is not text, or a prompt cannot be used.

        Example::

            from sbert_lab import Encoder

            encoder = Encoder("all-MiniLM-L6-v2")
            embeddings = encoder.encode(["A man is eating.", "It snows."], truncate_dim=128)
            print(embeddings.shape)  # (2, 128)
        """
        # The second argument of sentence-transformers' encode is ``prompt_name``.
        if isinstance(normalize, str):
            raise InputError(
                f"normalize is {normalize!r}; the name of a prompt is given by prompt_name="
            )
        if normalize_embeddings is not None:
            normalize = normalize_embeddings or None
        if pool is not None:
            # Raises InputError, which says what to use in place of processes.
            self.start_multi_process_pool()
        if device is not None and pick_device(device) != self.device:
            self.to(device)
        if prompt is not None:
            prompt_name = None
        encoder = self.with_prompt(prompt, prompt_name).with_dimension(truncate_dim)
        if batch_size is not None:
            encoder = encoder.with_runner(encoder.inference.with_batch_size(batch_size))
        if deterministic:
            encoder = encoder.with_runner(encoder.inference.made_deterministic())
        is_one = isinstance(sentences, str)
        listed = [sentences] if isinstance(sentences, str) else sentences
        results: Any
        if output_value == TOKEN_EMBEDDINGS:
            results = []
            for vectors in encoder.token_vectors(texts(listed)):
                results.append(torch.from_numpy(vectors.hidden))
        elif output_value == SENTENCE_EMBEDDING:
            with progress_bar(show_progress_bar, "Encoding", on_progress) as progress:
                embeddings = VectorModel.encode(
                    encoder, listed, normalize, progress, should_stop, report
                )
            results = convert_vectors(
                embeddings, precision, convert_to_numpy, convert_to_tensor, self.device
            )
        else:
            raise InputError(
                f"output_value {output_value!r} is unknown; choose {SENTENCE_EMBEDDING} or {TOKEN_EMBEDDINGS}"
            )
        return results[0] if is_one else results

    def token_vectors(self, sentences: Sequence[str]) -> list[TokenVectors]:
        """Returns the output of the transformer for each token of each sentence, before pooling."""
        encodings = self._text_tokenizer.encodings(sentences)
        # A text without tokens is computed as a token of padding, whose vector is left out below.
        ids = [encoding.ids or [self.pad_id] for encoding in encodings]
        results: dict[int, TokenVectors] = {}
        # The runner returns batches of sentences of similar length, padded: (B, T, H).
        for rows, states in self.inference.map(ids, lambda states, _: states.float().cpu()):
            for row, state in zip(rows, states, strict=True):
                encoding = encodings[row]
                results[row] = TokenVectors(
                    encoding.tokens,
                    encoding.word_ids,
                    encoding.offsets,
                    state[: len(encoding.ids)].numpy(),
                    self.prompt,
                    self.skipped_tokens,
                )
        return [results[row] for row in range(len(ids))]

    def read_tokens(self, sentences: Sequence[str]) -> tuple[int, list[int]]:
        ids, cut = self._text_tokenizer.ids(sentences)
        return sum(map(len, ids)), cut

    @property
    def inference(self) -> InferenceRunner[Sequence[int]]:
        """The copy of the weights that ``encode`` computes with, made when first needed, and again after training."""
        if self.backbone.training:
            raise RuntimeError("the encoder is in training mode; call eval() before it encodes")
        with _building:
            if self._runner is None:
                # int8 needs the range of the activations, measured with some sentences.
                calibration = self.tokenize(plain_sentences()) if self.dtype == torch.int8 else ()
                self._runner = build_runner(self.backbone, self.dtype, self.pad_id, calibration)
            return self._runner

    def save(self, folder: str | Path) -> None:
        """Writes a folder that sentence-transformers can open too. It may replace a model, but no other files."""
        with replace_folder(check_replaceable(folder)) as fresh:
            save_parts(
                fresh, self.backbone, self.tokenizer, self.model_format, self.head, self._width
            )

    def _with_format(self, form: ModelFormat, **settings: Any) -> Self:
        """Returns a copy in another format. The ``settings`` become part of its name."""
        encoder = copy.copy(self)
        encoder.name = str(replace(ModelName.parse(self.name), **settings))
        encoder._apply(form)
        return encoder

    def _apply(self, form: ModelFormat) -> None:
        """Sets the format and what depends on it. InputError if it does not fit the modules."""
        self.model_format = form
        self._text_tokenizer = self._text_tokenizer.with_prompt(form.prompt)
        # The number of tokens at the beginning of a text that the pooling leaves out.
        self.skipped_tokens = 0
        if form.prompt and not form.include_prompt:
            self.skipped_tokens = self._text_tokenizer.prompt_length()
        self.pooling = form.pooling or "mean"
        self.normalizes = form.normalizes
        self._pool = pooling_function(self.pooling, self.skipped_tokens)
        # Several poolings, such as mean+max, are concatenated.
        self.full_dimension = len(parse_pooling(self.pooling)) * self._width
        for module in self.head:
            self.full_dimension = module.output_dimension(self.full_dimension)
        self.dimension = form.dimension or self.full_dimension
        if self.dimension > self.full_dimension:
            raise InputError(
                f"{self.name} keeps {self.dimension} dimensions of {self.full_dimension}"
            )
        self.similarity_fn_name = form.similarity
        self.prompt = form.prompt
        self.prompt_advice = ""
        if not form.prompt:
            self.prompt_advice = prompt_advice(self.name, form.transformer, form.prompts)
        # The part of the keys of stored vectors for the dimension and the prompt. It is "" for all
        # dimensions and no prompt, as the keys include the pooling and the length anyway.
        self.settings = ""
        if self.prompt or self.dimension < self.full_dimension:
            self.settings = f"{self.pooling} {self.max_length} {self.dimension} {form.include_prompt} {self.prompt!r}"

    def _to_vectors(self, normalize: bool | None) -> Callable[[Tensor, Tensor | None], np.ndarray]:
        """Returns a function from hidden states (B, T, H) and a mask (B, T) to sentence vectors (B, D) on the host."""
        # The model's own Normalize comes before truncation, as in sentence-transformers; the
        # caller's comes after it.
        normalizes_first = normalize is None and self.normalizes
        truncates = self.dimension < self.full_dimension

        def to_vectors(hidden: Tensor, mask: Tensor | None) -> np.ndarray:
            vectors = self.pool(hidden, mask)
            if normalizes_first:
                vectors = F.normalize(vectors, dim=1)
            if truncates:
                vectors = vectors[:, : self.dimension]
            if normalize:
                vectors = F.normalize(vectors, dim=1)
            return to_host(vectors)

        return to_vectors

    def _read(self, parts: Iterator[list[str]]) -> Iterator[Chunk]:
        if self.device.type == "cpu":
            return map(self._text_tokenizer.chunk, parts)
        # Tokenize the next chunk while the GPU computes this one.
        return parallel.imap(self._text_tokenizer.chunk, parts, at_a_time=1)

    def _vectors(
        self,
        rows: Rows,
        normalize: bool | None,
        on_rows: OnRows,
        should_stop: ShouldStop | None,
        report: ReadReport,
    ) -> np.ndarray:
        if self.prompt_advice and not self._is_advised:
            self._is_advised = True
            log.warning(self.prompt_advice)
        return self.inference.collect(
            rows,
            self._to_vectors(normalize),
            shape=(self.dimension,),
            should_stop=should_stop,
            on_progress=on_rows,
        )
