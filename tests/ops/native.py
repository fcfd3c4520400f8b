"""Code that the tests of the native ops share: levels, and operands and references from a seed, each made once.

Operands depend on neither level nor threads, so they and their references are kept for all of them, and are read-only.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from tests.tiers import levels
from twostroke.backends.cpu.ops import CpuOps
from twostroke.ops.cases import CODES, FLOATS, INTEGERS, ROTATED
from twostroke.ops.operands import AttentionBatch, F32Array, PackedWeight
from twostroke.ops.products import linear as linear_contract
from twostroke.ops.quant.codec import pack_weight
from twostroke.types.spec.formats import PAGE_TOKENS, WeightFormat

LEVELS = levels()
INTEGER_FORMATS, ROTATED_FORMATS, FORMATS = list(INTEGERS), list(ROTATED), [*FLOATS, *CODES]
OUT_FEATURES = (1, 63, 64, 65, 200)
IN_FEATURES = (1, 31, 64, 127, 300, 600)


def format_id(weight_format: WeightFormat) -> str:
    """A short name for a test id."""
    group = str(weight_format.group) if weight_format.group else ""
    return weight_format.kind.name.lower() + group + (f"r{weight_format.rotated}" if weight_format.rotated else "")


class Answers:
    """checked: whether results are compared with references. Where only a crash matters, no reference is computed."""

    checked = True


@cache
def random_weight(rows: int, columns: int, weight_format: WeightFormat, with_bias: bool) -> PackedWeight:
    """A Gaussian (rows, columns) matrix, always the same for the same shape."""
    rng = np.random.default_rng([rows, columns])
    values = rng.standard_normal((rows, columns), dtype=np.float32)
    bias = rng.standard_normal(rows, dtype=np.float32) if with_bias else None
    made = pack_weight(values, weight_format, bias)
    for array in (made.data, made.scales, made.bias):
        if array is not None:
            array.flags.writeable = False
    return made


@cache
def random_rows(rows: int, columns: int) -> F32Array:
    """(rows, columns) Gaussian float32 numbers, a view inside NaN. So a kernel that reads past a row shows it."""
    room = np.full((rows, columns + 3), np.nan, np.float32)
    room[:, :columns] = np.random.default_rng([rows, columns, 1]).standard_normal((rows, columns), dtype=np.float32)
    room.flags.writeable = False
    return room[:, :columns]


@cache
def linear_answer(count: int, rows: int, columns: int, weight_format: WeightFormat, with_bias: bool) -> F32Array:
    """The reference's random_rows(count, columns) times random_weight(rows, columns, ...)."""
    x = np.ascontiguousarray(random_rows(count, columns))
    out = np.empty((count, rows), np.float32)
    linear_contract.reference(out, x, random_weight(rows, columns, weight_format, with_bias))
    return out


def normal(*shape: int, seed: int = 0) -> F32Array:
    """Gaussian float32 numbers, always the same for the same shape and seed."""
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)


def batch_of(contexts: tuple[int, ...], counts: tuple[int, ...], table: np.ndarray) -> AttentionBatch:
    """A step with `counts` new rows of sequences that are as long as `contexts` after it."""
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return AttentionBatch(starts, np.array(contexts, np.int32), table)


def slots_of(pages: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """The slots of positions of a sequence."""
    return (pages[positions // PAGE_TOKENS] * PAGE_TOKENS + positions % PAGE_TOKENS).astype(np.int32)


def guarded(rows: int, columns: int) -> tuple[F32Array, F32Array]:
    """An output (rows, columns) and the room around it, which must stay 7."""
    room = np.full((rows + 1, columns + 5), 7, np.float32)
    return room[:rows, :columns], room


def check_guard(out: F32Array, room: F32Array) -> None:
    """Fails where numbers next to `out` were written."""
    rows, columns = out.shape
    assert np.all(room[rows:] == 7) and np.all(room[:rows, columns:] == 7)


def linear(ops: CpuOps, x: F32Array, weight: PackedWeight) -> F32Array:
    """The op's result in guarded room."""
    out, room = guarded(x.shape[0], weight.rows)
    ops.linear(out, x, weight)
    check_guard(out, room)
    return out
