"""span_attention: attention in which the rows of a span see each other; in some models an image is a span.

    This is attention without sinks, slopes and `ahead`. Row r at position p sees positions max(0, p - window + 1) .. p
    (window 0: all of 0 .. p). It also sees the later positions below ends[r], as far as the sequence goes. ends (T,)
    int32, 0 for a row of no span. Where all ends are 0, the bits are those of attention.
"""

from __future__ import annotations

from twostroke.cost.work import Work
from twostroke.ops.attention.attention import Attention, ScoreRule, attend
from twostroke.ops.cases import PAGES, between, grid
from twostroke.ops.program.op import CallArrays, Op, OpCost, OpPart, StoredFormats, op
from twostroke.ops.program.values import ROW_ENDS, Cache, Indices, PagedKV, Sequences, Value


def reference(call: CallArrays) -> None:
    out, q, layer, batch, ends, scale, window, soft_cap = call
    rule = ScoreRule(scale, soft_cap)
    attend(out, q, layer, batch, rule, window, lambda row, position: max(position + 1, int(ends[row])))


@op
class SpanAttention(Op):
    """Softmax attention over pages, with rows that also see later rows of their span."""

    SHAPES = {"out": "T H V", "q": "T H D", "layer": "* D V", "ends": "T"}
    CASES = tuple(
        grid(
            tolerance,
            kinds=kinds,
            G=(1, 2),
            Q=(1, 3),
            H="G Q",
            D=(15, 32),
            V="D",
            ends=between(0, 80),
            scale=0.2,
            window=(0, 20),
        )
        for tolerance, kinds in PAGES
    )
    PART = OpPart.ATTENTION
    BY_HEADS = True

    out: Value
    q: Value
    layer: Cache
    batch: Sequences
    ends: Indices
    scale: float
    window: int
    soft_cap: float = 0.0

    def cost(self, formats: StoredFormats) -> OpCost:
        """Returns the cost of attention. A row also sees the later positions of its span, and each of them costs as
        much as an earlier position."""
        kind = self.layer.kind
        if not isinstance(kind, PagedKV):
            raise TypeError("span_attention needs pages")
        pair = Work(2 * (self.q.width + self.out.width))
        return OpCost(
            per_row=Work(0, activation_bytes=4 * (self.q.width + self.out.width)),
            per_pair=pair,
            per_later=pair,
            per_position=Work(0, kv_bytes=kind.token_bytes(formats.kv)),
        )


def with_spans(call: Attention) -> SpanAttention:
    """Returns the call of span_attention that replaces this call: in it the rows of a span, such as an image, see each
    other. Raises ValueError for a call with sinks, slopes or chunks, or with `ahead` (later positions that every row
    sees)."""
    if call.ahead or call.sinks is not None or call.slopes is not None or call.window < 0:
        raise ValueError("span_attention has no sinks, slopes, chunks or `ahead`")
    return SpanAttention(call.out, call.q, call.layer, call.batch, ROW_ENDS, call.scale, call.window, call.soft_cap)
