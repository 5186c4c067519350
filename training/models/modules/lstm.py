"""LSTM: token vectors to token vectors, read forwards and, if bidirectional, also backwards (as in InferSent).

On a GPU cuDNN reads packed sequences. On a CPU PyTorch has a fused kernel (oneDNN's) for sequences that are not packed,
and computes packed ones step by step, in twice the time. There each direction is read by itself: padding at the end of
a row changes nothing before it, and for the other direction the real tokens of each row are turned round.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from training.errors import InputError
from training.models.files import load_weights, read_object, write_json, write_tensors
from training.models.folder_checks import check_module_sizes

CONFIG = "lstm_config.json"


class LSTM(nn.Module):
    """(B, T, D) -> (B, T, H), or (B, T, 2H) if bidirectional. Padding has no effect on real tokens."""

    def __init__(
        self,
        embedding_dimension: int,
        hidden_dim: int,
        num_layers: int = 1,
        dropout: float = 0.0,
        bidirectional: bool = True,
    ) -> None:
        super().__init__()
        self.settings = {
            "embedding_dimension": embedding_dimension,
            "hidden_dim": hidden_dim,
            "num_layers": num_layers,
            "dropout": dropout,
            "bidirectional": bidirectional,
        }
        self.encoder = nn.LSTM(
            embedding_dimension, hidden_dim, num_layers, batch_first=True, dropout=dropout, bidirectional=bidirectional
        )

    @property
    def input_dimension(self) -> int:
        """D of the token vectors that it takes."""
        return self.encoder.input_size

    @property
    def dimension(self) -> int:
        """D of the token vectors that it returns."""
        return self.encoder.hidden_size * (2 if self.encoder.bidirectional else 1)

    def forward(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        """``mask`` (B, T), not 0 for real tokens, which come first in each row; None = all are real."""
        if mask is None:
            return self.encoder(hidden)[0]
        lengths = mask.long().sum(dim=1).clamp(min=1)
        if hidden.device.type == "cpu" and not (self.training and self.encoder.dropout):
            return self._by_direction(hidden, lengths)
        lengths = lengths.cpu()
        packed = pack_padded_sequence(hidden, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.encoder(packed)[0], batch_first=True, total_length=hidden.shape[1])[0]

    def _by_direction(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        """``forward`` without packing. ``lengths`` (B,): real tokens of each row, which come first."""
        position = torch.arange(hidden.shape[1])
        order = torch.where(position < lengths[:, None], lengths[:, None] - 1 - position, position)[:, :, None]
        for layer in range(self.encoder.num_layers):
            parts = [self._read_forwards(hidden, f"l{layer}")]
            if self.encoder.bidirectional:
                turned = hidden.gather(1, order.expand_as(hidden))
                backwards = self._read_forwards(turned, f"l{layer}_reverse")
                parts.append(backwards.gather(1, order.expand_as(backwards)))
            hidden = torch.cat(parts, dim=2)
        return hidden

    def _read_forwards(self, hidden: Tensor, suffix: str) -> Tensor:
        """One layer in one direction, by the weights whose names end so: (B, T, D) -> (B, T, H)."""
        encoder = self.encoder
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        weights = [getattr(encoder, f"{name}_{suffix}") for name in names]
        start = hidden.new_zeros(1, len(hidden), encoder.hidden_size)
        states, _, _ = torch.lstm(hidden, (start, start), weights, True, 1, 0.0, encoder.training, False, True)
        return states

    @classmethod
    def read(cls, folder: Path) -> LSTM:
        """Open the module in ``folder``. InputError if a file is missing or damaged."""
        config = read_object(folder / CONFIG)
        config.setdefault("embedding_dimension", config.pop("word_embedding_dimension", None))
        known = ("embedding_dimension", "hidden_dim", "num_layers", "dropout", "bidirectional")
        settings: dict[str, Any] = {name: config[name] for name in known if name in config}
        check_module_sizes(folder, settings)
        try:
            module = cls(**settings)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"{folder / CONFIG} cannot be used: {str(error).splitlines()[0]}") from error
        load_weights(module, folder)
        return module

    def write(self, folder: Path) -> None:
        """Write lstm_config.json and model.safetensors."""
        write_json(folder / CONFIG, self.settings)
        write_tensors(folder, self.state_dict())

    @torch.no_grad()
    def reset(self, seed: int) -> None:
        """Fresh random weights, as torch.nn.LSTM draws them."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.encoder.reset_parameters()
