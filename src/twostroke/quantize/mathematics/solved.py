"""A matrix as codes, scales and zero points, and the plain rounding of a matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twostroke.quantize.mathematics.grid import Grid, GridRule, find_grid
from twostroke.quantize.mathematics.moments import F32Array

U8Array = NDArray[np.uint8]
I32Array = NDArray[np.int32]


@dataclass(frozen=True, eq=False, slots=True)
class Solved:
    """A rounded matrix. codes: (rows, columns). scales: (rows, groups) float32, exact in float16. zeros: (rows, groups)
    codes.

    group_of: (columns,) the group of each column.
    """

    rule: GridRule
    codes: U8Array
    scales: F32Array
    zeros: U8Array
    group: int
    group_of: I32Array

    @classmethod
    def of(cls, rule: GridRule, codes: U8Array, grids: list[Grid], group: int, group_of: I32Array) -> Solved:
        """Returns the rounded matrix that has these codes (rows, columns). grids: for each group of columns,
        the scales and zero points of all rows. group: the number of columns of a group. group_of: (columns,) the group
        of each column. rule: the rule by which the grids were found."""
        scales = np.stack([grid.scales for grid in grids], axis=1)
        zeros = np.stack([grid.zeros for grid in grids], axis=1).astype(np.uint8)
        return cls(rule, codes, scales, zeros, group, group_of)

    @property
    def in_order(self) -> bool:
        """Whether the columns of each group are adjacent, group after group."""
        return bool(np.array_equal(self.group_of, np.arange(len(self.group_of)) // self.group))

    def values(self) -> F32Array:
        """Returns the values (rows, columns) for which the codes stand."""
        whole = self.codes.astype(np.float32) - self.zeros[:, self.group_of].astype(np.float32)
        found: F32Array = whole * self.scales[:, self.group_of]
        return found

    def rows(self, first: int, count: int) -> Solved:
        """Returns `count` of the rows, from `first` on."""
        here = slice(first, first + count)
        return Solved(self.rule, self.codes[here], self.scales[here], self.zeros[here], self.group, self.group_of)


def in_groups(columns: int, group: int) -> I32Array:
    """Returns the group of each column where columns lie in order."""
    return (np.arange(columns) // group).astype(np.int32)


def round_matrix(matrix: F32Array, rule: GridRule, group: int, importance: F32Array | None = None) -> Solved:
    """Returns the nearest codes of a matrix (rows, columns). importance: (columns,) weights of errors in the search of
    scales."""
    rows, columns = matrix.shape
    codes, grids = np.empty((rows, columns), np.uint8), []
    for first in range(0, columns, group):
        here = slice(first, first + group)
        grid = find_grid(matrix[:, here], rule, None if importance is None else importance[here])
        codes[:, here] = grid.codes(matrix[:, here])
        grids.append(grid)
    return Solved.of(rule, codes, grids, group, in_groups(columns, group))
