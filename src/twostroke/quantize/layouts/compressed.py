"""The layouts of compressed-tensors: pack-quantized (4 bits in groups) and int-quantized (8 bits, one scale a row).

    x.weight_packed (rows, columns * bits / 32) int32    codes along the columns
    x.weight_scale  (rows, groups) float16
    x.weight_shape  (2,) int64

    x.weight        (rows, columns) int8                 code - 128
    x.weight_scale  (rows, 1) float32
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from twostroke.quantize.layouts.named import Arrays
from twostroke.quantize.layouts.words import WORD_BITS, packed_words
from twostroke.quantize.mathematics.gptq import Order
from twostroke.quantize.mathematics.grid import GridRule
from twostroke.quantize.mathematics.solved import Solved

VERSION = "0.20.0"
"""The version of compressed-tensors whose layout this is."""


@dataclass(frozen=True, slots=True)
class PackedLayout:
    """The layout of 4 bits, symmetric, with groups of adjacent columns. Satisfies `Layout`."""

    rule: GridRule = GridRule(4, symmetric=True)
    order: Order = Order.FIXED

    def group_for(self, rows: int, columns: int, asked: int) -> int | None:
        """Returns the group size `asked`. Returns None where columns cannot be divided into groups of this size, or
        where a group does not fill whole words."""
        return None if columns % asked or asked % (WORD_BITS // self.rule.bits) else asked

    def arrays(self, solved: Solved) -> Arrays:
        return {
            "weight_packed": packed_words(solved.codes, self.rule.bits),
            "weight_scale": solved.scales.astype(np.float16),
            "weight_shape": np.array(solved.codes.shape, np.int64),
        }

    def config(self, group: int, left_out: tuple[str, ...]) -> dict[str, Any]:
        weights = {"num_bits": self.rule.bits, "group_size": group, "strategy": "group"}
        return _config("pack-quantized", weights, None, left_out)


@dataclass(frozen=True, slots=True)
class RowsLayout:
    """The layout of 8 bits with one scale a row, for inputs that are rounded to int8 token by token. Satisfies
    `Layout`."""

    rule: GridRule = GridRule(8, symmetric=True)
    order: Order = Order.FIXED

    def group_for(self, rows: int, columns: int, asked: int) -> int | None:
        """Returns `columns`, because each row is one group, whatever group size was asked for."""
        return columns

    def arrays(self, solved: Solved) -> Arrays:
        whole = solved.codes.astype(np.int16) - np.int16(self.rule.middle)
        return {"weight": whole.astype(np.int8), "weight_scale": solved.scales.astype(np.float32)}

    def config(self, group: int, left_out: tuple[str, ...]) -> dict[str, Any]:
        weights = {"num_bits": self.rule.bits, "group_size": None, "strategy": "channel"}
        inputs = _arguments({"num_bits": 8, "group_size": None, "strategy": "token", "dynamic": True})
        return _config("int-quantized", weights, inputs, left_out)


def _config(
    kept: str, weights: dict[str, Any], inputs: dict[str, Any] | None, left_out: tuple[str, ...]
) -> dict[str, Any]:
    group = {
        "targets": ["Linear"],
        "weights": _arguments({**weights, "dynamic": False}),
        "input_activations": inputs,
        "output_activations": None,
        "format": kept,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": kept,
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": list(left_out),
        "kv_cache_scheme": None,
        "version": VERSION,
    }


def _arguments(more: dict[str, Any]) -> dict[str, Any]:
    usual = {"type": "int", "symmetric": True, "actorder": None, "block_structure": None}
    return {**usual, "observer": None if more["dynamic"] else "minmax", "observer_kwargs": {}, **more}
