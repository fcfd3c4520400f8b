"""What all layouts of quantized matrices have in common: the arrays that a file stores, their types' names, and the
protocol of a layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from twostroke.quantize.mathematics.gptq import Order
from twostroke.quantize.mathematics.grid import GridRule
from twostroke.quantize.mathematics.solved import Solved

Arrays = dict[str, NDArray[Any]]
"""A module's arrays, by the part of their names after the module's name."""

TYPES: Mapping[np.dtype[Any], str] = {
    np.dtype(np.float16): "F16",
    np.dtype(np.float32): "F32",
    np.dtype(np.int8): "I8",
    np.dtype(np.int32): "I32",
    np.dtype(np.int64): "I64",
}
"""The names that safetensors gives the types of arrays that layouts make."""


class Layout(Protocol):
    """A file format of the Hugging Face hub for quantized matrices, such as GPTQ's."""

    @property
    def rule(self) -> GridRule:
        """How codes are chosen for this layout: the number of bits, whether they are symmetric, whether scales are
        searched."""

    @property
    def order(self) -> Order:
        """The rule for which columns share a scale: neighbours, or with act-order any columns."""

    def group_for(self, rows: int, columns: int, asked: int) -> int | None:
        """Returns how many columns share a scale in a matrix of this shape, where `asked` is the usual number; None
        where the matrix cannot be stored."""

    def arrays(self, solved: Solved) -> Arrays:
        """Returns the arrays that are stored for a quantized matrix."""

    def config(self, group: int, left_out: tuple[str, ...]) -> dict[str, Any]:
        """Returns `quantization_config` of config.json. left_out: modules that are stored as floats."""
