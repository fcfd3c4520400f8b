"""bitsandbytes' 4-bit matrices: a table of 16 floats, and a scale for each block of the matrix read row after row.

    x.weight              (n / 2, 1) uint8    two codes a byte, the high half first
    x.weight.absmax       (blocks,) float32; or uint8, codes of a second table with a scale for each 256
    x.weight.quant_map    (16,) float32       the table
    x.weight.nested_absmax, x.weight.nested_quant_map     the second table, where absmax is uint8
    x.weight.quant_state.bitsandbytes__nf4    JSON as uint8: shape, blocksize, nested_blocksize, nested_offset

value = table[code] * absmax.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from twostroke.ops.operands import F32Array
from twostroke.ops.stored_values import StoredValues
from twostroke.types.spec.fields import Fields
from twostroke.types.spec.formats import WeightKind
from twostroke.weights.json_file import parse_object
from twostroke.weights.quantized.parts import StoredPart, StoredTensors

STATES = (".quant_state.bitsandbytes__nf4", ".quant_state.bitsandbytes__fp4")
MAX_STATE_BYTES = 1 << 16
MAX_SIZE = 1 << 40


@dataclass(frozen=True, eq=False, slots=True)
class Nested:
    """An absmax that is itself quantized: table[code] * scale + offset."""

    scales: StoredPart
    table: StoredPart
    block: int
    offset: float


@dataclass(frozen=True, eq=False, slots=True)
class TableMatrix:
    """A matrix whose codes stand for entries of a table of floats. Satisfies `QuantizedMatrix`."""

    words: str
    packed: StoredPart
    absmax: StoredPart
    table: StoredPart
    state: StoredPart
    shape: tuple[int, ...]
    block: int
    nested: Nested | None

    kinds = frozenset[WeightKind]()

    @classmethod
    def of(cls, stored: StoredTensors, name: str, ending: str) -> TableMatrix:
        """Returns the matrix. name: the name of the packed weight. ending: the ending of its state's name. Raises
        CorruptModel."""
        state = stored.part(name + ending, ("U8",))
        if state.info.num_bytes > MAX_STATE_BYTES:
            raise state.wrong(f"It has {state.info.num_bytes:,} bytes, at most {MAX_STATE_BYTES:,} are read.")
        fields = Fields(parse_object(state.whole().tobytes(), f"Tensor {name}{ending}"), f"Tensor {name}{ending}")
        sizes = fields.values.get("shape")
        if (
            not isinstance(sizes, list)
            or len(sizes) != 2
            or not all(type(s) is int and 0 < s < MAX_SIZE for s in sizes)
        ):
            raise state.wrong(f"Its shape is {str(sizes)[:60]}, expected two sizes.")
        block = fields.integer("blocksize", 1, 1 << 20)
        count = math.prod(sizes)
        blocks = -(-count // block)
        packed = stored.part(name, ("U8",))
        if packed.shape not in ((-(-count // 2), 1), (-(-count // 2),)):
            raise packed.wrong(f"It has the shape {list(packed.shape)}, and {count:,} codes take half as many bytes.")
        absmax = stored.part(name + ".absmax", ("F32", "U8"), (blocks,))
        table = stored.part(name + ".quant_map", ("F32",), (16,))
        nested = _nested(stored, name, fields, blocks) if absmax.info.dtype == "U8" else None
        kind = ending.rsplit("__", 1)[1].upper()
        twice = ", scales quantized once more" if nested else ""
        words = f"bitsandbytes {kind}, blocks of {block}{twice}"
        return cls(words, packed, absmax, table, state, tuple(sizes), block, nested)

    @property
    def parts(self) -> tuple[str, ...]:
        nested = (self.nested.scales.name, self.nested.table.name) if self.nested else ()
        return self.packed.name, self.absmax.name, self.table.name, self.state.name, *nested

    @property
    def num_bytes(self) -> int:
        return self.packed.info.num_bytes + self.absmax.info.num_bytes

    def values(self, first: int, count: int) -> F32Array:
        """Returns rows [first, first + count) as float32. A block with one scale may go on from one row to the next."""
        columns = self.shape[1]
        begin, end = first * columns, (first + count) * columns
        octets = self.packed.rows(begin // 2, -(-end // 2) - begin // 2)
        codes = np.stack((octets >> np.uint8(4), octets & np.uint8(15)), axis=-1).reshape(-1)
        codes = codes[begin % 2 :][: end - begin]
        table = self.table.floats()
        low = begin // self.block
        scales = self._absmax(low, -(-end // self.block) - low)
        spread = np.repeat(scales, self.block)[begin - low * self.block :][: end - begin]
        found: F32Array = (table[codes] * spread).reshape(count, columns)
        return found

    def _absmax(self, first: int, count: int) -> F32Array:
        if self.nested is None:
            return self.absmax.floats(first, count)
        codes = self.absmax.rows(first, count)
        table = self.nested.table.floats()
        scales = self.nested.scales.floats()[np.arange(first, first + count) // self.nested.block]
        found: F32Array = table[codes] * scales + np.float32(self.nested.offset)
        return found

    def stored(self, first: int, count: int, kind: WeightKind) -> StoredValues:
        """Raises TypeError: no stored kind keeps codes that stand for entries of a table of floats."""
        raise TypeError(f"{self.packed.name} is not kept as {kind.name}")


def _nested(stored: StoredTensors, name: str, fields: Fields, blocks: int) -> Nested:
    block = fields.integer("nested_blocksize", 1, 1 << 20)
    scales = stored.part(name + ".nested_absmax", ("F32",), (-(-blocks // block),))
    table = stored.part(name + ".nested_quant_map", ("F32",), (256,))
    offset = fields.number("nested_offset", -1e30, 1e30)
    return Nested(scales, table, block, offset)
