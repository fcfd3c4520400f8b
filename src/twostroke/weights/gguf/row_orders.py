"""The orders in which a GGUF file stores rows that Hugging Face checkpoints have in another order.

An order is an array: order[i] is the stored row that becomes row i of the checkpoint's tensor. If a tensor is made of
several stored tensors, their rows are numbered on from one to the next.
"""

from __future__ import annotations

import numpy as np

from twostroke.ops.operands import I32Array


def halves_of_pairs(rows: int, heads: int) -> I32Array:
    """Returns the order for heads that the file stores as rotary pairs. The result has the first rows of all pairs of a
    head, then their second rows."""
    own = np.arange(rows, dtype=np.int32)
    each = rows // heads
    within, half = own % each, each // 2
    return own - within + within % half * 2 + within // half


def axes_in_turn(rows: int, heads: int) -> I32Array:
    """Returns the order for one tensor with q, k and v of `heads` heads each. In each head of q and of k, the file has
    all rotary pairs of the first axis, then all of the second axis. The result has one pair of the first axis, then one
    of the second, and so on."""
    own = np.arange(rows, dtype=np.int32)
    dim = rows // (3 * heads)
    within = own % dim
    stored = within // 2 % 2 * (dim // 2) + within // 4 * 2 + within % 2
    return np.where(own < 2 * heads * dim, own - within + stored, own).astype(np.int32)


def pairs_of_halves(rows: int, dim: int, turned: int) -> I32Array:
    """Returns the order for heads of `dim` rows whose first `turned` rows are rotated. The file stores these rows as
    two halves: the first rows of all rotary pairs, then the second rows. The result has both rows of a pair next to
    each other. The other rows of a head keep their places."""
    if dim <= 0 or rows % dim or turned % 2 or turned > dim:
        raise ValueError(f"{rows} rows of heads of {dim}, {turned} of which turn")
    own = np.arange(rows, dtype=np.int32)
    within = own % dim
    stored = within // 2 + within % 2 * (turned // 2)
    return np.where(within < turned, own - within + stored, own).astype(np.int32)


def taken_in_turn(groups: int, counts: tuple[int, ...]) -> I32Array:
    """Returns the order that joins several stored tensors group by group: counts[0] rows of the first tensor, counts[1]
    of the second, and so on, then the next group. Stored tensor p has groups * counts[p] rows."""
    firsts = np.cumsum([0, *(groups * count for count in counts[:-1])])
    columns = [
        first + np.arange(groups * count).reshape(groups, count) for first, count in zip(firsts, counts, strict=True)
    ]
    return np.concatenate(columns, axis=1).reshape(-1).astype(np.int32)


def untiled_values(before: int, key_heads: int, values_each: int, rows: int) -> I32Array:
    """Returns the order for rows of value heads, which come after `before` other rows. The file has the first value
    head of every key head, then the second of every key head, and so on. The result has all value heads of a key head
    side by side. rows: the rows of one value head."""
    heads = np.arange(key_heads * values_each).reshape(values_each, key_heads).T.reshape(-1)
    moved = before + (heads[:, None] * rows + np.arange(rows)).reshape(-1)
    return np.concatenate([np.arange(before), moved]).astype(np.int32)
