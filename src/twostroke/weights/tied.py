"""Whether a checkpoint has a head of its own beside its embedding.

Where tie_word_embeddings is true and the checkpoint holds an lm_head.weight that differs from the embedding, the file
counts, as in transformers: the head is not tied. Where the two are equal, the second copy is left out.

Knows: the head's name, comparing two tensors block by block.
Must not know: what else is in a checkpoint.
"""

from __future__ import annotations

import numpy as np

from twostroke.ops.linear import Linear
from twostroke.program.model import Model
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.tensors import with_prefix

HEAD = "lm_head.weight"
BLOCK_BYTES = 16 << 20


def has_other_head(checkpoint: Checkpoint, model: Model) -> bool:
    """True where the checkpoint has a head that differs from its embedding, in shape, in type or in a bit.

    model: one whose head is its embedding.
    """
    checkpoint, table = with_prefix(checkpoint, model), _embedding(model)
    if HEAD not in checkpoint.names or table not in checkpoint.names:
        return False
    embedding, head = checkpoint.info(table), checkpoint.info(HEAD)
    if (embedding.dtype, embedding.shape) != (head.dtype, head.shape):
        return True
    rows = max(1, BLOCK_BYTES * max(1, embedding.rows) // max(1, embedding.num_bytes))
    for first in range(0, embedding.rows, rows):
        count = min(rows, embedding.rows - first)
        if not np.array_equal(
            checkpoint.read_rows(table, first, count).view(np.uint8),
            checkpoint.read_rows(HEAD, first, count).view(np.uint8),
        ):
            return True
    return False


def _embedding(model: Model) -> str:
    """The tensor of the last product, which makes the logits."""
    last = next(call for call in reversed(model.plain.head) if isinstance(call, Linear))
    return last.weight.parts[0].name
