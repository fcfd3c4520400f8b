"""MLX's affine matrices, and a list of MLX's quantization modes.

    x.weight (rows, columns * bits / 32) uint32    codes along the columns, lowest bits first
    x.scales, x.biases (rows, groups) float16, bfloat16 or float32

Experts are stacks of such tensors, with one more axis in front: x.switch_mlp.{gate,up,down}_proj.

value = scale * code + bias. In the other modes codes are floats of 4 or 8 bits, and scales are bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from twostroke.ops.operands import F32Array, U8Array
from twostroke.ops.stored_values import StoredValues
from twostroke.types.spec.formats import WeightKind
from twostroke.weights.quantized.bits import unpacked, words_for
from twostroke.weights.quantized.matrix import GroupedRows, affine_kinds, words_of
from twostroke.weights.quantized.parts import FLOATS, WORDS, RawTensor, StoredPart, StoredTensors
from twostroke.weights.tensor_source import TensorInfo


@dataclass(frozen=True, slots=True)
class MlxMode:
    """The numbers of bits and the group sizes that a quantization mode of MLX allows."""

    bits: tuple[int, ...]
    groups: tuple[int, ...]


MODES = {
    "affine": MlxMode((2, 3, 4, 5, 6, 8), (32, 64, 128)),
    "mxfp4": MlxMode((4,), (32,)),
    "nvfp4": MlxMode((4,), (16,)),
    "mxfp8": MlxMode((8,), (32,)),
}


STACK = ".switch_mlp."
MIXTRAL, MIXTRAL_NAMES = ".block_sparse_moe", {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
"""The names of the experts' matrices in a Mixtral checkpoint outside MLX."""


@dataclass(frozen=True, eq=False, slots=True)
class OneOfStack:
    """One expert's matrix as a tensor, read from a stored stack of all experts. Satisfies `RawTensor`."""

    stack: RawTensor
    index: int

    @property
    def info(self) -> TensorInfo:
        """The shape, dtype and number of bytes of the one matrix. The offset is that of the whole stack in the file."""
        whole = self.stack.info
        return TensorInfo(whole.dtype, whole.shape[1:], whole.offset, whole.num_bytes // whole.shape[0])

    def read_raw(self, first: int, count: int) -> U8Array:
        """Returns the bytes of rows [first, first + count) of the one matrix. The file is read for the whole matrix
        each time."""
        own = self.info
        each = own.num_bytes // max(1, own.rows)
        return self.stack.read_raw(self.index, 1).reshape(-1)[first * each : (first + count) * each]


def each_expert(stored: StoredTensors, module: str) -> Iterator[tuple[str, StoredTensors]]:
    """Yields, for each expert of a stack, the name of its module in the unquantized model, and its tensors under the
    names that the stack's tensors have. Raises CorruptModel."""
    scales = StoredPart(module + ".scales", stored.tensors[module + ".scales"])
    before, stack, name = module.rpartition(STACK)
    if not stack:
        raise scales.wrong(f"It is a stack, and its name has no {STACK[1:-1]}: its experts are not known.")
    own = MIXTRAL_NAMES.get(name, name) if before.endswith(MIXTRAL) else name
    parts = {end: f"{module}.{end}" for end in ("weight", "scales", "biases") if stored.has(f"{module}.{end}")}
    for part in parts.values():
        shape = stored.tensors[part].info.shape
        if len(shape) != 3 or shape[0] != scales.shape[0] or 0 in shape:
            raise StoredPart(part, stored.tensors[part]).wrong(
                f"It has the shape {list(shape)}, and the scales are of {scales.shape[0]} experts."
            )
    for expert in range(scales.shape[0]):
        found = f"{before}.experts.{expert}.{own}"
        yield found, StoredTensors({part: OneOfStack(stored.tensors[part], expert) for part in parts.values()})


@dataclass(frozen=True, eq=False, slots=True)
class MlxMatrix:
    """A matrix of MLX. Satisfies `QuantizedMatrix`."""

    weight: StoredPart
    scales: StoredPart
    biases: StoredPart
    bits: int
    group: int

    @classmethod
    def of(cls, stored: StoredTensors, module: str, bits: int, group: int) -> MlxMatrix:
        """Returns the matrix of a module. Raises CorruptModel naming the part that does not fit."""
        weight = stored.part(module + ".weight", WORDS, (None, None))
        columns = weight.shape[1] * 32 // bits
        if words_for(columns, bits) != weight.shape[1] or columns % group:
            raise weight.wrong(f"Its {weight.shape[1]} words a row are no groups of {group} codes of {bits} bits.")
        sizes = (weight.shape[0], columns // group)
        scales, biases = (stored.part(f"{module}.{name}", FLOATS, sizes) for name in ("scales", "biases"))
        return cls(weight, scales, biases, bits, group)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the dequantized matrix, (rows, columns)."""
        return self.weight.shape[0], self.scales.shape[1] * self.group

    @property
    def words(self) -> str:
        return words_of("MLX", self.bits, self.shape[1] + 1, self.group)

    @property
    def parts(self) -> tuple[str, ...]:
        return self.weight.name, self.scales.name, self.biases.name

    @property
    def num_bytes(self) -> int:
        return sum(part.info.num_bytes for part in (self.weight, self.scales, self.biases))

    @property
    def kinds(self) -> frozenset[WeightKind]:
        return affine_kinds(self.bits, self.shape[1], self.group)

    def values(self, first: int, count: int) -> F32Array:
        return self._rows(first, count).values()

    def stored(self, first: int, count: int, kind: WeightKind) -> StoredValues:
        return self._rows(first, count).stored(kind)

    def _rows(self, first: int, count: int) -> GroupedRows:
        codes = unpacked(self.weight.rows(first, count).view(np.uint32), self.bits)
        scales, biases = self.scales.floats(first, count), self.biases.floats(first, count)
        return GroupedRows(codes, scales, self.group, self.bits, biases=biases)
