"""WordRows: token ids of texts word by word, for tables of vectors, which encode faster than a tokenizer tokenizes."""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from itertools import count

import numpy as np
from tokenizers import Tokenizer, normalizers, pre_tokenizers

from training.inference.batching import TokenRows
from training.models.folder import ModelFormat
from training.models.texts import replace_surrogates

MOST_WORDS = 500_000  # that `WordRows` remembers


class WordRows:
    """Texts to the ids of their words, each of which is tokenised once: for tokenizers that never join two words.

    Those of BERT's kind split text at spaces before they do anything else. Arrow splits and numbers the words of
    thousands of texts in two calls, so that a text costs a tenth of what the tokenizer takes. Thread-safe.
    """

    _numbers: dict[str, int]  # of the words so far
    _first: np.ndarray  # int64: where the token ids of each word begin in ``_ids``
    _length: np.ndarray  # int64: how many they are
    _ids: np.ndarray  # int64: the token ids of all words

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._rust = tokenizer
        self._lock = threading.Lock()
        self._forget()

    @classmethod
    def of(cls, tokenizer: Tokenizer, model_format: ModelFormat) -> WordRows | None:
        """For a tokenizer without special tokens; None if its words cannot be tokenised by themselves."""
        is_bert = isinstance(tokenizer.normalizer, normalizers.BertNormalizer) and isinstance(
            tokenizer.pre_tokenizer, pre_tokenizers.BertPreTokenizer
        )
        changed = model_format.max_length or model_format.expansion or model_format.lowercase
        added = "".join(token.content for token in tokenizer.get_added_tokens_decoder().values())
        if not is_bert or changed or tokenizer.truncation or " " in added:
            return None
        copied = copy.deepcopy(tokenizer)
        copied.no_padding()
        copied.no_truncation()
        return cls(copied)

    def rows(self, sentences: Sequence[str]) -> TokenRows:
        """The token ids of each text; of an empty one none."""
        import pyarrow as pa
        import pyarrow.compute as pc

        split = pc.split_pattern(pa.array(list(map(replace_surrogates, sentences)), pa.large_string()), " ")
        words = split.flatten().dictionary_encode()
        with self._lock:
            if len(self._numbers) > MOST_WORDS:
                self._forget()
            first, length = self._find(words.dictionary.to_pylist())
            flat = self._ids
        numbers = words.indices.to_numpy()
        first, length = first[numbers], length[numbers]
        ends = length.cumsum()
        ids = flat[np.repeat(first - ends + length, length) + np.arange(ends[-1] if len(ends) else 0)]
        return TokenRows(ids, np.diff(np.concatenate([[0], ends])[split.offsets.to_numpy()]))

    def _find(self, words: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Where the ids of each word begin in ``_ids``, and how many they are: int64 (W,) each."""
        new = [word for word in words if word not in self._numbers]
        if new:
            encodings = self._rust.encode_batch_fast(new, add_special_tokens=False)
            self._numbers.update(zip(new, count(len(self._numbers)), strict=False))
            rows = TokenRows.of([encoding.ids for encoding in encodings])
            self._first = np.concatenate([self._first, rows.starts + len(self._ids)])
            self._length = np.concatenate([self._length, rows.lengths])
            self._ids = np.concatenate([self._ids, rows.flat])
        numbers = np.fromiter(map(self._numbers.__getitem__, words), dtype=np.int64, count=len(words))
        return self._first[numbers], self._length[numbers]

    def _forget(self) -> None:
        self._numbers = {}
        self._first = self._length = self._ids = np.empty(0, dtype=np.int64)
