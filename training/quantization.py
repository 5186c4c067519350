"""Quantizes vectors to bfloat16, int8 or ubinary codes, and restores values from codes.

    codes = quantize(vectors, "int8", ranges(vectors))  int8 (N, D), a quarter of float32
    restore(codes, "int8", ranges(vectors))             float32 (N, D): the middle of each step

int8 and ubinary have the same codes as in sentence-transformers' ``quantize_embeddings`` and in
FAISS (``QT_8bit``, ``IndexBinaryFlat``). FAISS restores int8 as it is done here. It compares binary
vectors by the number of equal bits (the Hamming distance), which orders pairs in the same way as
the cosine of vectors of 1 and −1.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from training.errors import InputError

STEPS = 255

Ranges = np.ndarray  # (2, D): the smallest and the largest value of each dimension


class Precision(NamedTuple):
    """A way to store numbers, with its label."""

    label: str
    # The bits of a dimension.
    bits: int
    quantize: Callable[[np.ndarray, Ranges], np.ndarray]
    restore: Callable[[np.ndarray, Ranges], np.ndarray]


def ranges(calibration: np.ndarray) -> Ranges:
    """Computes the least and the largest value of each dimension: (N, D) -> (2, D). InputError if N is below 2."""
    if len(calibration) < 2:
        raise InputError(f"int8 is calibrated on several vectors, not on {len(calibration)}")
    return np.stack([calibration.min(axis=0), calibration.max(axis=0)])


def quantize(vectors: np.ndarray, precision: str, calibration: Ranges) -> np.ndarray:
    """Computes the codes of vectors: (N, D) float32, uint16 (bfloat16) or int8; for ubinary (N, ⌈D/8⌉) uint8.

    Args:
        vectors: float32 (N, D).
        precision: one of `PRECISIONS`.
        calibration: the `ranges` for int8. Vectors can be compared only if they are quantized with
            the same ranges.
    """
    return PRECISIONS[precision].quantize(vectors, calibration)


def restore(codes: np.ndarray, precision: str, calibration: Ranges) -> np.ndarray:
    """Restores values, float32 (N, D), from the codes of `quantize`. Binary codes become 1 and −1."""
    return PRECISIONS[precision].restore(codes, calibration)


def bytes_per_vector(dimension: int, precision: str) -> int:
    return math.ceil(dimension * PRECISIONS[precision].bits / 8)


def _to_bfloat16(vectors: np.ndarray, _: Ranges) -> np.ndarray:
    """Takes the upper half of each finite float32, rounded to the nearest even as in hardware."""
    bits = np.ascontiguousarray(vectors, dtype=np.float32).view(np.uint32)
    # 0x7FFF is just below half of the last bit that is kept. With that bit added, exactly half
    # rounds up if the bit is 1.
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def _to_int8(vectors: np.ndarray, calibration: Ranges) -> np.ndarray:
    start = calibration[0]
    step = (calibration[1] - calibration[0]) / STEPS
    # A dimension with only one value has steps of size 0.
    steps = np.floor((vectors - start) / np.where(step == 0, 1, step))
    return (np.clip(steps, 0, STEPS) - 128).astype(np.int8)


def _from_int8(codes: np.ndarray, calibration: Ranges) -> np.ndarray:
    start = calibration[0]
    step = (calibration[1] - calibration[0]) / STEPS
    # The steps are numbered from 0, and their codes from -128. The middle is half a step further.
    middles = codes.astype(np.float32) + np.float32(128.5)
    return (start + middles * step).astype(np.float32)


def _from_bits(codes: np.ndarray, calibration: Ranges) -> np.ndarray:
    # The ranges tell the dimension, as the last byte may have more bits.
    return 2 * np.unpackbits(codes, axis=-1, count=calibration.shape[1]).astype(np.float32) - 1


PRECISIONS = {
    "float32": Precision(
        "float32", 32, lambda vectors, _: vectors.astype(np.float32), lambda codes, _: codes
    ),
    "bfloat16": Precision(
        "bf16", 16, _to_bfloat16, lambda codes, _: (codes.astype(np.uint32) << 16).view(np.float32)
    ),
    "int8": Precision("int8", 8, _to_int8, _from_int8),
    "ubinary": Precision(
        "binary", 1, lambda vectors, _: np.packbits(vectors > 0, axis=-1), _from_bits
    ),
}
