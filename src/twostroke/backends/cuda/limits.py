"""Which programs the CUDA backend can run, and the scratch memory that its kernels take.

Knows: programs, which ops have kernels.
Must not know: devices, models.
"""

from __future__ import annotations

from twostroke.backends.cuda import library as native
from twostroke.program.op import FormatChoice
from twostroke.program.program import Program
from twostroke.spec.formats import WeightKind

MOST_HEAD_DIM = 512
ROWS_AT_ONCE = 128
"""Rows of activations that products hold in scratch memory: kRowsAtOnce of csrc/cuda/host/launch_products.cpp."""
KINDS = (WeightKind.F32, WeightKind.BF16, WeightKind.INT8, WeightKind.INT4)


def lacking(program: Program, format_for: FormatChoice) -> str | None:
    """What of a program has no kernels, as a sentence; None where all has. A backend that is not built lacks nothing
    here: opening a device says that."""
    if native.missing_parts(native.LIBRARY_FOLDER):
        return None
    ops = sorted({call.NAME for call in program.calls} - native.cuda_op_numbers(native.LIBRARY_FOLDER).keys())
    if ops:
        return f"It has no kernels for {', '.join(ops)}."
    kinds = sorted(
        {format_for(weight).kind.name.lower() for weight in program.weights if format_for(weight).kind not in KINDS}
    )
    if kinds:
        return f"It has no kernels for weights of {', '.join(kinds)}."
    widest = max((kind.head_dim for kind in program.paged()), default=0)
    return f"Its heads have {widest} dimensions, more than {MOST_HEAD_DIM}." if widest > MOST_HEAD_DIM else None


def scratch_bytes(program: Program) -> int:
    """The most that kernels hold beside a step's values: rows in int8 with their scales, and both halves of a gated
    product."""
    return max((ROWS_AT_ONCE * (4 * weight.rows + 2 * weight.columns) for weight in program.weights), default=0)
