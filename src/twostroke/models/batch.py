"""What one step feeds a model: the rows, and where their KV goes.

Knows: array shapes.
Must not know: requests, sampling.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from twostroke.ops.operands import AttentionBatch, F32Array, I32Array
from twostroke.spec.model import ModelSpec

LINE_BYTES = 64
"""Of a cache line. Where rows begin within one, each vector that is stored lies in two."""


@dataclass(frozen=True, eq=False)
class Batch:
    """T rows of S sequences, R of which need logits.

    token_ids, positions, slots: (T,) int32 (slot = page * PAGE_TOKENS + offset). logit_rows: (R,) int32.
    """

    token_ids: I32Array
    positions: I32Array
    slots: I32Array
    attention: AttentionBatch
    logit_rows: I32Array


class Buffers:
    """Activations of one step, allocated once for `max_tokens` rows and `max_logit_rows` logits; float32.

    hidden, normed: (T, hidden). qkv: (T, heads + 2 kv_heads, head_dim). attended: (T, heads, head_dim).
    activated: (T, intermediate). selected: (R, hidden). logits: (R, vocabulary).
    """

    def __init__(self, spec: ModelSpec, max_tokens: int, max_logit_rows: int) -> None:
        def rows(*shape: int) -> F32Array:
            size, line = math.prod(shape), LINE_BYTES // 4
            room = np.empty(size + line, np.float32)
            first = -room.ctypes.data % LINE_BYTES // 4
            return room[first : first + size].reshape(shape)

        heads = spec.num_heads + 2 * spec.num_kv_heads
        self.hidden = rows(max_tokens, spec.hidden_size)
        self.normed = rows(max_tokens, spec.hidden_size)
        self.qkv = rows(max_tokens, heads, spec.head_dim)
        self.attended = rows(max_tokens, spec.num_heads, spec.head_dim)
        self.activated = rows(max_tokens, spec.intermediate_size)
        self.selected = rows(max_logit_rows, spec.hidden_size)
        self.logits = rows(max_logit_rows, spec.vocab_size)

    @staticmethod
    def bytes_for(spec: ModelSpec, max_tokens: int, max_logit_rows: int) -> int:
        """What a Buffers of these sizes takes, without allocating it."""
        heads = 2 * spec.num_heads + 2 * spec.num_kv_heads
        per_token = 2 * spec.hidden_size + heads * spec.head_dim + spec.intermediate_size
        return 4 * (max_tokens * per_token + max_logit_rows * (spec.hidden_size + spec.vocab_size))
