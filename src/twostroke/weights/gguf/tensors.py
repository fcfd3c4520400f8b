"""Tensors of GGUF files under the names, in the order and with the values that our checkpoints have.

Undone here: the order of sizes, rows of q and k in pairs, stacks of experts, matrices that were turned, ones that were
added to norms. Blocks are expanded to floats a piece at a time.

Knows: the table of families, block types, what a checkpoint's tensors can be asked.
Must not know: which tensors a program reads, how weights are packed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from twostroke.ops.operands import F32Array, I32Array, U8Array, bf16_to_f32
from twostroke.ops.stored_layout import StoredValues
from twostroke.spec.formats import WeightKind
from twostroke.types.errors import CorruptModel
from twostroke.weights.gguf.blocks import READ_AS_FLOATS, decode
from twostroke.weights.gguf.container import GgufFile, StoredTensor
from twostroke.weights.gguf.families import Family
from twostroke.weights.tensor_source import SourceArray, TensorInfo

PIECE_ELEMENTS = 1 << 20
"""Expanded at a time: 4 MB of floats, and a few times that on the way."""

_LAYER = re.compile(r"blk\.(\d{1,5})\.(.+)\.(weight|bias)")
_ONE_EXPERT = re.compile(r"(ffn_(?:gate|up|down))\.(\d{1,5})")


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor of a checkpoint: rows [first_row, first_row + rows) of a stored one. Satisfies `TensorSource`.

    head_rows: rows of one head whose halves lie row by row in turn; 0 for none. turned: stored as (columns, rows).
    plus: added to each value.
    """

    file: GgufFile
    stored: str
    first_row: int
    shape: tuple[int, ...]
    head_rows: int = 0
    turned: bool = False
    plus: float = 0.0

    @property
    def info(self) -> TensorInfo:
        """As a tensor of floats; num_bytes are those in the file."""
        tensor = self.file.tensors[self.stored]
        name = tensor.block.name
        dtype = name if name in ("BF16", "F16") and not self.plus else "F32"
        rows = 1 if len(self.shape) == 1 else self.shape[1] if self.turned else self.shape[0]
        return TensorInfo(dtype, self.shape, tensor.offset, rows * tensor.row_bytes, "" if self._floating else name)

    def read_rows(self, first: int, count: int, out: SourceArray | None = None) -> SourceArray:
        """See SafetensorsFile.read_rows. Raises CorruptModel, UnsupportedModel (type), IndexError."""
        if not (0 <= first and 0 <= count and first + count <= self.shape[0]):
            raise IndexError(f"{self.stored}: rows [{first}, {first + count}) of {self.shape[0]}")
        whole = self.turned or len(self.shape) == 1
        shape = (count, *self.shape[1:])
        dtype: type[np.uint16 | np.float32] = np.uint16 if self.info.dtype == "BF16" else np.float32
        target: Any = np.empty(shape, dtype) if out is None else out.reshape(shape)
        found: SourceArray = target if out is None else out
        if whole:
            target[...] = self._whole()[first : first + count]
            return found
        step = max(1, PIECE_ELEMENTS // self.shape[-1])
        for begin in range(first, first + count, step):
            rows = self.stored_rows(begin, min(step, first + count - begin))
            target[begin - first : begin - first + len(rows)] = self._floats(self.read_blocks(rows))
        return found

    @property
    def _floating(self) -> bool:
        return self.file.tensors[self.stored].block.name in READ_AS_FLOATS

    def read_stored(self, first: int, count: int, kind: WeightKind) -> StoredValues:
        """The same rows as codes and scales, whatever the kind. Raises CorruptModel."""
        block = self.file.tensors[self.stored].block
        raw = self.read_blocks(self.stored_rows(first, count))
        return decode(block, raw.reshape(-1, block.num_bytes)).by_rows(count)

    def stored_rows(self, first: int, count: int) -> I32Array:
        """Numbers of the stored rows that our rows [first, first + count) are."""
        rows = np.arange(first, first + count, dtype=np.int32)
        if self.head_rows:
            within, half = rows % self.head_rows, self.head_rows // 2
            rows = rows - within + within % half * 2 + within // half
        return rows + np.int32(self.first_row)

    def read_blocks(self, rows: I32Array) -> U8Array:
        """These stored rows as bytes, (len(rows), row_bytes)."""
        low, high = int(rows.min(initial=self.first_row)), int(rows.max(initial=self.first_row - 1)) + 1
        blocks = self.file.read_blocks(self.stored, low, high - low)
        return blocks if not self.head_rows else blocks[rows - np.int32(low)]

    def _whole(self) -> SourceArray:
        tensor = self.file.tensors[self.stored]
        values = self._floats(self.file.read_blocks(self.stored, 0, tensor.rows))
        if len(self.shape) == 1:
            flat = values.reshape(-1)
            return flat[self.stored_rows(0, self.shape[0])] if self.head_rows else flat
        return values.T

    def _floats(self, raw: U8Array) -> SourceArray:
        found = expanded(self.file.tensors[self.stored], raw)
        if not self.plus:
            return found
        return (bf16_to_f32(found.view(np.uint16)) if found.dtype == np.uint16 else found) + np.float32(self.plus)


def expanded(tensor: StoredTensor, raw: U8Array) -> SourceArray:
    """Rows of blocks -> (rows, columns): bf16 bits for BF16, else float32."""
    name, block = tensor.block.name, tensor.block
    if name == "F32":
        return raw.view(np.float32)
    if name == "BF16":
        return raw.view(np.uint16)
    if name == "F16":
        return raw.view(np.float16).astype(np.float32)
    values: F32Array = decode(block, raw.reshape(-1, block.num_bytes)).values()
    return values.reshape(len(raw), -1)


def named_tensors(
    files: Mapping[str, GgufFile], family: Family, heads: int, kv_heads: int
) -> Iterator[tuple[str, GgufTensor]]:
    """All tensors of the files under our names; those that the table does not know keep their own."""
    rows_of = {"attn_q": heads, "attn_k": kv_heads}
    for file in files.values():
        for stored, tensor in file.tensors.items():
            if stored in _DIVISORS:
                continue
            number, stem, ending = _parts(stored)
            name, expert = _our_name(family, number, stem)
            if name is None:
                yield stored, GgufTensor(file, stored, 0, tensor.shape)
                continue
            whole = f"{name}.{ending}"
            if "{}" in name and expert is None:
                yield from _slices(file, stored, tensor, whole)
                continue
            turned = stem in family.turned and ending == "weight"
            shape = tensor.shape[::-1] if turned else tensor.shape
            count = rows_of.get(stem, 0) if family.pairs else 0
            head_rows = tensor.shape[0 if len(tensor.shape) > 1 else -1] // count if count else 0
            plus = -1.0 if stem in family.less_one else 0.0
            yield whole.format(expert), GgufTensor(file, stored, 0, shape, head_rows, turned, plus)


ROTATION_DIVISORS = (("rope_freqs.weight",), ("rope_factors_short.weight", "rope_factors_long.weight"))
"""Read into config.json: what frequencies of rotation are divided by; the second for short and for long contexts."""

_DIVISORS = frozenset(name for names in ROTATION_DIVISORS for name in names)


def rotation_divisors(files: Mapping[str, GgufFile]) -> tuple[list[float], ...] | None:
    """The divisors, where the files have them. Raises CorruptModel where one of two is not there."""
    places = {name: file for file in files.values() for name in _DIVISORS & file.tensors.keys()}
    for names in ROTATION_DIVISORS:
        if places.keys() >= set(names):
            return tuple(_numbers(places[name], name) for name in names)
    if places:
        raise CorruptModel(
            f"The file holds {min(places)}, and not the tensor that belongs to it.",
            why="Frequencies of rotation have divisors for short contexts and others for long ones.",
            fix="Download the file again.",
        )
    return None


def _numbers(file: GgufFile, name: str) -> list[float]:
    tensor = file.tensors[name]
    return [float(value) for value in expanded(tensor, file.read_blocks(name, 0, tensor.rows)).reshape(-1)]


def _parts(stored: str) -> tuple[str | None, str, str]:
    """ "blk.3.attn_q.weight" -> "3", "attn_q", "weight"."""
    found = _LAYER.fullmatch(stored)
    if found:
        return found[1], found[2], found[3]
    stem, _, ending = stored.rpartition(".")
    return None, stem, ending


def _our_name(family: Family, number: str | None, stem: str) -> tuple[str | None, str | None]:
    """The name without its ending, `{}` where an expert's number belongs; that number where the file says it."""
    if number is None:
        return family.outer.get(stem), None
    one = _ONE_EXPERT.fullmatch(stem)
    inner = family.layer.get(one[1] + "_exps" if one else stem)
    return (None if inner is None else f"{family.layers}{number}.{inner}"), one[2] if one else None


def _slices(file: GgufFile, stored: str, tensor: StoredTensor, name: str) -> Iterator[tuple[str, GgufTensor]]:
    """A stack (experts, rows, columns) as one tensor for each expert."""
    if len(tensor.shape) != 3:
        yield stored, GgufTensor(file, stored, 0, tensor.shape)
        return
    experts, rows, columns = tensor.shape
    for expert in range(experts):
        yield name.format(expert), GgufTensor(file, stored, expert * rows, (rows, columns))
