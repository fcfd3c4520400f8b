"""Whether a model's head is its embedding: config.json says so, and the file may say otherwise.

Where tie_word_embeddings is true and the checkpoint holds an lm_head.weight that differs from the embedding, the file
counts, as in transformers: the head is not tied. Where the two are equal, the second copy is left out.

Knows: the two tensors' names, comparing them block by block.
Must not know: what else is in a checkpoint.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from twostroke.spec.model import ModelSpec
from twostroke.types.errors import ModelError
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.json_file import read_object

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
BLOCK_BYTES = 16 << 20


def read_spec(folder: Path) -> ModelSpec:
    """The spec of a model's folder: config.json, corrected by what the weights hold. Raises CorruptModel or
    UnsupportedModel for config.json alone: weights that are missing or broken are found where they are loaded.
    """
    spec = ModelSpec.from_hf(read_object(folder / "config.json"))
    if not spec.tied_embeddings:
        return spec
    try:
        with Checkpoint.open(folder) as checkpoint:
            return with_head_of_file(spec, checkpoint)
    except ModelError:
        return spec


def with_head_of_file(spec: ModelSpec, checkpoint: Checkpoint) -> ModelSpec:
    """The spec, not tied where the checkpoint has a head of its own. Raises CorruptModel or UnsupportedModel."""
    if spec.tied_embeddings and _has_other_head(checkpoint):
        return replace(spec, tied_embeddings=False)
    return spec


def _has_other_head(checkpoint: Checkpoint) -> bool:
    if HEAD not in checkpoint.names or EMBEDDING not in checkpoint.names:
        return False
    embedding, head = checkpoint.info(EMBEDDING), checkpoint.info(HEAD)
    if (embedding.dtype, embedding.shape) != (head.dtype, head.shape):
        return True
    rows = max(1, BLOCK_BYTES * max(1, embedding.rows) // max(1, embedding.num_bytes))
    for first in range(0, embedding.rows, rows):
        count = min(rows, embedding.rows - first)
        if not np.array_equal(
            checkpoint.read_rows(EMBEDDING, first, count).view(np.uint8),
            checkpoint.read_rows(HEAD, first, count).view(np.uint8),
        ):
            return True
    return False
