"""Moments of a product's inputs: their second moments, and the magnitude of each channel.

For inputs x (T, columns), H = sum of x xT over all rows. Where the matrix W changes by D, the squared error of all
outputs is trace(D H DT). H is therefore all that rounding must know of the inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

F32Array = NDArray[np.float32]
F64Array = NDArray[np.float64]


@dataclass(eq=False)
class Moments:
    """The moments of some inputs. hessian: (columns, columns) float32, the sum of x xT. magnitudes: (columns,) float64,
    the sum of |x|. largest: (columns,) float32, the largest |x|. rows: the number of inputs."""

    hessian: F32Array
    magnitudes: F64Array
    largest: F32Array
    rows: int = 0

    @classmethod
    def none(cls, columns: int) -> Moments:
        """Returns the moments of no inputs."""
        return cls(np.zeros((columns, columns), np.float32), np.zeros(columns), np.zeros(columns, np.float32))

    def add(self, x: F32Array) -> None:
        """Adds the inputs of T rows, (T, columns), to the sums, and updates `largest`. Raises ValueError for values
        that are NaN or infinite."""
        sums = x.T @ x
        if not np.isfinite(sums.trace()):
            raise ValueError("some inputs are NaN or infinite")
        self.hessian += sums
        magnitudes = np.abs(x)
        self.magnitudes += magnitudes.sum(axis=0, dtype=np.float64)
        np.maximum(self.largest, magnitudes.max(axis=0), out=self.largest)
        self.rows += len(x)

    def scaled(self, factors: F32Array) -> Moments:
        """Returns the moments that the inputs would have if each column was divided by its factor. factors:
        (columns,)."""
        inverse = np.float32(1) / factors
        hessian = self.hessian * inverse[:, None] * inverse
        return Moments(hessian, self.magnitudes * inverse, self.largest * inverse, self.rows)


def output_error(change: F32Array, hessian: F32Array) -> float:
    """Returns trace(D H DT): the squared error of all outputs where the matrix changes by D (rows, columns)."""
    return float(np.einsum("ij,ij->", change @ hessian, change, dtype=np.float64))
