"""Rows of a quantized matrix as unpacked codes and scales. File formats are read into this form, and packed from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from twostroke.ops.code_tables import I8Array
from twostroke.ops.operands import F32Array

I16Array = NDArray[np.int16]


class StoredValues(Struct, frozen=True, eq=False):
    """n rows, or blocks, of a quantized matrix, unpacked to codes and scales.

    codes: (n, elements). scales: (n, a) float32. multipliers: (n, b), where b is a multiple of a; None means ones.
    minimum_scales: (n, a); None means no minimum. minima: (n, b), not negative; None means ones.
    """

    codes: I8Array
    scales: F32Array
    multipliers: I16Array | None = None
    minimum_scales: F32Array | None = None
    minima: I16Array | None = None

    def steps(self) -> F32Array:
        """Returns scale * multiplier of each subgroup of columns, (n, groups): the factors of the codes."""
        return _times(self.scales, self.multipliers)

    def offsets(self) -> F32Array | None:
        """Returns minimum_scale * minimum of each subgroup, (n, groups), which is subtracted; None without minima."""
        return None if self.minimum_scales is None else _times(self.minimum_scales, self.minima)

    def values(self) -> F32Array:
        """Returns the weights that the codes stand for, (n, elements) float32."""
        steps, offsets = self.steps(), self.offsets()
        grouped = self.codes.reshape(*steps.shape, -1).astype(np.float32)
        grouped *= steps[:, :, None]
        if offsets is not None:
            grouped -= offsets[:, :, None]
        return grouped.reshape(self.codes.shape)

    def scaled(self, factor: float) -> StoredValues:
        """Returns all values times a factor."""
        if factor == 1.0:
            return self
        minima = None if self.minimum_scales is None else self.minimum_scales * np.float32(factor)
        return replace(self, scales=self.scales * np.float32(factor), minimum_scales=minima)

    @staticmethod
    def joined(pieces: Sequence[StoredValues]) -> StoredValues:
        """Returns the rows of all pieces, one piece below the other. The pieces have the same parts."""

        def below(parts: list[Any]) -> Any:
            return None if parts[0] is None else np.concatenate(parts)

        return StoredValues(
            below([piece.codes for piece in pieces]),
            below([piece.scales for piece in pieces]),
            below([piece.multipliers for piece in pieces]),
            below([piece.minimum_scales for piece in pieces]),
            below([piece.minima for piece in pieces]),
        )

    def by_rows(self, rows: int) -> StoredValues:
        """Returns the n blocks as `rows` rows, with n / rows consecutive blocks joined to each row."""

        def shaped(part: Any) -> Any:
            return None if part is None else part.reshape(rows, -1)

        return StoredValues(
            shaped(self.codes),
            shaped(self.scales),
            shaped(self.multipliers),
            shaped(self.minimum_scales),
            shaped(self.minima),
        )


def _times(scales: F32Array, whole: I16Array | None) -> F32Array:
    if whole is None:
        return scales
    parts = whole.reshape(len(scales), scales.shape[1], -1).astype(np.float32) * scales[:, :, None]
    return parts.reshape(whole.shape)
