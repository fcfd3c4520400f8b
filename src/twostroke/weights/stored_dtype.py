"""The element type in which a checkpoint's matrices are stored."""

from __future__ import annotations

from collections import Counter

from twostroke.weights.checkpoint import Checkpoint

DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}


def stored_dtype(checkpoint: Checkpoint, named: str) -> str:
    """Returns the type of most elements of the matrices. named: the type in config.json, which is the result where
    there are no matrices."""
    elements: Counter[str] = Counter()
    for tensor in checkpoint.tensors.values():
        info = tensor.info
        if len(info.shape) > 1 and info.dtype in DTYPES:
            elements[DTYPES[info.dtype]] += info.rows * info.row_elements
    return elements.most_common(1)[0][0] if elements else named
