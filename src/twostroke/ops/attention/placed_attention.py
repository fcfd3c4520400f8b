"""placed_attention: softmax attention whose scores also depend on the distance of two positions.

    q, out, layer, batch, scale and ahead have the meaning of attention.py, without a window. A place is a class of
    distances. The place of a key's position n and a row's position p is places[min(max(n - p, -R), R) + R]; places (2 R
    + 1,) float32, whole numbers from 0 to B - 1.
    scores = scale * (q . k + by_row[row, h, place] + by_key[row of the key, h, place]) + table[h, place]
    out = softmax(scores) @ v

    table (H * B,): T5 and MPNet (Raffel et al. 2020; Song et al. 2020). by_row, by_key (T, H, B): the scores of a row's
    query, and of a key, for each place (He et al. 2021, disentangled attention). Each of the three may be left out.
    With by_key, each text of a step must be whole, because the row of a key is a row of the step.

One row's arithmetic depends on that row and on its sequence's keys alone.
"""

from __future__ import annotations

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.attention.attention import LOG2_E, gather, gather_values, scaled_query, softened
from twostroke.ops.cases import PAGES, Filled, Sizes, grid, times
from twostroke.ops.operands import F32Array
from twostroke.ops.program.op import CallArrays, Op, OpCost, OpPart, StoredFormats, op
from twostroke.ops.program.values import ALL_AHEAD, SEQUENCES, Cache, LatentKV, PagedKV, Sequences, Value, Vector
from twostroke.types.spec.formats import PAGE_TOKENS


def reference(call: CallArrays) -> None:
    out, q, layer, batch, scale, places, table, by_row, by_key, ahead = call
    heads, reach = q.shape[1], len(places) // 2
    group = heads // layer.kv_heads
    for s in range(len(batch.context_tokens)):
        first, last = int(batch.row_starts[s]), int(batch.row_starts[s + 1])
        context = int(batch.context_tokens[s])
        pages = batch.page_table[s, : -(-context // PAGE_TOKENS)]
        keys, values = gather(layer, pages, context)[0], gather_values(layer, pages, context)
        for row in range(first, last):
            position = context - (last - row)
            end = min(position + 1 + ahead, context)
            away = np.clip(np.arange(end) - position, -reach, reach) + reach
            place = places[away].astype(np.int64)
            more = np.zeros((heads, end), np.float32)
            if by_row is not None:
                more += by_row[row][:, place]
            if by_key is not None:
                more += by_key[first : first + end].transpose(1, 0, 2)[:, np.arange(end), place]
            k = np.repeat(keys[:, :end], group, axis=0)
            scores = np.einsum("hd,hnd->hn", scaled_query(layer, q[row], scale), k)
            scores = scores + more * (np.float32(scale) * LOG2_E)
            if table is not None:
                scores = scores + table.reshape(heads, -1)[:, place] * LOG2_E
            out[row] = softened(scores, values, (0, end))


def _places(_random: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> F32Array:
    """Makes the operand `places`: a class for each relative distance of query and key, in order of the distance. The
    classes are whole numbers that rise from 0 to sizes["B"] - 1."""
    return np.floor(np.linspace(0, sizes["B"] - 0.01, shape[0])).astype(np.float32)


@op
class PlacedAttention(Op):
    """Softmax attention whose scores get an added term for the relative distance of query and key (T5, DeBERTa)."""

    SHAPES = {
        **{"out": "T H V", "q": "T H D", "layer": "* D V", "places": "*", "table": "*"},
        **{"by_row": "T H B", "by_key": "T H B"},
    }
    CASES = tuple(
        grid(
            tolerance,
            kinds=kinds,
            steps=(((40, 40), (1, 1), (70, 70)),),
            G=(1, 2),
            Q=(1, 3),
            H="G Q",
            D=(20, 32),
            V="D",
            B=9,
            scale=0.2,
            places=Filled("41", _places),
            table=table,
            by_row=by_row,
            by_key=by_key,
            ahead=ALL_AHEAD,
        )
        for tolerance, kinds in PAGES
        for table, by_row, by_key in (
            *(("H B", None, None), (None, times(3), times(3))),
            *(("H B", times(3), times(3)), (None, None, times(3))),
        )
    )
    PART = OpPart.ATTENTION

    out: Value
    q: Value
    layer: Cache
    batch: Sequences
    scale: float
    places: Vector
    table: Vector | None = None
    by_row: Value | None = None
    by_key: Value | None = None
    ahead: int = 0

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts the cost of attention, and 3 more FLOPs for each visible position and head."""
        kind = self.layer.kind
        if not isinstance(kind, PagedKV):
            raise TypeError("placed_attention needs pages")
        both = sum(4 * each.width for each in (self.by_row, self.by_key) if each is not None)
        return OpCost(
            per_row=Work(0, activation_bytes=4 * (self.q.width + self.out.width) + both),
            per_pair=Work(2 * (self.q.width + self.out.width) + 3 * self.q.shape[0]),
            per_position=Work(0, kv_bytes=kind.token_bytes(formats.kv)),
        )


def placed_attention(
    q: Value,
    layer: Cache,
    scale: float,
    places: Vector,
    *,
    table: Vector | None = None,
    by_row: Value | None = None,
    by_key: Value | None = None,
) -> Value:
    """Records the call and returns the output of each row of q (T, H, D) over `layer`. Relative distances are divided
    into B classes. places (2 R + 1,): the class of each distance from -R to R. A score gets up to three terms for its
    class: from `table` (H, B), from the row's by_row (T, H, B) and from the key's by_key (T, H, B)."""
    kind = layer.kind
    if not isinstance(kind, PagedKV) or isinstance(kind, LatentKV) or kind.window:
        raise TypeError("placed_attention needs pages of K and V without a window")
    out = q.fresh(q.shape[0], kind.value_dim)
    q.trace.record(PlacedAttention(out, q, layer, SEQUENCES, scale, places, table, by_row, by_key, kind.ahead))
    return out
