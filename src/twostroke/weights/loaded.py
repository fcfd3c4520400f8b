"""The packed weights of a model, by their keys in the model's program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from twostroke.ops.operands import F32Array, PackedWeight, U8Array
from twostroke.ops.program.values import Vector, Weight


@dataclass(frozen=True, eq=False)
class ModelWeights:
    """A model's weights. mapped: the bytes of a mapped file, if all weights are views of it; else None."""

    matrices: Mapping[str, PackedWeight]
    vectors: Mapping[str, F32Array]
    mapped: U8Array | None = None

    def matrix(self, weight: Weight) -> PackedWeight:
        """Returns the packed matrix (or bank) of a program's weight."""
        return self.matrices[weight.key]

    def vector(self, vector: Vector) -> F32Array:
        """Returns the numbers of a vector: (length,) float32."""
        return self.vectors[vector.key]
