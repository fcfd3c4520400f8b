"""GPTQ (Frantar et al. 2022): columns are rounded one after the other. The columns that are not rounded yet are changed
to undo the effect of each rounding on the outputs.

With H the second moments of the inputs, damped by a share of the mean of its diagonal, and U the upper triangular
factor of its inverse (H^-1 = UT U): the error e = (w - value) / U[i, i] of column i changes each later column j by -e *
U[i, j]. Columns are taken in order of falling H[i, i] (act-order), so that those that matter most are rounded first.

With `Order.MOVED`, groups follow the order of rounding. A group's grid is found for its columns as they are when the
first of them is rounded. The formats store which column is in which group. With `Order.FIXED` the columns of a group
are adjacent, and grids are found from the matrix as it was. A row's codes depend on that row and H alone.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np

from twostroke.quantize.mathematics.grid import Grid, GridRule, find_grid
from twostroke.quantize.mathematics.moments import F32Array
from twostroke.quantize.mathematics.solved import I32Array, Solved, in_groups

DAMPING = 0.01
MORE_DAMPING = (1, 10, 100)
"""Factors of DAMPING that are tried in order until the moments have a Cholesky factor."""
BLOCK = 128
"""The number of columns whose changes are collected, so that one product changes the rest of the matrix."""


class Order(enum.Enum):
    """Which columns share a scale and a zero point. FIXED: neighbouring columns. MOVED: columns that GPTQ rounds one
    after the other; it begins with those that have the largest inputs."""

    FIXED = "fixed"
    MOVED = "moved"


@dataclass(frozen=True, slots=True)
class GptqRule:
    """How GPTQ rounds a matrix. grid: how the scale and the zero point of a group are found. group: the number of
    columns that share them. order: which columns form a group. damping: this share of the mean of the moments' diagonal
    is added to the diagonal."""

    grid: GridRule
    group: int
    order: Order
    damping: float = DAMPING


def inverse_factor(hessian: F32Array, damping: float) -> F32Array:
    """Returns for (n, n) second moments the factor U, upper triangular float32, with UT U the inverse of the damped
    moments.

    Raises ValueError where no damping makes the moments positive definite.
    """
    mean = float(np.mean(np.diag(hessian), dtype=np.float64))
    for times in MORE_DAMPING:
        damped = hessian.astype(np.float64)
        damped[np.diag_indices_from(damped)] += damping * times * mean
        try:
            # J reverses rows. From J H J = L LT follows H = V VT, where V = J L J is upper triangular; so U = V^-1.
            lower = np.linalg.cholesky(damped[::-1, ::-1])
        except np.linalg.LinAlgError:
            continue
        upper: F32Array = np.triu(np.linalg.inv(lower[::-1, ::-1])).astype(np.float32)
        return upper
    raise ValueError("second moments are not positive")


def gptq(matrix: F32Array, hessian: F32Array, rule: GptqRule) -> Solved:
    """Rounds a matrix (rows, columns) for inputs with the second moments `hessian` (columns, columns). Raises
    ValueError."""
    columns = matrix.shape[1]
    unseen = np.diag(hessian) == 0
    order = np.argsort(-np.diag(hessian), kind="stable").astype(np.int32)
    work = matrix[:, order].astype(np.float32)
    fixed = _fixed_grids(matrix, hessian, rule) if rule.order is Order.FIXED else []
    moments = hessian[np.ix_(order, order)]
    moments[np.diag_indices_from(moments)] += unseen[order]
    factor = inverse_factor(moments, rule.damping)
    group_of = in_groups(columns, rule.group)
    codes = np.empty(work.shape, np.float32)
    grids: list[Grid] = list(fixed)
    for first in range(0, columns, BLOCK):
        last = min(first + BLOCK, columns)
        errors = np.empty((len(work), last - first), np.float32)
        for i in range(first, last):
            if not fixed and i % rule.group == 0:
                # `work` contains the changes by earlier columns of the block, up to the end of the block. The group may
                # reach further.
                ahead = work[:, i : i + rule.group].copy()
                if i + rule.group > last:
                    ahead[:, last - i :] -= errors[:, : i - first] @ factor[first:i, last : i + rule.group]
                grids.append(find_grid(ahead, rule.grid))
            grid = fixed[group_of[order[i]]] if fixed else grids[-1]
            column = work[:, i : i + 1]
            codes[:, i : i + 1] = grid.codes(column)
            error = (column - grid.values(codes[:, i : i + 1])) / factor[i, i]
            work[:, i + 1 : last] -= error * factor[i, i + 1 : last]
            errors[:, i - first] = error[:, 0]
        work[:, last:] -= errors @ factor[first:last, last:]
    return _solved(codes, grids, order, rule)


def _solved(codes: F32Array, grids: list[Grid], order: I32Array, rule: GptqRule) -> Solved:
    back = np.argsort(order, kind="stable")
    groups = in_groups(len(order), rule.group)
    group_of = groups if rule.order is Order.FIXED else groups[back]
    return Solved.of(rule.grid, codes[:, back].astype(np.uint8), grids, rule.group, group_of.astype(np.int32))


def _fixed_grids(matrix: F32Array, hessian: F32Array, rule: GptqRule) -> list[Grid]:
    """Returns the scales and zero points of groups of adjacent columns. Errors of columns with large inputs weigh
    more."""
    importance = np.diag(hessian)
    steps = range(0, matrix.shape[1], rule.group)
    return [find_grid(matrix[:, at : at + rule.group], rule.grid, importance[at : at + rule.group]) for at in steps]
