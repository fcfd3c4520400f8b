"""The layout of AWQ checkpoints, version gemm, as AutoAWQ stores it.

    x.qweight (columns, rows / 8) int32    eight rows a word, in the order 0, 2, 4, 6, 1, 3, 5, 7
    x.qzeros  (groups, rows / 8) int32     zero points, packed as the codes
    x.scales  (groups, rows) float16
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twostroke.quantize.layouts.named import Arrays
from twostroke.quantize.layouts.words import WORD_BITS, packed_words
from twostroke.quantize.mathematics.gptq import Order
from twostroke.quantize.mathematics.grid import GridRule
from twostroke.quantize.mathematics.solved import Solved, U8Array

PLACES = (0, 2, 4, 6, 1, 3, 5, 7)
"""For each code of a word, its row among the eight."""


@dataclass(frozen=True, slots=True)
class AwqLayout:
    """The layout of 4 bits with zero points. Satisfies `Layout`."""

    rule: GridRule = GridRule(4, symmetric=False)
    order: Order = Order.FIXED

    def group_for(self, rows: int, columns: int, asked: int) -> int | None:
        """Returns the group that was asked for; None unless rows fill whole words and columns fill whole groups."""
        return None if rows % len(PLACES) or columns % asked else asked

    def arrays(self, solved: Solved) -> Arrays:
        return {
            "qweight": _words(solved.codes.T, self.rule.bits),
            "qzeros": _words(solved.zeros.T, self.rule.bits),
            "scales": np.ascontiguousarray(solved.scales.T).astype(np.float16),
        }

    def config(self, group: int, left_out: tuple[str, ...]) -> dict[str, Any]:
        return {
            "quant_method": "awq",
            "bits": self.rule.bits,
            "group_size": group,
            "zero_point": True,
            "version": "gemm",
            "modules_to_not_convert": list(left_out) or None,
        }


def _words(codes: U8Array, bits: int) -> NDArray[np.int32]:
    """Packs codes (n, rows) into words (n, rows * bits / 32)."""
    each = WORD_BITS // bits
    runs = codes.reshape(len(codes), -1, each)[:, :, list(PLACES)]
    return packed_words(np.ascontiguousarray(runs).reshape(len(codes), -1), bits)
