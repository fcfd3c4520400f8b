"""Tables of cos and sin for every kind of rotary scaling, made once at load.

`dynamic` and `longrope` change with the length of the sequence in transformers, even in the middle of one. Here they
are resolved once, for the positions that the engine is configured for. A position's rotation must not depend on which
other requests run, how long they are, or how many positions of its own request are computed (the exactness law). Where
the context is no longer than the original positions, both give the tables of transformers. Where it is longer, they
give the tables that transformers makes for a sequence as long as the context.

The tables have the same bits on every machine (cos_sin.py, types/spec/portable.py): keys that one machine has cached
can be read by another.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from twostroke.ops.cos_sin import MOST_ANGLE, cos_sin
from twostroke.ops.device_memory import HOST, DeviceMemory
from twostroke.ops.operands import F32Array, I32Array, RopeTable
from twostroke.ops.program.values import RowTurns
from twostroke.types.spec.portable import ln, powers
from twostroke.types.spec.rope import RopeKind, RopeSpec

F64Array = NDArray[np.float64]

CHUNK_ANGLES = 16384
"""The angles that are computed in float64 at a time, so that they stay in a core's cache."""
WriteRows = Callable[[F64Array, int, tuple[float, float], F32Array, F32Array], None]
"""A function that fills both tables: write(frequencies, back, (factor of cosines, factor of sines), cosines, sines).
back: position p gets the rotation of position p - back (RopeSpec.back). Both factors are the same at every position.
The tables have the same bits as those that NumPy makes in `rope_table`."""


def rope_table(
    rope: RopeSpec, max_positions: int, rates: F32Array | None = None, write: WriteRows | None = None
) -> RopeTable:
    """Computes cos and sin of positions [0, max_positions): (max_positions, rotary_dim / 2) float32, computed in
    float64. rates: see `Rope` in ops/program/values.py. write: fills tables whose factors are the same at each
    position; None for NumPy."""
    frequencies = inverse_frequencies(rope, max_positions)
    if rates is not None:
        frequencies = frequencies * np.array(powers(math.e, rates.astype(np.float64)))
    cos = np.empty((max_positions, len(frequencies)), np.float32)
    sin = np.empty_like(cos)
    if write is not None and not (rope.growth or rope.power) and _in_reach(frequencies, max_positions):
        factor_of_sines = -rope.attention_factor if rope.undone else rope.attention_factor
        write(frequencies, rope.back, (rope.attention_factor, factor_of_sines), cos, sin)
        return RopeTable(cos, sin)
    chunk = max(1, CHUNK_ANGLES // max(1, len(frequencies)))
    for first in range(0, max_positions, chunk):
        last = min(first + chunk, max_positions)
        positions = np.arange(first, last, dtype=np.float64)[:, None]
        cosine, sine = cos_sin(np.maximum(positions - rope.back, 0) * frequencies)
        sine = -sine if rope.undone else sine
        factor: F64Array | float = rope.attention_factor
        if rope.growth:
            factor = factor * (1 + rope.growth * _logarithms(1 + (positions + rope.ahead) // rope.original_positions))
        if rope.power:
            bases = 1 + (positions[:, 0] + rope.ahead) / rope.original_positions
            factor = factor * np.array([powers(base, [rope.power])[0] for base in bases])[:, None]
        cos[first:last] = cosine * factor
        sin[first:last] = sine * factor
    return RopeTable(cos, sin)


def _in_reach(frequencies: F64Array, max_positions: int) -> bool:
    """Returns whether `cos_sin` accepts all angles of a table."""
    return bool((frequencies >= 0).all()) and float(frequencies.max(initial=0)) * max_positions <= MOST_ANGLE


def inverse_frequencies(rope: RopeSpec, max_positions: int) -> F64Array:
    """Returns the radians per position of each pair, (rotary_dim / 2,) float64, for sequences of up to `max_positions`.
    """
    if rope.kind is RopeKind.STILL:
        return np.zeros(rope.rotary_dim // 2)
    plain = _frequencies(rope.theta, rope.rotary_dim)
    if rope.still:
        return np.zeros_like(plain)
    if rope.kind is RopeKind.PROPORTIONAL:
        return np.where(np.arange(len(plain)) < rope.turned, plain / rope.factor, 0.0)
    if rope.kind is RopeKind.LINEAR:
        return plain / rope.factor
    if rope.kind is RopeKind.DYNAMIC:
        return _dynamic(rope, max_positions)
    if rope.kind is RopeKind.LLAMA3:
        return _llama3(rope, plain)
    if rope.kind is RopeKind.YARN:
        return _yarn(rope, plain)
    if rope.kind is RopeKind.LONGROPE:
        beyond = max_positions > rope.original_positions
        return plain / np.array(rope.long_factors if beyond else rope.short_factors, np.float64)
    return plain


@cache
def mean_rotation(rope: RopeSpec, positions: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Returns the mean cosine and the mean sine of each pair over positions [0, positions), attention_factor included.
    Pairs that rotate fast have means near 0, slow ones near 1 and 0. The sum of a geometric series gives both."""
    frequencies = inverse_frequencies(rope, rope.original_positions)
    (middle_cosine, middle_sine), (_, half), (_, whole) = (
        cos_sin(frequencies * times) for times in ((positions - 1) / 2, 0.5, positions / 2)
    )
    shares = np.divide(whole, positions * half, out=np.ones_like(half), where=half != 0) * rope.attention_factor
    return tuple((shares * middle_cosine).tolist()), tuple((shares * middle_sine).tolist())


def _logarithms(whole: F64Array) -> F64Array:
    """Returns the natural logarithm of each whole number. Many numbers are equal, so each distinct one is computed
    once."""
    numbers, places = np.unique(whole, return_inverse=True)
    found: F64Array = np.array([ln(float(number)) for number in numbers])[places].reshape(whole.shape)
    return found


def _frequencies(theta: float, rotary_dim: int) -> F64Array:
    exponents: F64Array = np.arange(0, rotary_dim, 2, dtype=np.float64) / rotary_dim
    return np.array(powers(theta, -exponents))


def _dynamic(rope: RopeSpec, max_positions: int) -> F64Array:
    """Returns the frequencies of NTK-aware scaling: the base grows so that the slowest pair spans the longer context.
    """
    positions = max(max_positions, rope.original_positions)
    stretch = rope.factor * positions / rope.original_positions - (rope.factor - 1)
    (wider,) = powers(stretch, [rope.rotary_dim / (rope.rotary_dim - 2)])
    return _frequencies(rope.theta * wider, rope.rotary_dim)


def _llama3(rope: RopeSpec, plain: F64Array) -> F64Array:
    """Returns the frequencies of Llama 3: slow pairs are divided by the factor, fast ones are kept, and those between
    are mixed smoothly."""
    turns = rope.original_positions * plain / (2 * math.pi)
    smooth = np.clip((turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor), 0.0, 1.0)
    return (1 - smooth) * plain / rope.factor + smooth * plain


def _yarn(rope: RopeSpec, plain: F64Array) -> F64Array:
    """Returns the frequencies of YaRN: those of pairs that rotate often within the trained context are kept, and
    those of pairs that rotate seldom are interpolated."""
    low, high = _yarn_pair(rope, rope.beta_fast), _yarn_pair(rope, rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.rotary_dim - 1)
    # The published code widens an empty ramp by 0.001. Without that the ramp divides by zero.
    width = (high - low) or 0.001
    interpolated: F64Array = np.clip((np.arange(len(plain)) - low) / width, 0.0, 1.0)
    return plain / rope.factor * interpolated + plain * (1 - interpolated)


def _yarn_pair(rope: RopeSpec, turns: float) -> float:
    """Returns the index, as a fraction, of the pair that is rotated `turns` times within the trained context."""
    reach = ln(rope.original_positions / (turns * 2 * math.pi))
    return rope.rotary_dim * reach / (2 * ln(rope.theta))


class TurnedRows:
    """Tables of cos and sin with one row for each row of a step, for M-RoPE. A row has a position on each of several
    axes, such as time, height and width. Each rotary pair is rotated by the position on its axis, which `turns` names.

    rows: the tables that ops read, in the device's memory. They are copied from the table of all positions (`usual`),
    which lies in the host's memory.
    """

    def __init__(self, turns: RowTurns, usual: RopeTable, max_rows: int, device: DeviceMemory = HOST) -> None:
        self._usual, self._axes, self._pairs = usual, np.array(turns.axes), np.array(turns.pairs)
        self._device, zeros = device, np.zeros((max_rows, len(self._axes)), np.float32)
        self.rows = RopeTable(device.put(zeros), device.put(zeros.copy()))

    def write(self, places: I32Array, first: int = 0) -> None:
        """Writes the rows of the step's rope tables (M-RoPE). places: (axes, rows), the position of each row on each
        axis, such as time, height and width. first: the first row that is written. The positions must be below the
        number of rows of the table of all positions."""
        at, end = places[self._axes].T, first + places.shape[1]
        self._device.write(self.rows.cos[first:end], self._usual.cos[at, self._pairs])
        self._device.write(self.rows.sin[first:end], self._usual.sin[at, self._pairs])
