"""HQQ's matrices: codes in groups along the rows or along the columns of the matrix, packed in fractions of its height.

    x.W_q    (packed rows, n) uint8, for 3 bits int32; or the same bytes under a type of floats (view_as_float)
    x.scale, x.zero    (groups, 1) for axis 1, (1, groups) for axis 0; float16, bfloat16 or float32
    x.shape  (2,)      rows and columns
    x.nbits, x.group_size, x.axis    whole numbers
    x.packing          its name, as bytes
    and settings of the quantizer that no number depends on

The matrix, read row after row, is (elements / group, group) codes for axis 1, whose rows are the groups. For axis 0 it
is (group, elements / group) codes, whose columns are the groups. W_q packs fractions of these rows. Row r of W_q holds
code r of the first fraction in its highest bits, and code r of the next fraction below that. There are 8 / bits
fractions. For 3 bits there are 10, in the lowest 30 bits of a word, where rows of zeros fill up. Codes of 5 and 6 bits
lie in a byte each, codes of 1.58 bits in 2 bits: 0, 1 or 2. Source: hqq/core/quantize.py and hqq/core/bitpack.py of HQQ
0.2.

value = (code - zero) * scale.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twostroke.ops.operands import F32Array
from twostroke.ops.stored_values import StoredValues
from twostroke.types.errors import UnsupportedModel
from twostroke.types.spec.formats import WeightKind
from twostroke.weights.quantized.matrix import GroupedRows, affine_kinds
from twostroke.weights.quantized.parts import FLOATS, Held, StoredPart, StoredTensors

PACKINGS = {8: "8bit_u8", 4: "4bit_u8", 3: "3bit_32", 2: "2bit_u8", 1: "1bit_u8"}
"""The name of a packing, by the number of bits that a packed code takes."""
TAKEN = {8: 8, 6: 8, 5: 8, 4: 4, 3: 3, 2: 2, 1: 1}
"""The number of bits of a code -> the number of bits in which W_q stores it."""
TERNARY = 1.58
QUANTIZED_META = ("scale_q", "zero_q", "meta_scale", "meta_zero")
"""Names of the stored parts that show that a matrix's scales or zero points are themselves quantized."""
THREE_BITS_IN_A_WORD = 10
WHOLE = ("U8", "I8", "I16", "I32", "I64")
MAX_SIZE = 1 << 32
SETTINGS = (
    "nbits", "group_size", "shape", "axis", "packing", "unpack_view_dtype", "view_as_float", "quant_scale",
    "quant_zero", "compute_dtype", "offload_meta", "encoded_state_dict", "stores_quant_config", "channel_wise",
    "optimize", "round_zero",
)  # fmt: skip


@dataclass(frozen=True, eq=False, slots=True)
class HqqMatrix:
    """A matrix of HQQ. Satisfies `QuantizedMatrix`. settings: the names of tensors that describe how the matrix was
    made."""

    codes: StoredPart
    scale: StoredPart
    zero: StoredPart
    settings: tuple[str, ...]
    shape: tuple[int, ...]
    bits: int
    group: int
    axis: int
    held: Held
    ternary: bool = False

    @classmethod
    def of(cls, stored: StoredTensors, module: str, held: Held) -> HqqMatrix:
        """Returns the matrix of a module. Raises CorruptModel naming the part that does not fit, UnsupportedModel for
        scales that are themselves quantized."""
        _refuse_quantized_meta(stored, module)
        sizes = stored.part(module + ".shape", WHOLE, (2,))
        rows, columns = (int(size) for size in sizes.whole())
        count = rows * columns
        if not (0 < rows < MAX_SIZE and 0 < columns < MAX_SIZE):
            raise sizes.wrong(f"It says {rows} rows and {columns} columns.")
        said, axis = _bits(stored, module + ".nbits"), _number(stored, module + ".axis")
        bits = 2 if said == TERNARY else int(said)
        grouped = stored.has(module + ".group_size")
        group = _number(stored, module + ".group_size") if grouped else (columns if axis else rows)
        codes = stored.part(module + ".W_q", ("U8", "I32", *FLOATS), (None, None))
        if bits not in TAKEN or axis not in (0, 1) or group < 1 or count % group:
            raise codes.wrong(f"{said:g} bits, axis {axis} and groups of {group} of {count:,} codes cannot be read.")
        packing = stored.part(module + ".packing", ("U8",), (None,))
        taken = TAKEN[bits]
        if (
            packing.info.num_bytes > len(max(PACKINGS.values()))
            or packing.whole().tobytes() != PACKINGS[taken].encode()
        ):
            raise packing.wrong(f"It is not {PACKINGS[taken]}, that of {said:g} bits.")
        height, width = (count // group, group) if axis else (group, count // group)
        packed, dtype = _packed_rows(height, taken), "I32" if bits == 3 else "U8"
        if codes.info.dtype not in ("U8", "I32"):
            codes = StoredPart(codes.name, codes.tensor, dtype)
        if codes.dtype != dtype or (height % (8 // taken) and bits != 3) or codes.shape != (packed, width):
            raise codes.wrong(f"It is {codes.dtype} {list(codes.shape)}, expected {dtype} {[packed, width]}.")
        each = (count // group, 1) if axis else (1, count // group)
        scale, zero = (stored.part(f"{module}.{name}", FLOATS, each) for name in ("scale", "zero"))
        settings = tuple(name for name in (f"{module}.{each}" for each in SETTINGS) if stored.has(name))
        return cls(codes, scale, zero, settings, (rows, columns), bits, group, axis, held, said == TERNARY)

    @property
    def words(self) -> str:
        groups = "one group a row" if self.axis and self.group == self.shape[1] else f"groups of {self.group}"
        bits = TERNARY if self.ternary else self.bits
        return f"HQQ {bits:g}-bit, {groups}{'' if self.axis else ' along the rows'}"

    @property
    def parts(self) -> tuple[str, ...]:
        return self.codes.name, self.scale.name, self.zero.name, *self.settings

    @property
    def num_bytes(self) -> int:
        return sum(part.info.num_bytes for part in (self.codes, self.scale, self.zero))

    @property
    def kinds(self) -> frozenset[WeightKind]:
        """The stored kinds that keep the matrix without loss; empty unless each row consists of whole groups of
        consecutive columns."""
        columns = self.shape[1]
        return affine_kinds(self.bits, columns, self.group) if self.axis and columns % self.group == 0 else frozenset()

    def values(self, first: int, count: int) -> F32Array:
        columns = self.shape[1]
        here = slice(first * columns, (first + count) * columns)
        codes, scales, zeros = self._read()
        at = np.arange(here.start, here.stop)
        group_of = at // self.group if self.axis else at % len(scales)
        found: F32Array = (codes[here].astype(np.float32) - zeros[group_of]) * scales[group_of]
        return found.reshape(count, columns)

    def stored(self, first: int, count: int, kind: WeightKind) -> StoredValues:
        columns = self.shape[1]
        codes, scales, zeros = self._read()
        here = slice(first, first + count)
        own, zero = (values.reshape(self.shape[0], -1)[here] for values in (scales, zeros))
        return GroupedRows(codes.reshape(-1, columns)[here], own, self.group, self.bits, zeros=zero).stored(kind)

    def _read(self) -> tuple[NDArray[np.uint8], F32Array, F32Array]:
        """Returns all codes, row after row, and the scale and the zero point of each group."""

        def read() -> tuple[NDArray[np.uint8], F32Array, F32Array]:
            height = self.shape[0] * self.shape[1] // self.group if self.axis else self.group
            codes = _unpacked(self.codes.whole(), TAKEN[self.bits])[:height].reshape(-1)
            return codes, self.scale.floats().reshape(-1), self.zero.floats().reshape(-1)

        found: tuple[NDArray[np.uint8], F32Array, F32Array] = self.held.get(self.codes.name, read)
        return found


def _refuse_quantized_meta(stored: StoredTensors, module: str) -> None:
    found = next((name for name in QUANTIZED_META if stored.has(f"{module}.{name}")), None)
    if found is not None:
        raise UnsupportedModel(
            f"Tensor {module[:150]}.{found}: scales or zero points that HQQ quantized themselves are not implemented.",
            why="HQQ wrote them with quant_scale or quant_zero, which newer versions have given up.",
            fix="Quantize the model again with quant_scale=False and quant_zero=False.",
        )


def _bits(stored: StoredTensors, name: str) -> float:
    """Returns the bits of a code: a whole number, or 1.58."""
    part = stored.part(name, (*WHOLE, *FLOATS, "F64"))
    if part.dtype in WHOLE:
        return _number(stored, name)
    if part.shape not in ((), (1,)):
        raise part.wrong("It must be one number.")
    said = float(part.whole().reshape(-1)[0]) if part.dtype == "F64" else float(part.floats().reshape(-1)[0])
    if abs(said - TERNARY) < 0.01:
        return TERNARY
    if said not in TAKEN:
        raise part.wrong(f"{said:g} bits cannot be read.")
    return said


def _number(stored: StoredTensors, name: str) -> int:
    part = stored.part(name, WHOLE)
    if part.shape not in ((), (1,)):
        raise part.wrong("It must be one number.")
    return int(part.whole().reshape(-1)[0])


def _packed_rows(rows: int, bits: int) -> int:
    return -(-rows // THREE_BITS_IN_A_WORD) if bits == 3 else rows * bits // 8


def _unpacked(packed: NDArray[np.uint8] | NDArray[np.int32], bits: int) -> NDArray[np.uint8]:
    """Unpacks (n, width) words to (n * codes of a word, width): first the highest code of all words, then the next
    lower code of all words, and so on."""
    if bits == 8:
        return packed.astype(np.uint8, copy=False)
    each = THREE_BITS_IN_A_WORD if bits == 3 else 8 // bits
    shifts = bits * np.arange(each - 1, -1, -1)
    wide = packed.astype(np.int32)[None] >> shifts[:, None, None].astype(np.int32)
    found: NDArray[np.uint8] = (wide & np.int32((1 << bits) - 1)).astype(np.uint8)
    return found.reshape(-1, packed.shape[1])
