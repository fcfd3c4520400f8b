"""Times the real kernels on synthetic weights and pages. Predictions of a step's time are later composed of these
times.

Many layers of weights, more bytes than any cache has, are read in turn, because large last-level caches hide the time
of memory. A layer that is run again and again from a cache of hundreds of megabytes tells nothing about decoding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from twostroke.backends.cpu import CpuOps
from twostroke.backends.cpu.recorded import CallRecorder
from twostroke.cost.calibration import AttentionRates, LinearRates
from twostroke.cost.curve import Curve
from twostroke.cost.step_work import visible_positions
from twostroke.lab.planner.doctor.layer_step import LayerStep, last_rows, one_row_each
from twostroke.lab.planner.doctor.stopwatch import Call, Stopwatch, usual
from twostroke.lab.planner.doctor.synthetic import LARGE, SMALL, LayerShape, layers_in, pages_in
from twostroke.ops.attention.kv_pages import read_pages
from twostroke.ops.operands import F32Array, I32Array, KVLayer, U8Array
from twostroke.ops.quant.formats import INT8
from twostroke.types.spec.formats import F32, PAGE_TOKENS, KVKind, WeightFormat

ROWS = (1, 4, 5, 8, 16, 32, 64, 128, 256, 512)
"""Numbers of rows to time. They lie around the jumps in the kernels' times: matrix registers are used from 5 rows on,
and their tiles have 16 or 32 rows."""
FEW_ROWS = (1, 4, 8, 32, 128, 256)
WARM_ROWS_LIMIT = 64
"""From this number of rows on, products are limited by arithmetic, so it does not matter whether weights are in a
cache."""
WARM_BYTES, COLD_BYTES = 32 << 20, 176 << 20
"""Bounds of the bytes that a step reads. Up to WARM_BYTES they stay in caches until the next step; from COLD_BYTES on
they come from memory.

COLD_BYTES lies between a model of 116 MB in int4 and one of 230 MB in int8, on a machine whose cache of 480 MB is
shared with other users.
"""

SMALL_BYTES = 4 << 20
"""The bytes of small layers (SMALL) that are read in turn when products are timed. The demo model that Twostroke brings
has about as many."""
MOST_OF_FEATURES = 0.4
"""The largest share of the large layer's time that inputs and outputs (features) may take. A larger share means a
disturbed timing."""
PRODUCTS, LAYER_OPS = 3, 8
"""Numbers of calls. PRODUCTS: the calls of a layer that compute products. LAYER_OPS: all calls of a layer."""

DECODE_CONTEXT, SHORT_CONTEXT, DECODE_SEQUENCES = 1024, 128, 4
DECODE_BATCHES, WARM_BATCHES = 16, 2
"""The numbers of batches, each with its own K and V, that attention computes in turn. With DECODE_CONTEXT, the K and V
of DECODE_BATCHES take 134 MB in bf16 and come from memory. Those of WARM_BATCHES take 17 MB and stay in caches. With
SHORT_CONTEXT, those of DECODE_BATCHES stay in caches, too."""

PREFILL_CONTEXT, PREFILL_ROWS, MOST_ROWS = 1024, (2, 8, 32, 128), 512
OTHER_ROWS = (1, 8, 64, 512)
KEY_PAGES = 64
LEAST_OF_FLOPS = 0.4
"""The least share of a long chunk's attention time that is assumed to be proportional to its FLOPs. Where the measured
share is smaller, the timing was disturbed, and this share is taken."""
ROUNDS = 3

Record = Callable[[CallRecorder], None]


class OpTimer:
    """Times ops on one backend and one block of memory, both of which the caller owns."""

    def __init__(self, ops: CpuOps, memory: U8Array, watch: Stopwatch, rounds: int = ROUNDS) -> None:
        self._ops, self._memory, self._watch, self._rounds = ops, memory, watch, rounds
        self._numbers = np.random.default_rng(1)

    def linear(self, weight_format: WeightFormat, start_s: float, rows: Sequence[int] = ROWS) -> LinearRates:
        """Times products and returns three curves over the number of rows. The first gives the seconds for each weight
        when weights come from memory, the second when they come from caches. The third gives the seconds for each
        element of a row's inputs and outputs.

        Two layers of different sizes are timed, which separates the time of weights from that of inputs and outputs.
        start_s: the seconds of starting one op, which are counted elsewhere.
        """
        few = [count for count in rows if count < WARM_ROWS_LIMIT]
        cold = self._linear(LARGE, weight_format, self._memory.nbytes, rows)
        # A product never takes longer from caches than from memory; a measurement that shows this is noise.
        warm = cold | {
            count: min(taken_s, cold[count])
            for count, taken_s in self._linear(LARGE, weight_format, WARM_BYTES, few).items()
        }
        small = self._linear(SMALL, weight_format, SMALL_BYTES, rows)
        share = SMALL.weights / LARGE.weights
        features: dict[int, float] = {}
        for count in rows:
            rest_s = small[count] - PRODUCTS * start_s - share * warm[count]
            most_s = MOST_OF_FEATURES * warm[count] / LARGE.features  # a longer time means a disturbed timing
            features[count] = min(most_s, max(0.0, rest_s / (SMALL.features - share * LARGE.features)))
        features = _rising(features)

        def by_weight(taken: dict[int, float]) -> Curve:
            rest = _rising({x: max(0.0, y - features[x] * LARGE.features) for x, y in taken.items()})
            return Curve.of([(float(x), y / LARGE.weights) for x, y in rest.items()])

        return LinearRates(by_weight(cold), by_weight(warm), Curve.of([(float(x), y / x) for x, y in features.items()]))

    def attention(self, kind: KVKind) -> AttentionRates:
        """Times attention and returns its rates. Decode is timed with two numbers of query heads and two contexts;
        prefill by rows of one sequence."""
        layer = pages_in(self._memory, kind, LARGE)
        kv_heads = DECODE_SEQUENCES * LARGE.kv_heads
        moved = kv_heads * DECODE_CONTEXT * kind.token_bytes(LARGE.head_dim)
        flops = 4 * DECODE_SEQUENCES * DECODE_CONTEXT * LARGE.head_dim
        few_s = self._decode(layer, LARGE.kv_heads, DECODE_CONTEXT, WARM_BATCHES)
        many_s = self._decode(layer, LARGE.heads, DECODE_CONTEXT, WARM_BATCHES)
        short_s = self._decode(layer, LARGE.heads, SHORT_CONTEXT, DECODE_BATCHES)
        cold_s = self._decode(layer, LARGE.heads, DECODE_CONTEXT, DECODE_BATCHES)
        longer = DECODE_CONTEXT // SHORT_CONTEXT
        s_per_head = max(0.0, (longer * short_s - many_s) / ((longer - 1) * kv_heads))
        s_per_flop = max(0.0, (many_s - few_s) / (flops * (LARGE.heads - LARGE.kv_heads)))
        beside_s = s_per_flop * flops * LARGE.heads + s_per_head * kv_heads
        warm = max(0.0, many_s - beside_s) / moved
        cold = max(warm, (cold_s - beside_s) / moved)
        return AttentionRates(cold, warm, s_per_flop, s_per_head, *self._prefill(layer))

    def other(self, start_s: float) -> Curve:
        """Returns a curve of the seconds for one activation byte, by the number of rows. The curve is for norms, rope,
        KV writes, and ops that wait for one another.

        The time is that of a whole layer without its products and its attention. start_s: the seconds that starting one
        op takes; they are subtracted, because the cost model adds them for each op.
        """
        kv = pages_in(self._memory, KVKind.BF16, SMALL)
        layers = layers_in(self._memory, SMALL, INT8, SMALL_BYTES)
        points, moved = [], SMALL.other_bytes()
        for rows in OTHER_ROWS:
            step = LayerStep(self._normal, rows, SMALL, kv)
            whole, products = (
                [partial(record, layer=layer) for layer in layers] for record in (step.all, step.products)
            )
            taken_s = self._usual(whole) - self._usual(products) - self._usual([step.attention])
            others = LAYER_OPS - PRODUCTS - 1
            points.append((float(rows), max(0.0, taken_s - others * start_s) / (rows * moved)))
        return Curve.of(points)

    def layer_s(self) -> float:
        """Returns the seconds to start the ops of one layer, measured on a tiny layer."""
        tiny = LayerShape(64, 64, 1, 1, 64)
        step = LayerStep(self._normal, 1, tiny, pages_in(self._memory, KVKind.BF16, tiny))
        return self._usual([partial(step.all, layer=layers_in(self._memory, tiny, F32, 0)[0])])

    def _linear(
        self, shape: LayerShape, weight_format: WeightFormat, ring_bytes: int, rows: Sequence[int]
    ) -> dict[int, float]:
        """Returns rows -> seconds of the products of a layer. ring_bytes: the most bytes of the equal layers that are
        used in turn, so that caches do not hold the weights.

        Each round times all of `rows`. A timing begins with the layer that follows the last layer of the timing before
        it.
        """
        layers = layers_in(self._memory, shape, weight_format, ring_bytes)
        kv = pages_in(self._memory, KVKind.BF16, shape)
        steps = {count: LayerStep(self._normal, count, shape, kv) for count in rows}
        calls = {
            count: self._calls([partial(step.products, layer=layer) for layer in layers])
            for count, step in steps.items()
        }
        found: dict[int, list[float]] = {count: [] for count in rows}
        place = 0
        calls[rows[0]][place]()
        for _ in range(self._rounds):
            for count in rows:
                times, place = self._watch.times(calls[count], place)
                found[count] += times
        return _rising({count: usual(times) for count, times in found.items()})

    def _decode(self, layer: KVLayer, heads: int, context: int, batches: int) -> float:
        """Returns the seconds of attention for one new row in each of DECODE_SEQUENCES sequences. Their pages are
        spread over the memory.

        batches: the number of batches of different sequences that are computed in turn.
        """
        q, pages = self._queries(layer, DECODE_SEQUENCES, heads), context // PAGE_TOKENS
        out = np.empty_like(q)
        order = self._numbers.permutation(layer.num_pages).astype(np.int32)
        order = np.resize(order, (batches, DECODE_SEQUENCES, pages))

        def record(table: I32Array) -> Record:
            batch = one_row_each(context, np.ascontiguousarray(table))
            return lambda ops: ops.attention(out, q, layer, batch, LARGE.head_dim**-0.5, 0)

        return self._usual([record(table) for table in order])

    def _prefill(self, layer: KVLayer) -> tuple[float, Curve]:
        """Returns the seconds for each row and query head, and the seconds for each FLOP by the number of rows. The
        times of two context lengths tell these two costs apart."""
        short_s, short_flops = self._chunk(layer, MOST_ROWS, MOST_ROWS)
        long_s, long_flops = self._chunk(layer, MOST_ROWS, PREFILL_CONTEXT)
        least_s = LEAST_OF_FLOPS * long_s / long_flops  # a shorter time means a disturbed timing
        flop_s = max(least_s, (long_s - short_s) / (long_flops - short_flops))
        head_s = max(0.0, short_s - flop_s * short_flops) / (MOST_ROWS * LARGE.heads)
        points = [(float(MOST_ROWS), flop_s)]
        for rows in PREFILL_ROWS:
            taken_s, flops = self._chunk(layer, rows, PREFILL_CONTEXT)
            rest_s = max(LEAST_OF_FLOPS * taken_s, taken_s - head_s * rows * LARGE.heads)
            points.append((float(rows), rest_s / flops))
        return head_s, Curve.of(points)

    def _chunk(self, layer: KVLayer, rows: int, context: int) -> tuple[float, int]:
        """Returns the seconds and FLOPs of the last `rows` of `context` positions of one sequence."""
        q = self._queries(layer, rows, LARGE.heads)
        out = np.empty_like(q)
        batch = last_rows(rows, context)

        def record(ops: CallRecorder) -> None:
            ops.attention(out, q, layer, batch, LARGE.head_dim**-0.5, 0)

        return self._usual([record]), 4 * visible_positions(context - rows, rows, 0) * LARGE.heads * LARGE.head_dim

    def _queries(self, layer: KVLayer, rows: int, heads: int) -> F32Array:
        """Returns queries (rows, heads, head_dim) whose scores spread as far as a model's do: the softmax of flat
        scores is faster."""
        keys, _ = read_pages(layer, np.arange(KEY_PAGES))
        return self._normal(rows, heads, LARGE.head_dim) / np.float32(keys.std())

    def _normal(self, *shape: int) -> F32Array:
        return self._numbers.standard_normal(shape, dtype=np.float32)

    def _calls(self, records: Sequence[Record]) -> list[Call]:
        calls: list[Call] = []
        for record in records:
            recorder = self._ops.recorder()
            record(recorder)
            calls.append(partial(self._ops.run, recorder.calls()))
        return calls

    def _usual(self, records: Sequence[Record]) -> float:
        calls = self._calls(records)
        return min(self._watch.seconds(calls) for _ in range(self._rounds))


def _rising(taken_s: dict[int, float]) -> dict[int, float]:
    """Returns the times by rows, each raised to the largest time of fewer rows. More rows never take less time: a
    smaller time is noise."""
    highest, found = 0.0, {}
    for count in sorted(taken_s):
        highest = found[count] = max(highest, taken_s[count])
    return found
