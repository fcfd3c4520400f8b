"""The arrays that a file stores, the names of their types there, and the form of a layout."""

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
    """A format of the hub for quantized matrices."""

    @property
    def rule(self) -> GridRule:
        """The rule of the grids that the layout can store."""

    @property
    def order(self) -> Order:
        """The rule for which columns may share a grid."""

    def group_for(self, rows: int, columns: int, asked: int) -> int | None:
        """Returns the group for a matrix of this shape, where `asked` is the usual one; None where the matrix cannot be
        stored."""

    def arrays(self, solved: Solved) -> Arrays:
        """Returns the arrays that are stored for a matrix."""

    def config(self, group: int, left_out: tuple[str, ...]) -> dict[str, Any]:
        """Returns `quantization_config` of config.json. left_out: modules that are stored as they were."""
