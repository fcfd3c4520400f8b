"""The element type that a checkpoint's matrices are stored in."""

from __future__ import annotations

from collections import Counter

from twostroke.weights.checkpoint import Checkpoint

DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}


def stored_dtype(checkpoint: Checkpoint, named: str) -> str:
    """The type of most elements of the matrices. named: what config.json says, the answer where there are none."""
    elements: Counter[str] = Counter()
    for tensor in checkpoint.tensors.values():
        info = tensor.info
        if len(info.shape) > 1 and info.dtype in DTYPES:
            elements[DTYPES[info.dtype]] += info.rows * info.row_elements
    return elements.most_common(1)[0][0] if elements else named
