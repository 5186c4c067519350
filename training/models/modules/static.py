"""StaticEmbedding: a table of token vectors that are averaged, without a network. A hundred times as fast.

Folders of sentence-transformers and of model2vec open. The tokenizer is a tokenizers.Tokenizer; special tokens are not
added, and nothing is truncated.
"""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from training.errors import InputError
from training.models.files import read_tensors, write_tensors

TOKENIZER, TABLE = "tokenizer.json", "embedding.weight"


class StaticEmbedding(nn.Module):
    """Tokens to vectors: (B, T) int64 -> (B, T, D) float32.

    The table has one row more than the vocabulary: zero, for a text without tokens.
    """

    def __init__(self, tokenizer: Tokenizer, vectors: Tensor) -> None:
        """``vectors``: (V, D), of any floating dtype."""
        super().__init__()
        self.tokenizer = tokenizer
        zero = torch.zeros(1, vectors.shape[1])
        self.table = nn.Embedding.from_pretrained(torch.cat([vectors.float(), zero]), freeze=False)

    @property
    def empty_id(self) -> int:
        """The row that stands for a text without tokens."""
        return self.table.num_embeddings - 1

    @property
    def vectors(self) -> Tensor:
        """(V, D) float32, without the row for texts without tokens."""
        return self.table.weight.detach()[:-1]

    @classmethod
    def read(cls, folder: Path) -> StaticEmbedding:
        """Open the module in ``folder``. InputError if a file is missing or damaged."""
        file = folder / TOKENIZER
        if not file.is_file():
            raise InputError(f"{file} is missing; fetch the model again")
        try:
            tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:
            raise InputError(f"{file} is no tokenizer: {str(error).splitlines()[0]}") from error
        vectors = _vectors_of(read_tensors(folder), folder)
        if len(vectors) < tokenizer.get_vocab_size():
            raise InputError(
                f"{folder} has {len(vectors):,} vectors for {tokenizer.get_vocab_size():,} tokens; fetch it again"
            )
        return cls(tokenizer, vectors)

    def write(self, folder: Path) -> None:
        """Write model.safetensors and tokenizer.json."""
        write_tensors(folder, {TABLE: self.vectors})
        self.tokenizer.save(str(folder / TOKENIZER))

    def forward(self, ids: Tensor) -> Tensor:
        return self.table(ids)


def _vectors_of(tensors: dict[str, Tensor], folder: Path) -> Tensor:
    """The table (V, D). model2vec stores it as embeddings, optionally shared by tokens (mapping), and weights."""
    if TABLE in tensors:
        return tensors[TABLE]
    if "embeddings" not in tensors:
        raise InputError(f"the weights in {folder} hold no table of embeddings; fetch the model again")
    vectors = tensors["embeddings"].float()
    if "mapping" in tensors:
        vectors = vectors[tensors["mapping"].long()]
    return vectors * tensors["weights"].float()[:, None] if "weights" in tensors else vectors
