"""Encodes a native call as 64-bit numbers ("words"), in the layout of csrc/include/twostroke/ops.h.

Operands are arrays, objects made of arrays (PackedWeight, KVLayer, RopeTable, AttentionBatch), or plain numbers. A
wrong dtype or stride is refused in this module, because native code cannot see it; shapes are compared with the op's.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from twostroke.backends.cpu.library import KVLayerStruct, WeightStruct, address_of
from twostroke.ops.operands import AttentionBatch, KVLayer, PackedWeight, RopeTable
from twostroke.ops.program.op import Op, Operand, OperandKind, mismatch, signature
from twostroke.types.errors import BackendError

WORDS = {
    OperandKind.VALUE: 5,
    OperandKind.WEIGHT: 1,
    OperandKind.VECTOR: 2,
    OperandKind.CACHE: 1,
    OperandKind.STATE: 4,
    OperandKind.ROPE: 4,
    OperandKind.INDICES: 2,
    OperandKind.SEQUENCES: 5,
    OperandKind.NUMBER: 1,
    OperandKind.INTEGER: 1,
}
"""How many 64-bit words each kind of operand takes in an encoded call."""

ROWS_WORD = {OperandKind.VALUE: 2, OperandKind.INDICES: 1, OperandKind.SEQUENCES: 3}
"""Which of an operand's words holds the number of rows, indices or sequences, counted from 0."""

_F32, _I32 = np.dtype(np.float32), np.dtype(np.int32)


class Structs:
    """The native structs of weights and KV layers. Each is made once, and lives as long as the weight or layer that it
    describes."""

    def __init__(self) -> None:
        self._weights: WeakKeyDictionary[PackedWeight, WeightStruct] = WeakKeyDictionary()
        self._layers: WeakKeyDictionary[KVLayer, KVLayerStruct] = WeakKeyDictionary()

    def weight(self, weight: PackedWeight) -> int:
        """Returns the address of the C struct ts_weight that describes this weight to native code."""
        found = self._weights.get(weight)
        if found is None:
            scales = None if weight.scales is None else weight.scales.ctypes.data
            bias = None if weight.bias is None else weight.bias.ctypes.data
            kind, group = int(weight.format.kind), weight.format.group
            sizes, data = (weight.rows, weight.columns), weight.data.ctypes.data
            found = WeightStruct(kind, group, *sizes, data, scales, bias, weight.experts, weight.format.rotated)
            self._weights[weight] = found
        return address_of(found)

    def layer(self, layer: KVLayer) -> int:
        """Returns the address of the C struct ts_kv_layer that describes this layer's K and V to native code."""
        found = self._layers.get(layer)
        if found is None:
            kind, at = int(layer.kind), layer.data.ctypes.data
            sizes = (layer.kv_heads, layer.head_dim, layer.value_dim, layer.num_pages)
            found = self._layers[layer] = KVLayerStruct(kind, *sizes, at, layer.is_latent)
        return address_of(found)


def call_words(op: type[Op], operands: tuple[Any, ...], structs: Structs) -> list[int]:
    """Encodes the operands of one call as 64-bit words. Raises BackendError with the name of the operand that does not
    fit."""
    wanted = signature(op)
    words: list[int] = []
    shapes: dict[str, tuple[object, ...]] = {}
    for operand, item in zip(wanted, operands, strict=True):
        words += _KINDS[operand.kind](item, op, operand, structs)
        shape = _shape(operand, item)
        if shape is not None and operand.name in op.SHAPES:
            shapes[operand.name] = shape
    wrong = mismatch(op, {name: _as_asked(op, name, shape) for name, shape in shapes.items()})
    if wrong is not None:
        raise _refuse(op, wrong[0], f"of shape {wrong[1]}", operands[[each.name for each in wanted].index(wrong[0])])
    return words


def _as_asked(op: type[Op], name: str, shape: tuple[object, ...]) -> tuple[object, ...]:
    """Returns the shape (T, H, D) as (T, H * D) where the op's operand has two dimensions. Other shapes stay the same.
    """
    wanted = len(op.SHAPES[name].split())
    if wanted == 2 and len(shape) == 3 and all(isinstance(size, int) for size in shape):
        return shape[0], int(shape[1]) * int(shape[2])  # type: ignore[call-overload]
    return shape


def check_rows(op: type[Op], operands: tuple[Any, ...]) -> None:
    """Raises BackendError where q has not exactly the rows that the sequences of an attention op list. It is for single
    calls; in compiled calls, native code checks the same in each step."""
    batch = next((item for item in operands if isinstance(item, AttentionBatch)), None)
    rows = operands[0].shape[0] if hasattr(operands[0], "shape") else 0
    if batch is not None and len(batch.context_tokens) and int(batch.row_starts[-1]) != rows:
        raise _refuse(op, "row_starts", f"rising from 0 to the {rows} rows of q", batch.row_starts)


def _shape(operand: Operand, item: Any) -> tuple[object, ...] | None:
    if item is None:
        return None
    if operand.kind in (OperandKind.VALUE, OperandKind.VECTOR, OperandKind.INDICES):
        return tuple(item.shape)
    if operand.kind is OperandKind.WEIGHT:
        return max(1, item.experts) * item.rows, item.columns
    if operand.kind is OperandKind.CACHE:
        return item.kv_heads, item.head_dim, item.value_dim
    return None


def _refuse(op: type[Op], name: str, expected: str, item: Any) -> BackendError:
    found = item
    if isinstance(item, np.ndarray):
        found = f"{item.dtype} of shape {item.shape}, strides {item.strides}"
    return BackendError(f"{op.NAME}: {name} must be {expected}.", why=f"It is {found}.")


def _value(item: Any, op: type[Op], operand: Operand, _structs: Structs) -> list[int]:
    """Encodes a float32 value (T, D) or (T, H, D) with contiguous rows: its address, row stride, rows, heads and width.
    A value that is left out has the address NULL."""
    if item is None and operand.optional:
        return [0] * WORDS[OperandKind.VALUE]
    width = item.shape[-1] * (item.shape[1] if item.ndim == 3 else 1) if item.ndim in (2, 3) else 0
    # NumPy gives arrays without elements strides of zero, so contiguity does not matter for such arrays.
    dense = item.ndim in (2, 3) and (item.size == 0 or _dense_rows(item))
    if item.dtype != _F32 or not dense or item.strides[0] % 4:
        raise _refuse(op, operand.name, "float32 (T, D) or (T, H, D) with contiguous rows", item)
    heads, dim = (item.shape[1], item.shape[2]) if item.ndim == 3 else (1, item.shape[1])
    return [item.ctypes.data, max(item.strides[0] // 4, width), item.shape[0], heads, dim]


def _dense_rows(item: Any) -> bool:
    inner = item.strides[-1] == 4 or item.shape[-1] <= 1
    return bool(inner and (item.ndim == 2 or item.strides[1] == 4 * item.shape[2] or item.shape[1] <= 1))


def _weight(item: Any, _op: type[Op], operand: Operand, structs: Structs) -> list[int]:
    return [0 if item is None and operand.optional else structs.weight(item)]


def _vector(item: Any, op: type[Op], operand: Operand, _structs: Structs) -> list[int]:
    if item is None and operand.optional:
        return [0, 0]
    if item is None or item.dtype != _F32 or item.ndim != 1 or not item.flags.c_contiguous:
        raise _refuse(op, operand.name, "contiguous float32 (N,)", item)
    return [item.ctypes.data, len(item)]


def _cache(item: Any, _op: type[Op], _operand: Operand, structs: Structs) -> list[int]:
    return [structs.layer(item)]


def _state(item: Any, op: type[Op], operand: Operand, _structs: Structs) -> list[int]:
    """Encodes float32 states (slots, elements): their address, the stride of a slot, and both sizes. The elements of a
    slot must be contiguous; the slots need not be."""
    if item.dtype != _F32 or item.ndim != 2 or (item.size and item.strides[1] != 4) or item.strides[0] % 4:
        raise _refuse(op, operand.name, "float32 (slots, elements) with contiguous elements", item)
    return [item.ctypes.data, item.strides[0] // 4, *item.shape]


def _rope(item: RopeTable, op: type[Op], operand: Operand, _structs: Structs) -> list[int]:
    for part in (item.cos, item.sin):
        if part.dtype != _F32 or part.ndim != 2 or not part.flags.c_contiguous or part.shape != item.cos.shape:
            raise _refuse(op, operand.name, "contiguous float32 (positions, half)", part)
    return [item.cos.ctypes.data, item.sin.ctypes.data, *item.cos.shape]


def _indices(item: Any, op: type[Op], operand: Operand, _structs: Structs) -> list[int]:
    if item is None and operand.optional:
        return [0, 0]
    if item.dtype != _I32 or item.ndim != 1 or not item.flags.c_contiguous:
        raise _refuse(op, operand.name, "contiguous int32 (N,)", item)
    return [item.ctypes.data, len(item)]


def _sequences(item: AttentionBatch, op: type[Op], operand: Operand, _structs: Structs) -> list[int]:
    count, table = len(item.context_tokens), item.page_table
    for name, array, shape in (
        ("row_starts", item.row_starts, (count + 1,)),
        ("context_tokens", item.context_tokens, (count,)),
        ("page_table", table, (count, table.shape[-1])),
    ):
        if array.dtype != _I32 or array.shape != shape or not array.flags.c_contiguous:
            raise _refuse(op, name, f"contiguous int32 {shape}", array)
    return [item.row_starts.ctypes.data, item.context_tokens.ctypes.data, table.ctypes.data, count, table.shape[1]]


def _number(item: float, _op: type[Op], _operand: Operand, _structs: Structs) -> list[int]:
    return [int.from_bytes(struct.pack("<d", float(item)), "little", signed=True)]


def _integer(item: int, _op: type[Op], _operand: Operand, _structs: Structs) -> list[int]:
    return [int(item)]


_KINDS: dict[OperandKind, Callable[[Any, type[Op], Operand, Structs], list[int]]] = {
    OperandKind.VALUE: _value,
    OperandKind.WEIGHT: _weight,
    OperandKind.VECTOR: _vector,
    OperandKind.CACHE: _cache,
    OperandKind.STATE: _state,
    OperandKind.ROPE: _rope,
    OperandKind.INDICES: _indices,
    OperandKind.SEQUENCES: _sequences,
    OperandKind.NUMBER: _number,
    OperandKind.INTEGER: _integer,
}
