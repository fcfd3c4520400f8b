"""The real kernels timed on synthetic weights and pages: what a step's time is later put together from.

Weights pass by in a ring larger than any cache, because servers' last-level caches hide the time of memory: a layer
that is run again and again from a cache of hundreds of megabytes says nothing about decoding.

Knows: CpuOps, the ops' operands and costs.
Must not know: requests, where results are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from twostroke.backends.cpu import CpuOps
from twostroke.backends.cpu.program import Program
from twostroke.backends.meter import MeterOps
from twostroke.cost.calibration import AttentionRates, LinearRates
from twostroke.cost.curve import Curve
from twostroke.ops.operands import AttentionBatch, F32Array, I32Array, KVLayer, PackedWeight, RopeTable, U8Array
from twostroke.ops.protocol import Ops
from twostroke.planner.doctor.stopwatch import Call, Stopwatch, usual
from twostroke.planner.doctor.synthetic import LARGE, SMALL, Layer, LayerShape, layers_in, pages_in
from twostroke.spec.formats import F32, PAGE_TOKENS, KVKind, WeightFormat

ROWS = (1, 4, 5, 8, 16, 32, 64, 128, 256, 512)
"""Around the steps that kernels have: matrix registers begin at 5 rows, their tiles have 16 and 32."""
FEW_ROWS = (1, 4, 8, 32, 128, 256)
WARM_ROWS_LIMIT = 64
"""From here on products are bound by arithmetic and it does not matter where the weights are."""
WARM_BYTES, COLD_BYTES = 32 << 20, 176 << 20
"""What a step reads stays in caches until the next up to the first, comes from memory from the second on.

Between a model of 116 MB in int4 and one of 230 MB in int8 on a machine whose cache of 480 MB belongs to many.
"""

SMALL_BYTES = 4 << 20
"""Of the ring of small layers: as large as the embedded model."""
PRODUCTS, LAYER_OPS = 4, 10
"""Products among the ops that layer_s starts."""

DECODE_CONTEXT, SHORT_CONTEXT, DECODE_SEQUENCES, DECODE_BATCHES = 1024, 128, 4, 16
PREFILL_CONTEXT, PREFILL_ROWS, MOST_ROWS = 1024, (2, 8, 32, 128), 512
OTHER_ROWS = (1, 8, 64, 512)
ROUNDS = 3

Record = Callable[[Ops], None]


class OpTimer:
    """Times ops on one backend and one block of memory; both are the caller's."""

    def __init__(self, ops: CpuOps, memory: U8Array, watch: Stopwatch, rounds: int = ROUNDS) -> None:
        self._ops, self._memory, self._watch, self._rounds = ops, memory, watch, rounds
        self._numbers = np.random.default_rng(1)

    def linear(self, weight_format: WeightFormat, start_s: float, rows: Sequence[int] = ROWS) -> LinearRates:
        """Seconds by rows for each weight, from memory and from caches, and for each feature of each row.

        Two layers of different sizes tell weights and features apart. start_s: of one op, which is counted elsewhere.
        """
        few = [count for count in rows if count < WARM_ROWS_LIMIT]
        cold = self._linear(LARGE, weight_format, self._memory.nbytes, rows)
        # From caches nothing is slower; what says so is noise.
        warm = cold | {
            count: min(taken_s, cold[count])
            for count, taken_s in self._linear(LARGE, weight_format, WARM_BYTES, few).items()
        }
        small = self._linear(SMALL, weight_format, SMALL_BYTES, rows)
        share = SMALL.weights / LARGE.weights
        features: dict[int, float] = {}
        for count in rows:
            rest_s = small[count] - PRODUCTS * start_s - share * warm[count]
            features[count] = max(0.0, rest_s / (SMALL.features - share * LARGE.features))

        def by_weight(taken: dict[int, float]) -> Curve:
            left = {x: max(0.0, y - features[x] * LARGE.features) for x, y in taken.items()}
            return Curve.of([(float(x), y / LARGE.weights) for x, y in left.items()])

        return LinearRates(by_weight(cold), by_weight(warm), Curve.of([(float(x), y / x) for x, y in features.items()]))

    def attention(self, kind: KVKind) -> AttentionRates:
        """Decode from two numbers of query heads and two contexts; prefill by rows of one sequence."""
        layer = pages_in(self._memory, kind)
        kv_heads = DECODE_SEQUENCES * LARGE.kv_heads
        moved = kv_heads * DECODE_CONTEXT * kind.token_bytes(LARGE.head_dim)
        flops = 4 * DECODE_SEQUENCES * DECODE_CONTEXT * LARGE.head_dim
        few_s = self._decode(layer, LARGE.kv_heads, DECODE_CONTEXT)
        many_s = self._decode(layer, LARGE.heads, DECODE_CONTEXT)
        short_s = self._decode(layer, LARGE.heads, SHORT_CONTEXT)
        longer = DECODE_CONTEXT // SHORT_CONTEXT
        s_per_head = max(0.0, (longer * short_s - many_s) / ((longer - 1) * kv_heads))
        s_per_flop = max(0.0, (many_s - few_s) / (flops * (LARGE.heads - LARGE.kv_heads)))
        rest_s = many_s - s_per_flop * flops * LARGE.heads - s_per_head * kv_heads
        return AttentionRates(max(0.0, rest_s) / moved, s_per_flop, s_per_head, *self._prefill(layer))

    def other(self) -> Curve:
        """Rows -> seconds for each activation byte of norms, rope and KV writes."""
        layer = pages_in(self._memory, KVKind.BF16)
        points = []
        for rows in OTHER_ROWS:
            record = self._others(rows, layer)
            meter = MeterOps()
            record(meter)
            points.append((float(rows), self._usual([record]) / meter.total().activation_bytes))
        return Curve.of(points)

    def layer_s(self) -> float:
        """Seconds to start the ops of one layer: the same ops as in `others` and four products, on next to nothing."""
        layer = pages_in(self._memory, KVKind.BF16)
        tiny = PackedWeight(F32, 64, 64, self._memory[: 4 * 64 * 64])
        x, out = np.zeros((1, 64), np.float32), np.zeros((1, 64), np.float32)
        batch = _batch(1, 1, np.zeros((1, 1), np.int32))
        q = np.zeros((1, LARGE.heads, LARGE.head_dim), np.float32)
        others = self._others(1, layer)

        def record(ops: Ops) -> None:
            others(ops)
            for _ in range(4):
                ops.linear(out, x, tiny)
            ops.attention(q, q, layer, batch, 0.125, 0)

        return self._usual([record])

    def _linear(
        self, shape: LayerShape, weight_format: WeightFormat, ring_bytes: int, rows: Sequence[int]
    ) -> dict[int, float]:
        """Rows -> seconds of a layer's products, from a ring of layers.

        Rounds alternate over `rows`, and the ring goes on where the last timing left it.
        """
        layers = layers_in(self._memory, shape, weight_format, ring_bytes)
        calls = {count: self._calls([*self._products(shape, layers, count)]) for count in rows}
        found: dict[int, list[float]] = {count: [] for count in rows}
        place = 0
        calls[rows[0]][place]()
        for _ in range(self._rounds):
            for count in rows:
                times, place = self._watch.times(calls[count], place)
                found[count] += times
        return {count: usual(times) for count, times in found.items()}

    def _products(self, shape: LayerShape, layers: list[Layer], rows: int) -> Iterator[Record]:
        """The four products of each layer; all layers read and write the same activations, as a model does."""
        (qkv_rows, hidden_size), (_, attended_size), _, (_, inner) = shape.matrices
        normed, attended = self._normal(rows, hidden_size), self._normal(rows, attended_size)
        activated, wide = self._normal(rows, inner), np.empty((rows, inner), np.float32)
        qkv, hidden = np.empty((rows, qkv_rows), np.float32), np.zeros((rows, hidden_size), np.float32)

        def record(ops: Ops, layer: Layer) -> None:
            ops.linear(qkv, normed, layer.qkv)
            ops.linear_add(hidden, attended, layer.o)
            ops.linear_silu(wide, normed, layer.gate_up)
            ops.linear_add(hidden, activated, layer.down)

        for layer in layers:
            yield partial(record, layer=layer)

    def _decode(self, layer: KVLayer, heads: int, context: int) -> float:
        """Seconds of one new row in each of DECODE_SEQUENCES sequences, pages strewn over the memory."""
        q, pages = self._normal(DECODE_SEQUENCES, heads, LARGE.head_dim), context // PAGE_TOKENS
        out = np.empty_like(q)
        order = self._numbers.permutation(layer.num_pages).astype(np.int32)
        order = np.resize(order, (DECODE_BATCHES, DECODE_SEQUENCES, pages))

        def record(table: I32Array) -> Record:
            batch = _batch(DECODE_SEQUENCES, context, np.ascontiguousarray(table))
            return lambda ops: ops.attention(out, q, layer, batch, LARGE.head_dim**-0.5, 0)

        return self._usual([record(table) for table in order])

    def _prefill(self, layer: KVLayer) -> tuple[float, Curve]:
        """Seconds for each row and query head, and by rows for each FLOP: two contexts tell them apart."""
        short_s, short_flops = self._chunk(layer, MOST_ROWS, MOST_ROWS)
        long_s, long_flops = self._chunk(layer, MOST_ROWS, PREFILL_CONTEXT)
        flop_s = max(0.0, long_s - short_s) / (long_flops - short_flops)
        head_s = max(0.0, short_s - flop_s * short_flops) / (MOST_ROWS * LARGE.heads)
        points = [(float(MOST_ROWS), flop_s)]
        for rows in PREFILL_ROWS:
            taken_s, flops = self._chunk(layer, rows, PREFILL_CONTEXT)
            points.append((float(rows), max(0.0, taken_s - head_s * rows * LARGE.heads) / flops))
        return head_s, Curve.of(points)

    def _chunk(self, layer: KVLayer, rows: int, context: int) -> tuple[float, int]:
        """Seconds and FLOPs of the last `rows` of `context` positions of one sequence."""
        q = self._normal(rows, LARGE.heads, LARGE.head_dim)
        out = np.empty_like(q)
        table = np.arange(context // PAGE_TOKENS, dtype=np.int32)[None, :]
        batch = AttentionBatch(np.array([0, rows], np.int32), np.array([context], np.int32), table)

        def record(ops: Ops) -> None:
            ops.attention(out, q, layer, batch, LARGE.head_dim**-0.5, 0)

        meter = MeterOps()
        record(meter)
        return self._usual([record]), meter.total().flops

    def _others(self, rows: int, layer: KVLayer) -> Record:
        x, normed = self._normal(rows, LARGE.hidden), np.empty((rows, LARGE.hidden), np.float32)
        weight = np.ones(LARGE.hidden, np.float32)
        qkv = self._normal(rows, LARGE.heads + 2 * LARGE.kv_heads, LARGE.head_dim)
        angles = RopeTable(
            np.ones((rows, LARGE.head_dim // 2), np.float32), np.zeros((rows, LARGE.head_dim // 2), np.float32)
        )
        positions = np.arange(rows, dtype=np.int32)
        end = LARGE.heads + LARGE.kv_heads

        def record(ops: Ops) -> None:
            ops.rms_norm(normed, x, weight, 1e-5)
            ops.rope(qkv[:, :end], angles, positions)
            ops.kv_write(layer, qkv[:, LARGE.heads : end], qkv[:, end:], positions)
            ops.rms_norm(normed, x, weight, 1e-5)

        return record

    def _normal(self, *shape: int) -> F32Array:
        return self._numbers.standard_normal(shape, dtype=np.float32)

    def _calls(self, records: Sequence[Record]) -> list[Call]:
        calls: list[Call] = []
        for record in records:
            recorder = self._ops.recorder()
            record(recorder)
            program = recorder.program()
            # `record` holds the operands, whose addresses the program has.
            calls.append(partial(self._run, program, record))
        return calls

    def _run(self, program: Program, _kept: Record) -> None:
        self._ops.run(program)

    def _usual(self, records: Sequence[Record]) -> float:
        calls = self._calls(records)
        return min(self._watch.seconds(calls) for _ in range(self._rounds))


def _batch(sequences: int, context: int, table: I32Array) -> AttentionBatch:
    """One new row of each sequence."""
    starts = np.arange(sequences + 1, dtype=np.int32)
    return AttentionBatch(starts, np.full(sequences, context, np.int32), table)
