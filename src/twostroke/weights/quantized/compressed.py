"""compressed-tensors: the checkpoints of llm-compressor, each group of modules in a format of its own.

    pack-quantized        weight_packed (rows, columns * bits / 32) int32, weight_scale, weight_zero_point packed along
                          the rows, weight_shape, weight_g_idx
    int-quantized         weight int8, weight_scale, weight_zero_point int8
    float-quantized       weight e4m3, weight_scale of tensors, rows or tiles
    nvfp4-pack-quantized  weight_packed uint8, weight_scale e4m3, weight_global_scale (scales are divided by it)
    mxfp4-pack-quantized  weight_packed uint8, weight_scale uint8
    mxfp8-quantized       weight e4m3, weight_scale uint8

Packed codes and zero points are stored with 2^(bits - 1) added.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from twostroke.ops.operands import F32Array, I32Array, U8Array
from twostroke.ops.stored_values import StoredValues
from twostroke.types.errors import UnsupportedModel
from twostroke.types.spec.fields import Fields
from twostroke.types.spec.formats import WeightKind
from twostroke.weights.quantized.bits import unpacked, words_for
from twostroke.weights.quantized.indexed import IndexedMatrix
from twostroke.weights.quantized.matrix import GroupedRows, QuantizedMatrix, words_of
from twostroke.weights.quantized.parts import FLOATS, WORDS, Held, StoredPart, StoredTensors
from twostroke.weights.quantized.scaled import SCALES, ScaledMatrix
from twostroke.weights.quantized.small_floats import SmallFloatMatrix

PACKED_BITS = (2, 3, 4, 5, 6, 8)
FORMATS = (
    "pack-quantized",
    "int-quantized",
    "float-quantized",
    "naive-quantized",
    "nvfp4-pack-quantized",
    "mxfp4-pack-quantized",
    "mxfp8-quantized",
)
_STRATEGIES = ("tensor", "channel", "group", "block", "tensor_group")


@dataclass(frozen=True, slots=True)
class WeightScheme:
    """How a config group stores weights. block: rows and columns of a tile, for the strategy "block"."""

    format: str
    bits: int
    floats: bool
    symmetric: bool
    strategy: str
    group: int
    block: tuple[int, int]

    @classmethod
    def read(cls, fields: Fields, usual_format: str) -> WeightScheme | None:
        """Returns the scheme of a config group; None where weights are not quantized. Raises CorruptModel,
        UnsupportedModel."""
        weights = fields.group("weights")
        if weights is None:
            return None
        kept = fields.text("format", usual_format)
        if kept not in FORMATS:
            raise UnsupportedModel(
                f"{fields.place}: weights in the format {kept[:40]!r} cannot be read.",
                why="Read are " + ", ".join(FORMATS) + ".",
                fix="Use the original checkpoint, or one in another format.",
            )
        word = weights.text("type", "int")
        if word not in ("int", "float"):
            raise weights.wrong("type", "It must be int or float.")
        bits = weights.integer("num_bits", 2, 8)
        group = weights.optional_integer("group_size", -1, 1 << 20) or 0
        strategy = weights.text("strategy", "group" if group > 0 else "tensor")
        if strategy not in _STRATEGIES:
            raise weights.wrong("strategy", "It must be one of " + ", ".join(_STRATEGIES) + ".")
        if strategy in ("group", "tensor_group") and group < 1:
            raise weights.wrong("group_size", f"The strategy {strategy} needs one.")
        sizes = weights.values.get("block_structure")
        block = (0, 0)
        if strategy == "block":
            if not isinstance(sizes, list) or len(sizes) != 2 or not all(type(s) is int and s > 0 for s in sizes):
                raise weights.wrong("block_structure", "It must be two sizes.")
            block = (sizes[0], sizes[1])
        return cls(kept, bits, word == "float", weights.boolean("symmetric", True), strategy, max(0, group), block)

    @property
    def tile(self) -> tuple[int, int]:
        """The numbers of rows and columns that share a scale; 0 for all."""
        if self.strategy == "block":
            return self.block
        return (0, 0) if self.strategy == "tensor" else (1, self.group if "group" in self.strategy else 0)


def compressed_matrix(stored: StoredTensors, module: str, scheme: WeightScheme, held: Held) -> QuantizedMatrix | None:
    """Returns the matrix of a module; None where its weight is stored as plain numbers. Raises CorruptModel,
    UnsupportedModel."""
    weight = module + ".weight"
    if scheme.format.endswith("fp4-pack-quantized"):
        nv = scheme.format.startswith("nv")
        codes = stored.part(weight + "_packed", ("U8",))
        scales = stored.part(weight + "_scale", ("F8_E4M3",) if nv else ("U8", "F8_E8M0"))
        whole = stored.part(weight + "_global_scale", FLOATS) if nv else None
        words = "compressed-tensors NVFP4, groups of 16" if nv else "compressed-tensors MXFP4, groups of 32"
        return SmallFloatMatrix.of(words, codes, scales, 16 if nv else 32, whole, divided=True)
    if stored.has(weight + "_packed"):
        return PackedMatrix.of(stored, module, scheme, held)
    if not stored.has(weight + "_scale"):
        return None
    part = stored.part(weight, ("F8_E4M3",) if scheme.floats else ("I8",))
    scales = stored.part(weight + "_scale", SCALES)
    has_zero = not scheme.floats and stored.has(weight + "_zero_point")
    zero = stored.part(weight + "_zero_point", ("I8",)) if has_zero else None
    words = f"compressed-tensors {'FP8' if scheme.floats else 'INT8'}, {_scales_of(scheme)}"
    return ScaledMatrix.of(words, part, scales, scheme.tile, zero)


def _scales_of(scheme: WeightScheme) -> str:
    rows, columns = scheme.tile
    if not rows:
        return "one scale a matrix"
    if rows > 1:
        return f"tiles of {rows} x {columns}"
    return f"groups of {columns}" if columns else "one scale a row"


@dataclass(frozen=True, eq=False, slots=True)
class PackedMatrix(IndexedMatrix):
    """A matrix in the format pack-quantized. Satisfies `QuantizedMatrix`."""

    IN_ORDER: ClassVar[int | None] = -1

    scheme: WeightScheme
    packed: StoredPart
    scale: StoredPart
    zero: StoredPart | None
    g_idx: StoredPart | None
    sizes: StoredPart
    shape: tuple[int, ...]
    held: Held

    @classmethod
    def of(cls, stored: StoredTensors, module: str, scheme: WeightScheme, held: Held) -> PackedMatrix:
        """Returns the matrix of a module. Raises CorruptModel naming the part that does not fit."""
        name, bits = module + ".weight", scheme.bits
        packed = stored.part(name + "_packed", WORDS, (None, None))
        sizes = stored.part(name + "_shape", ("I64", "I32"), (2,))
        rows, columns = (int(size) for size in sizes.whole())
        if bits not in PACKED_BITS:
            raise packed.wrong(f"Codes of {bits} bits cannot be read.")
        if packed.shape != (rows, words_for(columns, bits)):
            raise packed.wrong(f"Its shape {list(packed.shape)} does not fit weight_shape [{rows}, {columns}].")
        group = scheme.group or columns
        groups = 1 if scheme.strategy in ("tensor", "channel") else -(-columns // group)
        scale = stored.part(name + "_scale", FLOATS)
        scale_rows = 1 if scheme.strategy == "tensor" else rows
        if int(np.prod(scale.shape)) != scale_rows * groups:
            raise scale.wrong(f"It has the shape {list(scale.shape)}, expected [{scale_rows}, {groups}].")
        zero = None
        if not scheme.symmetric:
            zero = stored.part(name + "_zero_point", (*WORDS, "I8"))
            plain = zero.info.dtype == "I8"
            wanted = scale_rows if plain else words_for(scale_rows, bits)
            if zero.shape != (wanted, groups) and not (plain and zero.shape == (wanted * groups,)):
                raise zero.wrong(f"It has the shape {list(zero.shape)}, expected [{wanted}, {groups}].")
        has_order = stored.has(name + "_g_idx")
        g_idx = stored.part(name + "_g_idx", WORDS, (columns,)) if has_order else None
        return cls(scheme, packed, scale, zero, g_idx, sizes, (rows, columns), held)

    @property
    def columns(self) -> int:
        """The number of columns of the matrix."""
        return self.shape[1]

    @property
    def bits(self) -> int:
        """The bits of a code."""
        return self.scheme.bits

    @property
    def is_flat(self) -> bool:
        return self.scheme.symmetric and self.scale.info.dtype == "F16"

    @property
    def group(self) -> int:
        """The number of columns of a group."""
        return self.shape[1] if self.scheme.strategy in ("tensor", "channel") else self.scheme.group

    @property
    def words(self) -> str:
        order = "act-order" if self.column_groups() is not None else ""
        middle = "" if self.scheme.symmetric else "zero points"
        return words_of("compressed-tensors", self.scheme.bits, self.shape[1], self.group, middle, order)

    @property
    def parts(self) -> tuple[str, ...]:
        more = (part for part in (self.zero, self.g_idx) if part is not None)
        return tuple(part.name for part in (self.packed, self.scale, self.sizes, *more))

    @property
    def num_bytes(self) -> int:
        return self.packed.info.num_bytes + self.scale.info.num_bytes

    def values(self, first: int, count: int) -> F32Array:
        return self._rows(first, count).values()

    def stored(self, first: int, count: int, kind: WeightKind) -> StoredValues:
        return self._rows(first, count).stored(kind)

    def _rows(self, first: int, count: int) -> GroupedRows:
        scales, zeros, groups = self.held.get(self.packed.name, self._read)
        codes = _codes(self.packed.rows(first, count).view(np.uint32), self.bits)[:, : self.shape[1]]
        one = self.scheme.strategy == "tensor"
        here = np.zeros(count, np.int64) if one else slice(first, first + count)
        return GroupedRows(codes, scales[here], self.group, self.bits, zeros=zeros[here], group_of=groups)

    def _read(self) -> tuple[F32Array, NDArray[np.int16], I32Array | None]:
        """Returns scales and zero points (rows, groups), with one row if the matrix has one scale; and the groups of
        columns."""
        scales = self.scale.floats().reshape(1 if self.scheme.strategy == "tensor" else self.shape[0], -1)
        zeros = np.full(scales.shape, 1 << (self.bits - 1), np.int16)
        if self.zero is not None and self.zero.info.dtype == "I8":
            zeros += self.zero.whole().astype(np.int16).reshape(scales.shape)
        elif self.zero is not None:
            along = np.ascontiguousarray(self.zero.whole().view(np.uint32).T)
            zeros = _codes(along, self.bits).T[: len(scales)].astype(np.int16)
        return scales, zeros, self.column_groups()


def _codes(words: NDArray[np.uint32], bits: int) -> U8Array:
    """Unpacks (n, words) to (n, codes), including the padding of the last word."""
    spare = -words.shape[1] % bits if 32 % bits else 0
    return unpacked(np.pad(words, ((0, 0), (0, spare))), bits)
