"""The reference backend: every op by its definition.

Knows: the ops' references.
Must not know: models, native code.
"""

from __future__ import annotations

from twostroke.ops import (
    attention,
    embed,
    feed_forward,
    gather_rows,
    head_norm,
    kv_write,
    linear,
    linear_add,
    linear_silu,
    rms_norm,
    rope,
)


class ReferenceOps:
    """Slow, clear, the law. Satisfies `ops.protocol.Ops`."""

    embed = staticmethod(embed.reference)
    rms_norm = staticmethod(rms_norm.reference)
    head_norm = staticmethod(head_norm.reference)
    linear = staticmethod(linear.reference)
    linear_add = staticmethod(linear_add.reference)
    linear_silu = staticmethod(linear_silu.reference)
    feed_forward = staticmethod(feed_forward.reference)
    rope = staticmethod(rope.reference)
    kv_write = staticmethod(kv_write.reference)
    attention = staticmethod(attention.reference)
    gather_rows = staticmethod(gather_rows.reference)
