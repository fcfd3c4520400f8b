"""The reference backend: every op by its definition.

Knows: the ops' references.
Must not know: models, native code.
"""

from __future__ import annotations

from twostroke.ops import add, attention, embed, gather_rows, head_norm, kv_write, linear, rms_norm, rope, silu_mul


class ReferenceOps:
    """Slow, clear, the law. Satisfies `ops.protocol.Ops`."""

    embed = staticmethod(embed.reference)
    rms_norm = staticmethod(rms_norm.reference)
    head_norm = staticmethod(head_norm.reference)
    linear = staticmethod(linear.reference)
    rope = staticmethod(rope.reference)
    kv_write = staticmethod(kv_write.reference)
    attention = staticmethod(attention.reference)
    silu_mul = staticmethod(silu_mul.reference)
    add = staticmethod(add.reference)
    gather_rows = staticmethod(gather_rows.reference)
