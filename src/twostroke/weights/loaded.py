"""The packed weights of a model, by the keys that its program gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from twostroke.ops.operands import F32Array, PackedWeight, U8Array
from twostroke.ops.program.values import Vector, Weight


@dataclass(frozen=True, eq=False)
class ModelWeights:
    """A model's weights. mapped: the bytes of the file that all of them are views of, where they are."""

    matrices: Mapping[str, PackedWeight]
    vectors: Mapping[str, F32Array]
    mapped: U8Array | None = None

    def matrix(self, weight: Weight) -> PackedWeight:
        """The packed matrix (or bank) of a program's weight."""
        return self.matrices[weight.key]

    def vector(self, vector: Vector) -> F32Array:
        """(length,) float32."""
        return self.vectors[vector.key]
