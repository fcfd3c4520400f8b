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

    What no op needs at the same time lies in the same room: attended where normed does, activated where qkv does.
    """

    def __init__(self, spec: ModelSpec, max_tokens: int, max_logit_rows: int) -> None:
        def room(*shapes: tuple[int, ...]) -> list[F32Array]:
            """Arrays of these shapes of one room."""
            size, line = max(map(math.prod, shapes)), LINE_BYTES // 4
            found = np.empty(size + line, np.float32)
            first = -found.ctypes.data % LINE_BYTES // 4
            return [found[first : first + math.prod(shape)].reshape(shape) for shape in shapes]

        heads = spec.num_heads + 2 * spec.num_kv_heads
        (self.hidden,) = room((max_tokens, spec.hidden_size))
        self.normed, self.attended = room((max_tokens, spec.hidden_size), (max_tokens, spec.num_heads, spec.head_dim))
        self.qkv, self.activated = room((max_tokens, heads, spec.head_dim), (max_tokens, spec.intermediate_size))
        (self.selected,) = room((max_logit_rows, spec.hidden_size))
        (self.logits,) = room((max_logit_rows, spec.vocab_size))

    @staticmethod
    def bytes_for(spec: ModelSpec, max_tokens: int, max_logit_rows: int) -> int:
        """What a Buffers of these sizes takes, without allocating it."""
        qkv = (spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim
        normed = max(spec.hidden_size, spec.num_heads * spec.head_dim)
        per_token = spec.hidden_size + normed + max(qkv, spec.intermediate_size)
        return 4 * (max_tokens * per_token + max_logit_rows * (spec.hidden_size + spec.vocab_size))
