"""Random values of weights that keep a file's codes."""

from __future__ import annotations

import numpy as np

from twostroke.ops.code_tables import E2M1_CODES, IQ4_CODES
from twostroke.ops.stored_layout import scale_columns
from twostroke.ops.stored_values import StoredValues
from twostroke.types.spec.formats import WeightKind

KINDS = [kind for kind in WeightKind if kind.is_stored]
CODES = {
    WeightKind.FLAT8: (-128, 127), WeightKind.FLAT8_MIN: (-128, 127), WeightKind.FLAT4: (-8, 7),
    WeightKind.FLAT4_MIN: (0, 15), WeightKind.FLAT5: (-16, 15), WeightKind.FLAT5_MIN: (0, 31),
    WeightKind.SUPER8: (-128, 127), WeightKind.SUPER8_MIN: (-128, 127), WeightKind.SUPER4_MIN: (0, 15),
    WeightKind.SUPER4_16: (-8, 7), WeightKind.SUPER4_MIN_16: (0, 15), WeightKind.SUPER5_MIN: (0, 31),
    WeightKind.SUPER6: (-32, 31), WeightKind.SUPER6_MIN: (-32, 31),
    WeightKind.SUPER3: (-4, 3), WeightKind.SUPER2: (-1, 2), WeightKind.SUPER2_MIN: (0, 3),
    WeightKind.FLAT4_IQ: (-127, 113), WeightKind.SUPER4_IQ: (-127, 113),
    WeightKind.E2M1_32: (-12, 12), WeightKind.E2M1_16: (-12, 12),
}  # fmt: skip
CODES |= {kind: (0, 15) if kind.has_nibbles else (-128, 127) for kind in KINDS if kind.is_affine}


def random_values(kind: WeightKind, rows: int, columns: int, seed: int = 0) -> StoredValues:
    """Returns random values over the full range of the kind, including the extremes."""
    generator = np.random.default_rng(seed)
    low, high = CODES[kind]
    codes = generator.integers(low, high + 1, (rows, columns), np.int16).astype(np.int8)
    codes[:, :8] = [low, high] * 4
    if kind.is_e2m1 or kind.is_iq4:
        codes = (E2M1_CODES if kind.is_e2m1 else IQ4_CODES)[generator.integers(0, 16, codes.shape)]
        codes[:, :8] = [low, high] * 4
    wide, fine = scale_columns(kind), kind.step_columns

    def halves() -> np.ndarray:
        found = generator.normal(0, 1 / 64, (rows, columns // wide)).astype(np.float32)
        found[0] = 0
        return found if kind.has_wide_scales else found.astype(np.float16).astype(np.float32)

    multipliers = minima = None
    if kind.is_super:
        multipliers = generator.integers(-128, 128, (rows, columns // fine)).astype(np.int16)
        if kind.has_minimum:
            minima = generator.integers(0, 256, (rows, columns // fine)).astype(np.int16)
    return StoredValues(codes, halves(), multipliers, halves() if kind.has_minimum else None, minima)
