"""The work of a step of the Llama family by textbook formulas. It is an independent count, for tests alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twostroke.cost.shape import Segment
from twostroke.cost.step_work import StepWork
from twostroke.cost.work import Work
from twostroke.types.spec.formats import KVKind, WeightFormat

NORM_FLOPS, ROPE_FLOPS, SILU_FLOPS = 4, 3, 5
MENDED, NEIGHBOURS = 20, 16  # logits of a row that get their losses back; rows that are read with a row of the head


def seen(segments: Sequence[Segment], window: int) -> tuple[int, int]:
    """The pairs of a row and a position that it sees, and the positions that are read, both counted one by one."""
    pairs = positions = 0
    for segment in segments:
        rows = range(segment.start, segment.start + segment.num_tokens)
        pairs += sum(min(row + 1, window) if window else row + 1 for row in rows)
        first = max(0, segment.start + 1 - window) if window else 0
        positions += rows.stop - first
    return pairs, positions


def by_hand(
    config: dict[str, Any], windows: Sequence[int], chosen: WeightFormat, kind: KVKind, segments: Sequence[Segment]
) -> StepWork:
    """config: Hugging Face's fields, with head_dim."""
    hidden, wide, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    heads, kv_heads, layers = config["num_attention_heads"], config["num_key_value_heads"], len(windows)
    query, kv, vocab = heads * dim, kv_heads * dim, config["vocab_size"]
    head_norms = config["model_type"] == "qwen3"
    shapes = ((query + 2 * kv, hidden), (hidden, query), (2 * wide, hidden), (hidden, wide))
    rows = sum(segment.num_tokens for segment in segments)
    logits = sum(segment.logit_rows for segment in segments)
    flops = 2 * sum(r * c for r, c in shapes) + 2 * hidden + SILU_FLOPS * wide
    elements = sum(r + c for r, c in shapes) + 2 * hidden - wide
    weights = Work(
        flops * rows * layers,
        weight_bytes=layers * sum(chosen.total_bytes(r, c) for r, c in shapes),
        activation_bytes=4 * elements * rows * layers,
    )
    head = Work()
    if logits:
        head = Work(2 * logits * vocab * hidden, chosen.total_bytes(vocab, hidden), 0, 4 * logits * (vocab + hidden))
    pairs, positions = (sum(each) for each in zip(*(seen(segments, window) for window in windows), strict=True))
    token_bytes = kv_heads * kind.token_bytes(dim)
    attention = Work(4 * pairs * query, kv_bytes=positions * token_bytes, activation_bytes=8 * rows * query * layers)
    normed = 2 * hidden + (query + kv if head_norms else 0)
    rotated = (heads + kv_heads) * dim
    shifted = kv if config["model_type"] == "qwen2" else 0  # keys with a bias lose what all of them share
    once = 4 * layers * (2 * hidden + (2 * dim if head_norms else 0) + shifted) + (4 * hidden if logits else 0)
    other = Work(
        rows * layers * (NORM_FLOPS * normed + ROPE_FLOPS * rotated + shifted) + NORM_FLOPS * hidden * logits,
        rows * (chosen.total_bytes(vocab, hidden) // vocab) + once,
        rows * layers * token_bytes,
        rows * (layers * 8 * (normed + rotated + kv + shifted) + 4 * hidden) + 16 * hidden * logits,
    )
    return StepWork(weights, head, attention, other + losses(hidden, vocab, chosen).times(logits))


def losses(hidden: int, vocab: int, chosen: WeightFormat) -> Work:
    """The work of giving the largest logits of one row back what rounding took: zeros next to float weights."""
    added = Work(MENDED, activation_bytes=4 * 2 * MENDED + 8 * MENDED)
    if chosen.kind.is_float:
        return added + Work(0, activation_bytes=4 * 2 * MENDED)
    row_bytes = chosen.total_bytes(vocab, hidden) // vocab
    return added + Work(2 * MENDED * hidden, NEIGHBOURS * MENDED * row_bytes, 0, 4 * (vocab + hidden))
