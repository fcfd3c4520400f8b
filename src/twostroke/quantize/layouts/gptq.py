"""The layout of GPTQ checkpoints, first format (`checkpoint_format` "gptq"), as AutoGPTQ and GPTQModel store it.

    x.qweight (columns * bits / 32, rows) int32    codes along the columns
    x.qzeros  (groups, rows * bits / 32) int32     zero points along the rows, each less 1
    x.scales  (groups, rows) float16
    x.g_idx   (columns,) int32                     the group of each column
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from twostroke.quantize.layouts.named import Arrays
from twostroke.quantize.layouts.words import WORD_BITS, packed_words
from twostroke.quantize.mathematics.gptq import DAMPING, Order
from twostroke.quantize.mathematics.grid import GridRule
from twostroke.quantize.mathematics.solved import Solved


@dataclass(frozen=True, slots=True)
class GptqLayout:
    """GPTQ's layout with 4 bits, symmetric, with act-order. Satisfies `Layout`."""

    rule: GridRule = GridRule(4, symmetric=True)
    order: Order = Order.MOVED

    def group_for(self, rows: int, columns: int, asked: int) -> int | None:
        """Returns the group size `asked`. Returns None where rows or columns do not fill whole 32-bit words, or where
        columns cannot be divided into groups of this size."""
        each = WORD_BITS // self.rule.bits
        return None if rows % each or columns % each or columns % asked else asked

    def arrays(self, solved: Solved) -> Arrays:
        bits = self.rule.bits
        return {
            "qweight": np.ascontiguousarray(packed_words(solved.codes, bits).T),
            "qzeros": packed_words(np.ascontiguousarray(solved.zeros.T) - np.uint8(1), bits),
            "scales": np.ascontiguousarray(solved.scales.T).astype(np.float16),
            "g_idx": solved.group_of.astype(np.int32),
        }

    def config(self, group: int, left_out: tuple[str, ...]) -> dict[str, Any]:
        """Returns `quantization_config` of config.json. Its field `dynamic`, which GPTQModel and vLLM read, names the
        modules in `left_out` as not quantized."""
        found: dict[str, Any] = {
            "quant_method": "gptq",
            "bits": self.rule.bits,
            "group_size": group,
            "desc_act": self.order is Order.MOVED,
            "sym": self.rule.symmetric,
            "damp_percent": DAMPING,
            "true_sequential": True,
            "lm_head": False,
            "checkpoint_format": "gptq",
            "meta": {"quantizer": ["twostroke"]},
        }
        if left_out:
            found["dynamic"] = {f"-:^{re.escape(module)}$": {} for module in left_out}
        return found
