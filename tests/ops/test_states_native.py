"""short_conv, scans, gated_norm and multiply at every level: their references over a grid, and the same bits however
a sequence is cut into steps, whatever runs next to it, with one thread or two."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tests.ops.native import LEVELS, Answers, check_guard, guarded, random_rows
from tests.tiers import thinned
from twostroke.backends.cpu import CpuOps
from twostroke.ops.operands import AttentionBatch, F32Array, I32Array
from twostroke.ops.rows import multiply
from twostroke.ops.rows.activation import Activation
from twostroke.ops.states import (
    delta_rule,
    gated_norm,
    mlstm,
    rg_lru,
    selective_scan,
    short_conv,
    ssd_scan,
    token_shift,
    wkv4,
    wkv6,
    wkv7,
)
from twostroke.types.errors import BackendError

CUTS = ([37], [1] * 37, [1, 16, 7, 13], [9, 28], [36, 1])
"""Ways to cut one sequence of 37 tokens into steps."""
Step = Callable[[F32Array, F32Array, I32Array, AttentionBatch, slice], None]
"""step(out, state, slots, batch, rows): one step of an op over these rows of its inputs."""


@pytest.fixture(scope="module", params=list(itertools.product(LEVELS, (1, 2))), ids=str)
def ops(request: pytest.FixtureRequest) -> Iterator[CpuOps]:
    made = CpuOps(*request.param)
    yield made
    made.close()


def batch_of(counts: list[int]) -> AttentionBatch:
    starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    return AttentionBatch(starts, np.diff(starts).astype(np.int32), np.zeros((len(counts), 0), np.int32))


def states(elements: int, slots: int = 5) -> F32Array:
    """Slots that lie apart, with numbers in them; the room between them must stay 7."""
    room = np.full((slots, elements + 6), 7, np.float32)
    room[:, :elements] = np.random.default_rng(elements).standard_normal((slots, elements), dtype=np.float32)
    return room


def together(step: Step, width: int, elements: int, counts: list[int]) -> tuple[F32Array, F32Array]:
    """All sequences in one step. -> outputs, states of the sequences."""
    out, room = guarded(sum(counts), width)
    kept, slots = states(elements), np.array([3, 0, 4, 1][: len(counts)], np.int32)
    before = kept.copy()
    step(out, kept[:, :elements], slots, batch_of(counts), slice(None))
    check_guard(out, room)
    unused = [slot for slot in range(len(kept)) if slot not in slots]
    assert np.array_equal(kept[unused], before[unused]) and np.all(kept[:, elements:] == 7)
    return out, kept[slots, :elements]


def in_steps(step: Step, width: int, elements: int, counts: list[int], cuts: list[int]) -> tuple[F32Array, F32Array]:
    """The first sequence alone, cut into steps, in another slot."""
    kept = states(elements)
    kept[2] = kept[3]
    out, done = np.empty((counts[0], width), np.float32), 0
    for count in cuts:
        rows = slice(done, done + count)
        step(out[rows], kept[:, :elements], np.array([2], np.int32), batch_of([count]), rows)
        done += count
    return out, kept[2:3, :elements]


def check(native: Step, law: Step, width: int, elements: int, tolerance: float) -> None:
    counts = [37, 1, 5]
    out, kept = together(native, width, elements, counts)
    if Answers.checked:
        expected, expected_kept = together(law, width, elements, counts)
        for found, right in ((out, expected), (kept, expected_kept)):
            np.testing.assert_allclose(found, right, rtol=0, atol=tolerance * max(1.0, float(np.abs(right).max())))
    for cuts in CUTS:
        cut_out, cut_kept = in_steps(native, width, elements, counts, cuts)
        assert np.array_equal(cut_out, out[:37]) and np.array_equal(cut_kept[0], kept[0])


CONVS = list(itertools.product((1, 15, 48, 300), (2, 3, 4, 7), (False, True), (Activation.SILU, Activation.IDENTITY)))


@pytest.mark.parametrize(("channels", "taps", "biased", "activation"), thinned(CONVS, "short_conv"))
def test_short_conv(ops: CpuOps, channels: int, taps: int, biased: bool, activation: Activation) -> None:
    x = random_rows(43, channels)
    weights = np.array(random_rows(taps, channels)).reshape(-1)
    bias = np.array(random_rows(1, channels))[0] if biased else None

    def native(out: F32Array, state: F32Array, slots: I32Array, batch: AttentionBatch, rows: slice) -> None:
        ops.short_conv(out, x[rows], weights, bias, state, slots, batch, int(activation))

    def law(out: F32Array, state: F32Array, slots: I32Array, batch: AttentionBatch, rows: slice) -> None:
        short_conv.reference(out, x[rows], weights, bias, state, slots, batch, int(activation))

    check(native, law, channels, (taps - 1) * channels, 3e-6)


def heads_of(x: F32Array, heads: int) -> F32Array:
    """(T, heads, rest) of rows that may lie apart."""
    return np.lib.stride_tricks.as_strided(
        x, (len(x), heads, x.shape[1] // heads), (x.strides[0], 4 * x.shape[1] // heads, 4), writeable=x.flags.writeable
    )


SCANS = list(itertools.product(((1, 1), (4, 2), (6, 1)), (1, 16, 20, 64), (1, 16, 33), ((0.0, np.inf), (0.1, 0.9))))


@pytest.mark.parametrize(("shared", "width", "numbers", "limit"), thinned(SCANS, "ssd_scan"))
def test_ssd_scan(ops: CpuOps, shared: tuple[int, int], width: int, numbers: int, limit: tuple[float, float]) -> None:
    heads, groups = shared
    x = heads_of(random_rows(43, heads * width), heads)
    b, c = (heads_of(random_rows(43, groups * numbers + extra)[:, extra:], groups) for extra in (0, 1))
    dt = 2 * random_rows(43, heads)
    decay, skip, dt_bias = -np.exp(random_rows(1, heads)[0]), *(np.array(random_rows(n, heads)[-1]) for n in (2, 3))

    def native(out: F32Array, state: F32Array, slots: I32Array, batch: AttentionBatch, rows: slice) -> None:
        head_out = heads_of(out, heads)
        ops.ssd_scan(head_out, x[rows], b[rows], c[rows], dt[rows], decay, skip, dt_bias, state, slots, batch, *limit)

    def law(out: F32Array, state: F32Array, slots: I32Array, batch: AttentionBatch, rows: slice) -> None:
        head_out = heads_of(out, heads)
        ssd_scan.reference(
            head_out, x[rows], b[rows], c[rows], dt[rows], decay, skip, dt_bias, state, slots, batch, *limit
        )

    check(native, law, heads * width, heads * width * numbers, 1e-5)


@pytest.mark.parametrize("numbers", [1, 5, 16, 70])
@pytest.mark.parametrize("channels", [1, 16, 40, 64, 150])
def test_selective_scan(ops: CpuOps, channels: int, numbers: int) -> None:
    x, dt = random_rows(43, channels), 2 * random_rows(44, channels)[1:]
    b, c = (random_rows(43, numbers + extra)[:, extra:] for extra in (0, 1))
    decay = -np.exp(np.array(random_rows(numbers, channels)).reshape(-1))
    skip = np.array(random_rows(1, channels))[0]

    def native(out: F32Array, state: F32Array, slots: I32Array, batch: AttentionBatch, rows: slice) -> None:
        ops.selective_scan(out, x[rows], dt[rows], b[rows], c[rows], decay, skip, state, slots, batch)

    def law(out: F32Array, state: F32Array, slots: I32Array, batch: AttentionBatch, rows: slice) -> None:
        selective_scan.reference(out, x[rows], dt[rows], b[rows], c[rows], decay, skip, state, slots, batch)

    check(native, law, channels, numbers * channels, 1e-5)


@pytest.mark.parametrize("begins", [False, True])
@pytest.mark.parametrize("channels", [1, 16, 40, 150])
def test_rg_lru(ops: CpuOps, channels: int, begins: bool) -> None:
    """begins: sequences begin in the step, where the state and the factor of the first row count for nothing."""
    x, gates = random_rows(43, channels), (2 * random_rows(44, channels)[1:], 2 * random_rows(45, channels)[2:])
    rates = np.array(random_rows(1, channels))[0]

    def at(batch: AttentionBatch, rows: slice) -> AttentionBatch:
        done = (rows.start or 0) + (0 if begins else 5)
        return AttentionBatch(batch.row_starts, batch.context_tokens + np.int32(done), batch.page_table)

    def native(out: F32Array, state: F32Array, slots: I32Array, batch: AttentionBatch, rows: slice) -> None:
        ops.rg_lru(out, x[rows], gates[0][rows], gates[1][rows], rates, state, slots, at(batch, rows))

    def law(out: F32Array, state: F32Array, slots: I32Array, batch: AttentionBatch, rows: slice) -> None:
        rg_lru.reference(out, x[rows], gates[0][rows], gates[1][rows], rates, state, slots, at(batch, rows))

    check(native, law, channels, channels, 3e-6)


@pytest.mark.parametrize("begins", [False, True])
@pytest.mark.parametrize("channels", [1, 16, 40, 150])
def test_wkv4(ops: CpuOps, channels: int, begins: bool) -> None:
    """begins: sequences begin in the step, where the state counts for nothing."""
    k, v = 3 * random_rows(43, channels), random_rows(44, channels)[1:]
    first, decay = (np.array(random_rows(seed, channels))[0] for seed in (1, 2))
    decay = -np.exp(decay)

    def at(batch: AttentionBatch, rows: slice) -> AttentionBatch:
        done = (rows.start or 0) + (0 if begins else 5)
        return AttentionBatch(batch.row_starts, batch.context_tokens + np.int32(done), batch.page_table)

    def native(out: F32Array, state: F32Array, slots: I32Array, batch: AttentionBatch, rows: slice) -> None:
        state[slots, channels : 2 * channels] = np.abs(state[slots, channels : 2 * channels])
        ops.wkv4(out, k[rows], v[rows], first, decay, state, slots, at(batch, rows))

    def law(out: F32Array, state: F32Array, slots: I32Array, batch: AttentionBatch, rows: slice) -> None:
        state[slots, channels : 2 * channels] = np.abs(state[slots, channels : 2 * channels])
        wkv4.reference(out, k[rows], v[rows], first, decay, state, slots, at(batch, rows))

    check(native, law, channels, 3 * channels, 3e-5)


@pytest.mark.parametrize(("heads", "rows", "width"), [(1, 1, 1), (3, 20, 33), (2, 64, 16)])
def test_mlstm(ops: CpuOps, heads: int, rows: int, width: int) -> None:
    q, k = (heads_of(random_rows(43 + extra, heads * rows)[extra:], heads) for extra in (0, 1))
    v = heads_of(random_rows(43, heads * width), heads)
    gates = [3 * random_rows(43 + extra, heads)[extra:] for extra in (2, 3)]
    elements = heads * (rows * width + rows + 1)

    def native(out: F32Array, state: F32Array, slots: I32Array, batch: AttentionBatch, part: slice) -> None:
        inputs = (q[part], k[part], v[part], *(gate[part] for gate in gates))
        ops.mlstm(heads_of(out, heads), *inputs, state, slots, batch, 1e-6)

    def law(out: F32Array, state: F32Array, slots: I32Array, batch: AttentionBatch, part: slice) -> None:
        inputs = (q[part], k[part], v[part], *(gate[part] for gate in gates))
        mlstm.reference(heads_of(out, heads), *inputs, state, slots, batch, 1e-6)

    check(native, law, heads * width, elements, 3e-5)


GATES = ((1.0,), (2.0,), (1.0, -5.0))
RULES = list(itertools.product(((1, 1), (4, 2), (6, 1)), (1, 16, 20, 64, 72), (1, 16, 33), (False, True), GATES))


@pytest.mark.parametrize(("shared", "width", "rows", "by_row", "rule"), thinned(RULES, "delta_rule"))
def test_delta_rule(
    ops: CpuOps, shared: tuple[int, int], width: int, rows: int, by_row: bool, rule: tuple[float, ...]
) -> None:
    """rule: what the update is multiplied by, and the lowest logarithm of a decay."""
    heads, groups = shared
    v = heads_of(random_rows(43, heads * width), heads)
    q, k = (heads_of(random_rows(43, groups * rows + extra)[:, extra:], groups) for extra in (0, 1))
    gates = heads * rows if by_row else heads
    a, b = 2 * random_rows(43, gates), random_rows(44, heads)[1:]
    decay, dt_bias = -np.exp(random_rows(1, heads)[0]), np.array(random_rows(2, gates)[-1])

    def native(out: F32Array, state: F32Array, slots: I32Array, batch: AttentionBatch, rows: slice) -> None:
        inputs = (heads_of(out, heads), q[rows], k[rows], v[rows], a[rows], b[rows], decay, dt_bias)
        ops.delta_rule(*inputs, state, slots, batch, *rule)

    def law(out: F32Array, state: F32Array, slots: I32Array, batch: AttentionBatch, rows: slice) -> None:
        inputs = (heads_of(out, heads), q[rows], k[rows], v[rows], a[rows], b[rows], decay, dt_bias)
        delta_rule.reference(*inputs, state, slots, batch, *rule)

    check(native, law, heads * width, heads * width * rows, 2e-5)


@pytest.mark.parametrize("ways", [1, 3])
@pytest.mark.parametrize("width", [1, 15, 64, 100])
def test_token_shift(ops: CpuOps, width: int, ways: int) -> None:
    x, mix = random_rows(43, width), np.array(random_rows(ways, width)).reshape(-1)

    def native(out: F32Array, state: F32Array, slots: I32Array, batch: AttentionBatch, rows: slice) -> None:
        ops.token_shift(out, x[rows], mix, state, slots, batch)

    def law(out: F32Array, state: F32Array, slots: I32Array, batch: AttentionBatch, rows: slice) -> None:
        token_shift.reference(out, x[rows], mix, state, slots, batch)

    check(native, law, ways * width, width, 3e-6)


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("width", [1, 15, 16, 40, 64])
def test_wkv7(ops: CpuOps, width: int, heads: int) -> None:
    whole = heads * width
    r, w, k, v, a = (heads_of(random_rows(43, whole + extra)[:, extra:], heads) for extra in range(5))
    vectors = [np.array(random_rows(n, whole)[-1]) for n in range(1, 6)]

    def native(out: F32Array, state: F32Array, slots: I32Array, batch: AttentionBatch, rows: slice) -> None:
        inputs = (heads_of(out, heads), r[rows], w[rows], k[rows], v[rows], a[rows], *vectors)
        ops.wkv7(*inputs, state, slots, batch, 1e-3)

    def law(out: F32Array, state: F32Array, slots: I32Array, batch: AttentionBatch, rows: slice) -> None:
        inputs = (heads_of(out, heads), r[rows], w[rows], k[rows], v[rows], a[rows], *vectors)
        wkv7.reference(*inputs, state, slots, batch, 1e-3)

    check(native, law, whole, whole * width, 2e-5)


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("width", [1, 15, 16, 40, 64])
def test_wkv6(ops: CpuOps, width: int, heads: int) -> None:
    whole = heads * width
    r, w, k, v = (heads_of(random_rows(43, whole + extra)[:, extra:], heads) for extra in range(4))
    vectors = [np.array(random_rows(n, whole)[-1]) for n in range(1, 4)]

    def native(out: F32Array, state: F32Array, slots: I32Array, batch: AttentionBatch, rows: slice) -> None:
        inputs = (heads_of(out, heads), r[rows], w[rows], k[rows], v[rows], *vectors)
        ops.wkv6(*inputs, state, slots, batch, 1e-3)

    def law(out: F32Array, state: F32Array, slots: I32Array, batch: AttentionBatch, rows: slice) -> None:
        inputs = (heads_of(out, heads), r[rows], w[rows], k[rows], v[rows], *vectors)
        wkv6.reference(*inputs, state, slots, batch, 1e-3)

    check(native, law, whole, whole * width, 2e-5)


def test_steps_without_end_or_nan_stay_in_their_sequence(ops: CpuOps) -> None:
    """A head's dt of NaN makes that head's rows NaN from there on, in its sequence alone."""
    x, b = heads_of(np.array(random_rows(6, 32)), 2), heads_of(random_rows(6, 4), 1)
    dt, vector = np.array(random_rows(6, 2)), np.full(2, -0.5, np.float32)
    dt[1, 0] = np.nan
    kept, out = np.zeros((2, 128), np.float32), np.empty((6, 2, 16), np.float32)
    ops.ssd_scan(
        out, x, b, b, dt, vector, vector, vector, kept, np.array([0, 1], np.int32), batch_of([3, 3]), 0.0, np.inf
    )
    assert np.isnan(out[1:3, 0]).all() and not np.isnan(out[0]).any() and not np.isnan(out[:, 1]).any()
    assert not np.isnan(out[3:]).any()


NORMS = list(itertools.product((1, 3), (1, 15, 32, 70), (0, 1), (False, True), (Activation.SILU, Activation.SIGMOID)))


@pytest.mark.parametrize(("groups", "width", "gate_first", "shared", "activation"), thinned(NORMS, "gated_norm"))
def test_gated_norm(
    ops: CpuOps, groups: int, width: int, gate_first: int, shared: bool, activation: Activation
) -> None:
    x, gate = random_rows(19, groups * width), 3 * random_rows(20, groups * width)[1:]
    weight = np.array(random_rows(1, width if shared else groups * width))[0]
    attributes = (weight, 1e-5, groups, int(activation), gate_first)
    out, room = guarded(19, groups * width)
    ops.gated_norm(out, x, gate, *attributes)
    check_guard(out, room)
    expected = np.empty(out.shape, np.float32)
    gated_norm.reference(expected, x, gate, *attributes)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)
    for row in range(19):
        alone = np.empty((1, groups * width), np.float32)
        ops.gated_norm(alone, x[row : row + 1], gate[row : row + 1], *attributes)
        assert np.array_equal(alone[0], out[row])
    over = np.array(x)
    ops.gated_norm(over, over, gate, *attributes)
    assert np.array_equal(over, out)


@pytest.mark.parametrize("activation", [Activation.IDENTITY, Activation.SIGMOID, Activation.SILU])
@pytest.mark.parametrize(("width", "gates"), [(1, 1), (33, 33), (64, 64), (64, 4), (60, 20), (50, 1)])
def test_multiply(ops: CpuOps, width: int, gates: int, activation: Activation) -> None:
    x, gate = random_rows(9, width), 3 * random_rows(10, gates)[1:]
    out, room = guarded(9, width)
    ops.multiply(out, x, gate, int(activation))
    check_guard(out, room)
    expected = np.empty(out.shape, np.float32)
    multiply.reference(expected, x, gate, int(activation))
    np.testing.assert_allclose(out, expected, rtol=3e-6, atol=3e-6)
    for row in range(9):
        alone = np.empty((1, width), np.float32)
        ops.multiply(alone, x[row : row + 1], gate[row : row + 1], int(activation))
        assert np.array_equal(alone[0], out[row])


@pytest.mark.parametrize(
    ("slots", "counts", "elements"),
    [([0, 5], [2, 2], 24), ([0, -1], [2, 2], 24), ([0], [2, 2], 24), ([0, 1], [2, 1], 24), ([0, 1], [2, 2], 23)],
)
def test_states_that_do_not_fit_are_refused_and_nothing_is_written(
    ops: CpuOps, slots: list[int], counts: list[int], elements: int
) -> None:
    x, out = random_rows(4, 8), np.full((4, 8), 7, np.float32)
    state = np.full((5, elements), 7, np.float32)
    with pytest.raises(BackendError):
        ops.short_conv(out, x, np.ones(32, np.float32), None, state, np.array(slots, np.int32), batch_of(counts), 0)
    with pytest.raises(BackendError):
        heads, ones = heads_of(np.array(x), 1), np.ones(1, np.float32)
        three, dt = heads_of(random_rows(4, 3), 1), random_rows(4, 1)
        ops.ssd_scan(
            heads_of(out, 1), heads, three, three, dt, ones, ones, ones, state, np.array(slots, np.int32),
            batch_of(counts), 0.0, 1.0,
        )  # fmt: skip
    assert np.all(out == 7) and np.all(state == 7)
