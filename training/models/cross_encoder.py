"""CrossEncoder: two sentences pass through the transformer together and get one score (section 1 of the paper).

It is more accurate than a bi-encoder, because the words of each sentence attend to the words of the
other. It is far slower for many sentences, because each pair needs its own forward pass: 10,000
sentences make 49,995,000 pairs.

Names:
- ``minilm-stsb``, the default, is an adapter (a few MB) of the default encoder's weights, which
  ships with the package;
- ``mpnet-stsb``, more accurate, is an adapter of all-mpnet-base-v2, which is fetched on demand;
- any Hub id or folder of a sequence-classification model with one output, such as
  ``cross-encoder/stsb-roberta-base``, with the same scores as sentence-transformers' CrossEncoder;
- a run that trained a cross-encoder.

An adapter's folder holds LoRA factors as peft writes them, head.safetensors (see
`joint_pair_model`) and card.json: the data that it was trained on and its figures, which are shown
beside its score. The folder of a run holds the whole transformer.
"""

import copy
import logging
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from training.atomic import replace_folder
from training.catalogue import plain_sentences
from training.device import pick_device, pick_dtype, to_host
from training.errors import InputError, first_line
from training.inference.runner import InferenceRunner, check_int8
from training.models.encoder import Encoder
from training.models.files import check_replaceable, read_object, read_tensors
from training.models.folder import JOINT_HEAD, ModelFolder
from training.models.joint_pair_model import (
    JointPairModel,
    Scorer,
    SequenceClassifier,
    build_pair_runner,
)
from training.models.loading import (
    CLASSIFIER,
    max_input_length,
    merge_adapter,
    open_transformer,
    own_form,
)
from training.models.model import Pair, PairModel
from training.models.modules import activation_named
from training.models.pairs import PROBES, PairRow, PairTokenizer
from training.models.texts import Chunk, OnRows, Rows
from training.models.tokenization import TokenVectors
from training.names import ModelName
from training.progress import ShouldStop

log = logging.getLogger("sbert_lab.cross_encoder")

# The files that `save` copies.
MODEL_FILES = ("*.json", "*.txt", "*.model", "*.safetensors", "**/*.jinja")
# The name of the activation in sentence-transformers' configs.
SIGMOID = "torch.nn.modules.activation.Sigmoid"


class PairParts(NamedTuple):
    """The parts of a cross-encoder."""

    scorer: Scorer
    tokenizer: PairTokenizer
    activation: Callable[[Tensor], Tensor]  # logits (B,) -> scores (B,)
    source: str  # where the parts came from, in words


class CrossEncoder(PairModel):
    """A cross-encoder. ``CrossEncoder(name)`` opens one, with the arguments of ``CrossEncoder.load``.

    Example::

        from sbert_lab import CrossEncoder

        model = CrossEncoder("minilm-stsb")
        documents = ["It snows.", "A man eats food."]
        for result in model.rank("A man is eating.", documents, top_k=1):
            print(documents[result["corpus_id"]], result["score"])
    """

    def __init__(
        self,
        name: ModelName | Path | str,
        parts: PairParts | None = None,
        inference: InferenceRunner[PairRow] | None = None,
        folder: Path = Path(),
        dtype: Any = "auto",
        card: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """Opens a model by name, or builds one from ``parts``. InputError if that fails.

        ``inference`` runs the scorer of ``parts``, and ``dtype`` is the precision that it computes
        in. ``folder`` has the model's files, which `save` copies. ``card`` is the card.json of an
        adapter.
        """
        if parts is None or inference is None:
            # This object takes over the attributes of the one that `load` makes.
            vars(self).update(vars(self.load(name, dtype=dtype, **options)))
            return
        self.name = str(name)
        self.scorer, self.tokenizer, self.activation, self.source = parts
        # The token that explanations put in place of a word.
        self.mask = self.tokenizer.mask
        self.inference = inference
        self.folder = folder
        self.dtype = dtype
        self.card = card

    @classmethod
    def load(
        cls,
        name: ModelName | Path | str,
        dtype: str = "auto",
        device: str = "auto",
        home: str | Path | None = None,
        folder: ModelFolder | None = None,
    ) -> Self:
        """Loads a model by name: ``minilm-stsb``, ``mpnet-stsb``, a Hub id, or a folder.

        Args:
            name: the name, which may state the dtype and a prompt: ``minilm-stsb?dtype=int8``.
            dtype: auto, float32, bfloat16 or int8.
            device: auto, cpu, cuda, cuda:1 or mps.
            folder: the model's folder, if it has been read already.

        Raises:
            InputError: the model cannot be found, has no safetensors weights, or does not return one
                score.
        """
        parsed = ModelName.parse(name)
        cls.check_settings(parsed)
        torch_device = pick_device(device)
        torch_dtype = pick_dtype(parsed.dtype or dtype, torch_device)
        folder = folder or ModelFolder.of(parsed.name, home)
        # A folder with a joint head holds a `JointPairModel`, any other a sequence classifier.
        if folder.has_joint_head:
            parts = _open_joint(folder, home)
        else:
            parts = _open_scorer(parsed.name, folder)
        scorer = parts.scorer
        tokenizer = parts.tokenizer
        scorer.requires_grad_(False).eval().to(torch_device)
        # For int8, the weights stay float32 here, as the runner rounds its copy, and the samples are
        # pairs to measure the ranges of the inputs with. Otherwise the samples show whether the
        # scorer reads padding.
        if torch_dtype == torch.int8:
            check_int8(parsed.name, scorer.transformer.base_model)
            samples = tokenizer(list(pairwise(plain_sentences())))
        else:
            scorer.transformer.to(torch_dtype)
            samples = tokenizer(PROBES)
        runner = build_pair_runner(scorer, torch_dtype, tokenizer.pad_id, samples)
        # Only the adapter of a joint model has a card.
        card = None
        if folder.has_joint_head and folder.adapter:
            card = read_object(folder.path / "card.json")
        # The name of the weights alone; `with_settings` adds the prompt to it.
        model = cls(parsed.weights, parts, runner, folder.path, torch_dtype, card)
        return model.with_settings(parsed)

    def with_settings(self, name: ModelName) -> Self:
        """Returns the same weights with the prompt that the name states. InputError if prompts are not supported."""
        self.check_settings(name)
        if not name.states_prompt:
            return self
        # Only a joint model reads the two texts separately, and it has no prompts.
        if self.tokenizer.separately:
            raise InputError(f"{name.name} reads no prompt; leave it out")
        model = copy.copy(self)
        model.tokenizer = self.tokenizer.with_prompt(name.prompt, name.prompt_name, self.name)
        old_name = ModelName.parse(self.name)
        model.name = str(replace(old_name, prompt=name.prompt, prompt_name=name.prompt_name))
        return model

    def __repr__(self) -> str:
        precision = str(self.dtype).removeprefix("torch.")
        return f"CrossEncoder({self.name!r}, {self.max_length} tokens, {precision}, {self.device})"

    @property
    def max_length(self) -> int:
        """The longest input in tokens: one sentence for a `JointPairModel`, both together for other models."""
        return self.tokenizer.max_length

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.scorer.parameters()).device

    def with_runner(self, inference: InferenceRunner[PairRow]) -> Self:
        """Returns the same weights, computed by another runner."""
        model = copy.copy(self)
        model.inference = inference
        return model

    def tokens(self, text: str) -> TokenVectors:
        return self.tokenizer.tokens(text)

    def read_tokens(self, sentences: Sequence[Any]) -> tuple[int, list[int]]:
        # The inputs of a cross-encoder are pairs.
        rows = self.tokenizer(sentences)
        cut = [position for position, row in enumerate(rows) if row.truncated]
        return sum(map(len, rows)), cut

    def is_unknown(self, sentences: Sequence[str]) -> list[bool]:
        return self.tokenizer.is_unknown(sentences)

    def save(self, folder: str | Path) -> None:
        """Writes a folder that ``load`` can open and, for a sequence classifier, sentence-transformers too.

        An existing model is replaced, but no other files.
        """
        # The weights of an opened model do not change, so its files are copied.
        with replace_folder(check_replaceable(folder)) as fresh:
            for file in chain.from_iterable(self.folder.glob(pattern) for pattern in MODEL_FILES):
                target = fresh / file.relative_to(self.folder)
                target.parent.mkdir(exist_ok=True)
                shutil.copyfile(file, target)

    def _chunk(self, pairs: list[Pair], inverse: list[int]) -> Chunk:
        rows = self.tokenizer(pairs)
        cut = [pair for pair, row in zip(pairs, rows, strict=True) if row.truncated]
        return Chunk(rows, inverse, cut, sum(map(len, rows)))

    def _compute_scores(
        self, rows: Rows, batch_size: int | None, should_stop: ShouldStop | None, on_rows: OnRows
    ) -> np.ndarray:
        runner = self.inference
        if batch_size is not None:
            runner = runner.with_batch_size(batch_size)

        # The runner passes logits (B,) in place of hidden states, and no mask. A score is a single
        # number, so ``shape`` is empty.
        def to_scores(logits: Tensor, _: Tensor | None) -> np.ndarray:
            return to_host(self.activation(logits))

        return runner.collect(
            rows, to_scores, shape=(), should_stop=should_stop, on_progress=on_rows
        )


def _open_joint(folder: ModelFolder, home: str | Path | None) -> PairParts:
    """Opens a `JointPairModel`: an adapter over the weights of its base, or the whole model of a run."""
    path = folder.path
    if folder.adapter:
        base = Encoder.load(folder.base, dtype="float32", device="cpu", home=home)
        # The names of the merged weights are not needed.
        backbone, _ = merge_adapter(base.backbone, path)
        tokenizer = base.tokenizer
        longest = base.max_length
        source = f"adapter over {base.name} ({base.source})"
    else:
        backbone, tokenizer = open_transformer(folder)
        longest = max_input_length(tokenizer, backbone)
        source = folder.source
    scorer = JointPairModel(backbone)
    scorer.load_head_tensors(read_tensors(path, JOINT_HEAD))
    # A joint model takes the token ids of each sentence, not one sequence of both.
    pair_tokenizer = PairTokenizer(tokenizer, longest, separately=True)
    return PairParts(scorer, pair_tokenizer, torch.sigmoid, source)


def _open_scorer(name: str, folder: ModelFolder) -> PairParts:
    """Opens a sequence classifier of sentence-transformers."""
    # Without a class in config.json, `open_transformer` finds out whether the folder has the weights
    # of a head.
    if not folder.is_cross_encoder and folder.config.get("architectures"):
        raise InputError(
            f"{name} is not a cross-encoder; choose one, such as minilm-stsb, or train one from it"
        )
    # The settings of the folder. InputError if only sentence-transformers can open it.
    form = own_form(name, folder)
    model, tokenizer = open_transformer(folder, CLASSIFIER)
    longest = max_input_length(tokenizer, model.base_model, form.max_length)
    if model.config.num_labels != 1:
        raise InputError(
            f"{name} returns {model.config.num_labels} numbers for a pair; a cross-encoder for similarity returns one"
        )
    if model.config.pad_token_id is None:
        # transformers computes the score of a decoder from the last token that is not padding, and
        # refuses a batch if the config does not name the padding token. No token has the number -1,
        # so the score comes from the last token of a row.
        model.config.pad_token_id = -1
    has_token_types = "token_type_ids" in tokenizer.model_input_names
    scorer = SequenceClassifier(model, has_token_types)
    pair_tokenizer = PairTokenizer(tokenizer, longest, form=form)
    return PairParts(scorer, pair_tokenizer, _activation_of(name, folder), folder.source)


def _activation_of(name: str, folder: ModelFolder) -> Callable[[Tensor], Tensor]:
    """Returns the function from logits (B,) to scores (B,): the activation that the folder names, else a sigmoid.

    sentence-transformers writes it to config_sentence_transformers.json since version 5.4. Before,
    it wrote it to config.json.
    """
    # Before version 5.4, config.json had an object "sentence_transformers" with the activation. Still
    # older folders have the activation directly in config.json, under another key.
    older: Any = folder.config.get("sentence_transformers")
    if isinstance(older, dict):
        older = older.get("activation_fn")
    oldest = folder.config.get("sbert_ce_default_activation_function")
    activation = str(folder.general.get("activation_fn") or older or oldest or SIGMOID)
    try:
        function = activation_named(activation)
        # It is tried once, as an activation may refuse the shape, or change it.
        keeps_shape = function(torch.zeros(1, 1)).shape == (1, 1)
    except (InputError, RuntimeError) as error:
        raise InputError(
            f"{name} ends in {activation}, which is not supported: {first_line(error)}"
        ) from error
    if not keeps_shape:
        raise InputError(
            f"{name} ends in {activation}, which is not supported; choose a model that ends in a sigmoid"
        )
    # Some activations, such as Softmax, need (B, 1).
    return lambda logits: function(logits[:, None])[:, 0]
