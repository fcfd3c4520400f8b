"""rotated_heads: the program whose K and V are rotated before they are kept in int8 or int4.

In these formats K and V have one scale for each position and head, so one large channel makes all others less precise.
A rotation spreads the large channel over the head (QuaRot; Ashkboos et al. 2024). Queries are rotated by the inverse,
so that scores stay the same, and the output of attention is rotated back. The calls stand next to kv_write and
attention, after the rotary embedding.

Apply this pass before the program is divided among ranks. Each head is rotated by itself.
"""

from __future__ import annotations

from dataclasses import replace

from twostroke.ops.attention.attention import Attention
from twostroke.ops.attention.kv_write import KVWrite
from twostroke.ops.passes.scaled_keys import scalable_caches
from twostroke.ops.program.check import check
from twostroke.ops.program.op import Op
from twostroke.ops.program.program import Program
from twostroke.ops.program.values import Value
from twostroke.ops.rows.rotate_heads import RotateHeads

FORTH, BACK = 0, 1


def with_rotated_heads(program: Program) -> Program:
    """Returns the program with Hadamard rotations of K, V and queries, and of the attention's output, which is rotated
    back. Only caches that kv_write alone writes and attention alone reads get them."""
    kinds = scalable_caches(program)
    calls: list[Op] = []

    def turned(x: Value, inverse: int) -> Value:
        out = x.fresh()
        calls.append(RotateHeads(out, x, inverse))
        return out

    for call in program.calls:
        if isinstance(call, KVWrite) and call.layer.index in kinds:
            calls.append(replace(call, k=turned(call.k, FORTH), v=turned(call.v, FORTH)))
        elif isinstance(call, Attention) and call.layer.index in kinds:
            seen = call.out.fresh()
            q = turned(call.q, BACK)
            calls.append(replace(call, out=seen, q=q))
            calls.append(RotateHeads(call.out, seen, BACK))
        else:
            calls.append(call)
    made = Program.of(tuple(calls), program.logits, program.given, program.kept)
    check(made)
    return made
