"""A WordPiece vocabulary that is trained on sentences, for a transformer of random weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

DEFAULT_SIZE = 8_192
MOST_LETTERS = 1_000
SPECIAL = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}


def train_vocabulary(sentences: Iterable[str], size: int | None = None) -> Tokenizer:
    """A tokenizer as BERT's, lower-cased, with at most ``size`` word pieces (8,192) that are made of the sentences.

    Source: Devlin et al. 2019, section 3; the pieces are chosen as in byte pair encoding (Sennrich et al. 2016).
    """
    sentences = list(sentences)
    normalizer = normalizers.BertNormalizer(lowercase=True)
    counts = Counter(chain.from_iterable(map(normalizer.normalize_str, sentences)))
    letters = sorted(letter for letter, _ in counts.most_common(MOST_LETTERS) if not letter.isspace())
    # The trainer numbers letters inside of words as it meets them, in the order of a hash table, and pairs that are
    # equally frequent by these numbers. Letters that have their numbers beforehand make the result the same each time.
    inside = [f"##{letter}" for letter in letters]
    trainer = trainers.WordPieceTrainer(
        vocab_size=size or DEFAULT_SIZE,
        special_tokens=[*SPECIAL.values(), *inside],
        initial_alphabet=letters,
        limit_alphabet=len(letters),
        show_progress=False,
    )
    learner: Any = Tokenizer(models.WordPiece(unk_token=SPECIAL["unk_token"]))
    learner.normalizer, learner.pre_tokenizer = normalizer, pre_tokenizers.BertPreTokenizer()
    learner.train_from_iterator(sentences, trainer)
    tokenizer: Any = Tokenizer(models.WordPiece(learner.get_vocab(), unk_token=SPECIAL["unk_token"]))
    tokenizer.normalizer, tokenizer.pre_tokenizer = learner.normalizer, learner.pre_tokenizer
    sep, cls = ((SPECIAL[name], tokenizer.token_to_id(SPECIAL[name])) for name in ("sep_token", "cls_token"))
    tokenizer.post_processor = processors.BertProcessing(sep, cls)
    return tokenizer


def as_bert_tokenizer(tokenizer: Tokenizer, max_length: int) -> PreTrainedTokenizerFast:
    """The same as a tokenizer of transformers, for texts of at most ``max_length`` tokens."""
    from transformers import BertTokenizerFast

    return BertTokenizerFast(tokenizer_object=tokenizer, model_max_length=max_length, **SPECIAL)
