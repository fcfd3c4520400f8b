"""Compares tensors that a checkpoint holds twice: both copies must have the same numbers."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from twostroke.types.errors import UnsupportedModel
from twostroke.weights.checkpoint import Checkpoint

BLOCK_BYTES = 16 << 20


def same_numbers(checkpoint: Checkpoint, first_name: str, second_name: str) -> bool:
    """Returns whether two tensors have the same shape, type and bits."""
    one, other = checkpoint.info(first_name), checkpoint.info(second_name)
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    rows = max(1, BLOCK_BYTES * max(1, one.rows) // max(1, one.num_bytes))
    for first in range(0, one.rows, rows):
        count = min(rows, one.rows - first)
        a, b = (checkpoint.read_rows(name, first, count).view(np.uint8) for name in (first_name, second_name))
        if not np.array_equal(a, b):
            return False
    return True


def require_same(checkpoint: Checkpoint, copies: Iterable[tuple[str, str]], architecture: str) -> None:
    """Compares the tensors that are stored twice. copies: see CommonFacts. Raises UnsupportedModel that names a pair
    that differs."""
    for begin, usual in copies:
        for name in sorted(name for name in checkpoint.names if name.startswith(begin)):
            original = usual + name.removeprefix(begin)
            if original in checkpoint.names and not same_numbers(checkpoint, name, original):
                raise UnsupportedModel(
                    f"{name} differs from {original}: a {architecture} with this config.json has one block for both.",
                    why="One of them would not be used, and the answers would not be those of the model.",
                    fix="If each layer has a block of its own, config.json must say tie_word_embeddings: false.",
                )
