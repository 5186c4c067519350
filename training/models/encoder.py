"""Encoder: the bi-encoder of Sentence-BERT. Tokenizer, transformer, pooling and what follows: sentences to vectors.

Both sentences of a pair pass through the same weights (a siamese network, section 3 of the paper), so there is
one ``Encoder``, and pairs are compared by the cosine of its vectors. What it is made of, and the settings under which
it is used, are in `training.models.encoder_modules`.

The float32 weights in ``backbone`` and ``head`` are the ones that are trained and saved. ``encode`` computes with a
copy of the backbone prepared for inference (`training.inference.runner`), in bfloat16 where the hardware does that
natively.
"""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypedDict, Unpack, overload

import numpy as np
import torch
from torch import Tensor

from training import parallel
from training.assets import plain_sentences
from training.device import pick_device, pick_dtype
from training.errors import InputError
from training.inference.batching import token_counts
from training.inference.runner import STATIC_POOLINGS, InferenceRunner, StaticRunner, build_runner, check_int8
from training.models.encoder_modules import EncoderModules
from training.models.endpoint import EndpointBackbone, EndpointRunner
from training.models.loading import open_modules
from training.models.processes import encode_in_processes
from training.models.tokenization import Chunk, EncodeReport, TokenVectors, chunks, first_positions, texts
from training.models.word_encoders import WordBackbone
from training.names import ModelName
from training.pooling import check_pooling
from training.progress import Progress, ShouldStop, progress_bar

log = logging.getLogger("sbert_lab.encoder")

CHUNK = 8_192  # sentences that are tokenised and sorted by length together
GPU_CHUNK = 2 * CHUNK  # batches are 64 times as large as on a CPU; the next chunk is tokenised meanwhile
_building = threading.Lock()  # several threads may ask for the runner first; one copies the weights


class EncodeOptions(TypedDict, total=False):
    """What `Encoder.encode` takes beside the sentences, and says there."""

    on_progress: Progress | None
    should_stop: ShouldStop | None
    report: EncodeReport | None
    device: Sequence[str] | None
    batch_size: int | None
    show_progress_bar: bool
    normalize_embeddings: bool | None
    prompt_name: str | None
    prompt: str | None
    deterministic: bool


class Encoder(EncoderModules):
    """A bi-encoder. ``Encoder.load`` opens one."""

    _runner: InferenceRunner[Sequence[int]] | None = None

    @classmethod
    def load(
        cls,
        name: ModelName | str,
        pooling: str | None = None,
        dtype: str = "auto",
        device: str = "auto",
        home: str | Path | None = None,
        seed: int = 0,
        dimension: int | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        vocabulary_of: Iterable[str] = (),
    ) -> Encoder:
        """Load by name: a short name, Hub id, folder, ``run:<id>``, ``endpoint:URL#model``, ``scratch:`` and a shape.

        Random weights are those of a transformer, ``scratch:<layers>x<dim>``, or of `training.models.word_encoders`. An
        endpoint is an OpenAI-compatible server, to which texts are sent (`training.models.endpoint`).

        Dimension, prompt, dtype and pooling can be part of the name (`training.names`):
        ``all-mpnet-base-v2?dim=256:cls``.

        Args:
            name: see above.
            pooling: one of `training.pooling.POOLINGS`, or several joined by +, such as mean+max; None takes
                the one that the folder names, else mean (of a decoder the last token).
            dtype: of inference: auto, float32, bfloat16 or int8. ``backbone`` stays float32.
            device: auto, cpu, cuda, cuda:1, mps.
            home: the home folder; None = $SBERT_HOME or the platform's.
            seed: of the random weights of ``scratch:``.
            dimension: keep only the first so many dimensions (Matryoshka); None = as many as the folder says.
            prompt: text put before every sentence; "" for none; None = as the folder says.
            prompt_name: the same by its name in the folder.
            vocabulary_of: sentences whose words ``scratch:bilstm`` and ``scratch:dan`` will know, besides frequent
                ones.

        Raises:
            InputError: the model cannot be found or opened, or the pooling, dimension or prompt does not fit it.
        """
        stated = ModelName.parse(name).with_pooling(pooling)
        check_pooling(stated.pooling)
        if stated.maxsim:
            raise InputError(f"{stated} scores pairs by late interaction; for sentence vectors load {stated.name}")
        torch_device = pick_device(device)
        torch_dtype = pick_dtype(stated.dtype or dtype, torch_device)
        backbone, tokenizer, head, model_format, source = open_modules(stated.name, home, seed, vocabulary_of)
        backbone.to(torch_device).eval()
        head.to(torch_device).eval()
        if torch_dtype == torch.int8:
            check_int8(stated.name, backbone)
        elif isinstance(backbone, WordBackbone | EndpointBackbone):
            torch_dtype = torch.float32
        encoder = cls(str(stated.weights), backbone, tokenizer, model_format, torch_dtype, source, head)
        if prompt is None and prompt_name is None:
            prompt, prompt_name = stated.prompt, stated.prompt_name
        encoder = encoder.with_pooling(stated.pooling).with_dimension(
            stated.dimension if dimension is None else dimension
        )
        return encoder.with_prompt(prompt, prompt_name)

    def with_runner(self, runner: InferenceRunner[Sequence[int]]) -> Encoder:
        """The same weights, computed by ``runner`` in ``encode`` and ``token_vectors``."""
        encoder = copy.copy(self)
        encoder._runner = runner
        return encoder

    def train(self) -> Self:
        """Dropout on, for training. Discards the copy that ``encode`` uses, as the weights are about to change."""
        self._runner = None
        return super().train()

    @overload
    def encode(
        self,
        sentences: str | Sequence[str],
        normalize: bool | None = True,
        *,
        convert_to_tensor: Literal[True],
        **options: Unpack[EncodeOptions],
    ) -> Tensor: ...
    @overload
    def encode(
        self,
        sentences: str | Sequence[str],
        normalize: bool | None = True,
        *,
        convert_to_tensor: Literal[False] = False,
        **options: Unpack[EncodeOptions],
    ) -> np.ndarray: ...
    def encode(
        self,
        sentences: str | Sequence[str],
        normalize: bool | None = True,
        on_progress: Progress | None = None,
        should_stop: ShouldStop | None = None,
        report: EncodeReport | None = None,
        device: Sequence[str] | None = None,
        *,
        batch_size: int | None = None,
        show_progress_bar: bool = False,
        convert_to_tensor: bool = False,
        normalize_embeddings: bool | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        deterministic: bool = False,
    ) -> np.ndarray | Tensor:
        """Sentences -> float32 (N, D), in the caller's order; one string -> (D,).

        Args:
            sentences: any text, also empty; truncated at ``max_length`` tokens, which is counted and logged.
            normalize: True scales to length 1 (cosine = dot product); False leaves out the last Normalize, if the
                model has one; None does what the model's folder says.
            on_progress: called with (done, all) after each batch.
            should_stop: asked before each batch; if it says yes, ``Stopped`` is raised.
            report: filled with counts.
            device: encode in several processes, one on each of these devices: ``["cuda:0", "cuda:1"]``,
                ``["cpu"] * 4`` (`training.models.processes`). A script needs ``if __name__ == "__main__":`` then.
            batch_size: sentences computed at a time, at most, to save memory; None = as many as is fast here.
            show_progress_bar: draw one, in a terminal or a notebook.
            convert_to_tensor: return a tensor on the encoder's device, not a NumPy array.
            normalize_embeddings: as in sentence-transformers, in place of ``normalize``: True scales to length 1,
                False does what the model's folder says.
            prompt_name: the prompt before each sentence of this call, by its name in the model's folder.
            prompt: the same as text; "" for none.
            deterministic: a sentence's vector is the same to the bit whatever sentences are encoded with it. It takes
                longer, most for few sentences. Otherwise rounding differs by batch: in bfloat16 the cosine of a vector
                with that of the same sentence in another batch was 0.99999 or more.

        Raises:
            InputError: a sentence is not text, a device cannot be used, there is no prompt of that name, or a process
                died.
            Stopped: ``should_stop`` said yes.
        """
        if normalize_embeddings is not None:
            normalize = normalize_embeddings or None
        encoder = self.with_prompt(prompt, prompt_name)
        chosen = [sentences] if isinstance(sentences, str) else sentences
        if batch_size is not None and device is None:
            encoder = encoder.with_runner(encoder.inference.with_batch_size(batch_size))
        if deterministic:
            if device is not None:
                raise InputError("deterministic vectors are computed in one process; leave device out")
            encoder = encoder.with_runner(encoder.inference.made_deterministic())
        with progress_bar(show_progress_bar, "Encoding", on_progress) as progress:
            if device is None:
                vectors = encoder._encode_all(chosen, normalize, progress, should_stop, report)
            else:
                vectors = encode_in_processes(
                    encoder, texts(chosen), device, normalize, progress, should_stop, report, batch_size
                )
        found = vectors[0] if isinstance(sentences, str) else vectors
        return torch.from_numpy(found).to(self.device) if convert_to_tensor else found

    def _encode_all(
        self,
        sentences: Sequence[str],
        normalize: bool | None,
        on_progress: Progress | None,
        should_stop: ShouldStop | None,
        report: EncodeReport | None,
    ) -> np.ndarray:
        """Each distinct sentence is encoded once."""
        sentences = texts(sentences)
        report, n = EncodeReport() if report is None else report, len(sentences)
        vectors = np.empty((n, self.dimension), dtype=np.float32)
        first = first_positions(sentences)
        is_first = first == np.arange(n)
        rows, repeats = np.flatnonzero(is_first), np.flatnonzero(~is_first)
        distinct = sentences if not len(repeats) else [sentences[row] for row in rows]
        progress = None if on_progress is None else lambda done, _: on_progress(n * done // len(rows), n)
        start, chunk = 0, CHUNK if self.device.type == "cpu" else GPU_CHUNK
        for part in self.encode_stream(distinct, chunk, normalize, progress, should_stop, report):
            vectors[rows[start : start + len(part)]] = part
            start += len(part)
        for some in np.split(repeats, range(CHUNK, len(repeats), CHUNK)):
            vectors[some] = vectors[first[some]]
        report.sentences += len(repeats)
        return vectors

    def encode_stream(
        self,
        sentences: Iterable[str],
        chunk: int = CHUNK,
        normalize: bool | None = True,
        on_progress: Progress | None = None,
        should_stop: ShouldStop | None = None,
        report: EncodeReport | None = None,
    ) -> Iterator[np.ndarray]:
        """Like ``encode`` for any iterable: yields float32 (n, D) for ``chunk`` sentences at a time.

        Memory stays flat however many there are. A sentence that occurs twice in a chunk is encoded once. While a GPU
        encodes a chunk, the next one is read and tokenised.
        """
        report = EncodeReport() if report is None else report
        started, before, done = time.perf_counter(), report.truncated, 0
        tokenize_all = map if self.device.type == "cpu" else parallel.ahead
        for part in tokenize_all(self._text_tokenizer.chunk, chunks(sentences, chunk)):
            progress = None if on_progress is None else lambda n, before=done: on_progress(before + n, None)
            yield self._encode_chunk(part, normalize, progress, should_stop, report)
            done += len(part.inverse)
            report.sentences += len(part.inverse)
            report.seconds = time.perf_counter() - started
        self._warn_of_truncation(report.truncated - before)

    def encode_ids(
        self, ids: Sequence[Sequence[int]], normalize: bool | None = True, should_stop: ShouldStop | None = None
    ) -> np.ndarray:
        """Token ids, as `tokenize` gives them -> float32 (N, D). They are computed as they are, without the prompt.

        Raises:
            Stopped: ``should_stop`` said yes before a batch.
            InputError: a row is empty, is longer than ``max_length``, or has an id that is not in the vocabulary.
        """
        size = self.vocabulary_size
        for number, row in enumerate(ids, 1):
            if not 1 <= len(row) <= self.max_length:
                raise InputError(f"input {number} has {len(row):,} tokens; {self.name} reads 1 to {self.max_length:,}")
            if unknown := [each for each in row if not 0 <= each < size]:
                raise InputError(
                    f"token id {unknown[0]} of input {number} is not in the vocabulary of {self.name}, which has the "
                    f"ids 0 to {size - 1:,}; ids must come from its own tokenizer"
                )
        return self.inference.collect(ids, self._to_vectors(normalize), (self.dimension,), should_stop)

    def encode_query(self, sentences: str | Sequence[str], normalize: bool | None = True, **options: Any) -> np.ndarray:
        """Like ``encode``, whose options it takes, with the prompt that the model's folder has for queries."""
        return self.for_role("query").encode(sentences, normalize, **options)

    def encode_document(
        self, sentences: str | Sequence[str], normalize: bool | None = True, **options: Any
    ) -> np.ndarray:
        """Like ``encode``, whose options it takes, with the prompt that the model's folder has for documents."""
        return self.for_role("document").encode(sentences, normalize, **options)

    def token_vectors(self, sentences: Sequence[str]) -> list[TokenVectors]:
        """The output of the transformer for each token of each sentence, before pooling."""
        encodings = self._text_tokenizer.encodings(sentences)
        ids = [encoding.ids or [self._text_tokenizer.pad_id] for encoding in encodings]
        hidden: list[np.ndarray] = [np.empty(0)] * len(ids)
        if self._is_static:
            table = self.weights.get_input_embeddings().weight.detach()  # type: ignore[operator]
            hidden = [table[encoding.ids].cpu().numpy() for encoding in encodings]
        else:
            for rows, states in self.inference.map(ids, lambda states, _: states.float().cpu()):
                for i, state in zip(rows, states, strict=True):
                    hidden[i] = state[: len(encodings[i].ids)].numpy()
        return [
            TokenVectors(encoding.tokens, encoding.word_ids, encoding.offsets, states, self.prompt, self.skipped_tokens)
            for encoding, states in zip(encodings, hidden, strict=True)
        ]

    @property
    def inference(self) -> InferenceRunner[Sequence[int]]:
        """The copy of the weights that ``encode`` computes with, made when first needed and after each training."""
        if self.weights.training:
            raise RuntimeError("the encoder is in training mode; call eval() before it encodes")
        with _building:
            if self._runner is None:
                if isinstance(self.weights, EndpointBackbone):
                    self._runner = EndpointRunner(self.weights)
                elif self._is_static:
                    self._runner = StaticRunner(self.weights.get_input_embeddings(), self.pooling)  # type: ignore[operator]
                else:
                    calibration = self.tokenize(plain_sentences()) if self.dtype == torch.int8 else ()
                    self._runner = build_runner(self.weights, self.dtype, self._text_tokenizer.pad_id, calibration)
            return self._runner

    @property
    def _is_static(self) -> bool:
        """Whether a sentence vector is the sum of rows of a table, scaled by their number."""
        return isinstance(self.weights, WordBackbone) and self.weights.is_static and self.pooling in STATIC_POOLINGS

    def _with_settings(self, stated: dict[str, Any] | None = None, /, **changes: Any) -> Self:
        encoder = super()._with_settings(stated, **changes)
        if "pooling" in changes and self._is_static:  # its runner can do nothing else
            encoder._runner = None
        return encoder

    def _warn_of_truncation(self, cut: int) -> None:
        if cut:
            what = "sentence was" if cut == 1 else "sentences were"
            log.warning("%d %s cut at %d tokens", cut, what, self.max_length)

    def _encode_chunk(
        self,
        chunk: Chunk,
        normalize: bool | None,
        on_progress: Callable[[int], None] | None,
        should_stop: ShouldStop | None,
        report: EncodeReport,
    ) -> np.ndarray:
        ids, count = chunk.ids, len(chunk.inverse)
        report.truncated += len(chunk.cut)
        report.add_cut(chunk.cut)
        if not self._advised and self.prompt_advice:
            self._advised = True
            log.warning(self.prompt_advice)
        progress = None if on_progress is None else lambda done: on_progress(round(count * done / len(ids)))
        to_vectors = self._to_vectors(normalize)
        vectors = self.inference.collect(ids, to_vectors, (self.dimension,), should_stop, progress)
        report.unique += len(ids)
        report.tokens += sum(token_counts(ids))
        return vectors[chunk.inverse] if len(ids) < count else vectors
