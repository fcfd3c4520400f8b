"""Makes the operands of the calls that ops are tested with, from the CASES of each op (ops/program/cases.py)."""

from __future__ import annotations

import itertools
import random
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tools.gpu.stored_values import random_values

from twostroke.ops.attention.entries import entry_cache, places, write_entries
from twostroke.ops.attention.kv_pages import write_latents, write_rows
from twostroke.ops.cases import CODES, FLOATS
from twostroke.ops.operands import AttentionBatch, KVLayer, PackedWeight, RopeTable, new_kv_layer
from twostroke.ops.program.cases import CaseGrid, Filled, product
from twostroke.ops.program.op import Op, Operand, OperandKind, axes, defaults, signature
from twostroke.ops.quant.codec import pack_weight
from twostroke.ops.registry import registry
from twostroke.ops.stored_layout import pack_stored
from twostroke.types.spec.formats import PAGE_TOKENS, KVKind, WeightFormat
from twostroke.weights.packed.blobs import aligned_bytes

STATE_STEPS = (((23, 23), (5, 1), (0, 0), (9, 5)), ((28, 23), (8, 1), (2, 2)))
"""Steps of ops that keep states. Some sequences begin in the step, others have begun before."""
CACHE_STEPS = (((70, 3), (1, 1), (160, 66)), ((600, 9), (40, 1)))
"""Steps of ops that read pages. In the first one the last row of the page table, and its last page, are full."""
FIRST_POSITION = 3
"""The position of the first row of ops that write pages."""


@dataclass(frozen=True)
class OpCase:
    """One call. words: the special property of the call. tolerance: the tolerance of its grid."""

    op: str
    words: str
    operands: tuple[Any, ...]
    tolerance: float = 0.0

    @property
    def changed(self) -> tuple[int, ...]:
        """Returns the places of the operands that the op changes, the result first."""
        fields = signature(registry()[self.op])
        found = [place for place, field in enumerate(fields) if field.name == "out" or field.kind is OperandKind.STATE]
        return tuple(found) or (0,)


def cases_of(
    op: type[Op],
    most: int | None = None,
    seed: str = "",
    grids: Sequence[CaseGrid] | None = None,
    *,
    every_value: bool = False,
) -> list[OpCase]:
    """Returns the calls of an op, from its own grids or from `grids`. most: the most calls of each grid, chosen by a
    seed; None for all. every_value: more calls are chosen where a value of the grids would not occur otherwise."""
    own = op.CASES if grids is None else grids
    seen: set[tuple[str, Any]] | None = set() if every_value else None
    return [
        _made(op, grid, chosen)
        for place, grid in enumerate(own)
        for chosen in _chosen(op, grid, most, f"{place} {seed}", seen)
    ]


def every_case(most: int) -> Iterator[OpCase]:
    """Yields about `most` calls of each op, at least one of each of its grids."""
    for op in registry().values():
        yield from cases_of(op, max(1, most // max(1, len(op.CASES))))


Chosen = dict[str, Any]
"""The values chosen for one call, by the names of a grid."""


def _chosen(
    op: type[Op], grid: CaseGrid, most: int | None, seed: str, seen: set[tuple[str, Any]] | None
) -> list[Chosen]:
    """Returns the values chosen for each call of a grid. seen: see covering."""
    kinds = {field.kind for field in signature(op)}
    every: dict[str, Sequence[Any]] = {}
    if OperandKind.WEIGHT in kinds:
        every["formats"] = (*FLOATS, *CODES)
    if OperandKind.CACHE in kinds:
        every["kinds"] = tuple(KVKind)
    if OperandKind.SEQUENCES in kinds:
        every["steps"] = STATE_STEPS if OperandKind.STATE in kinds else CACHE_STEPS
    every |= grid.choices
    whole = [dict(zip(every, values, strict=True)) for values in itertools.product(*every.values())]
    draws = random.Random(f"{op.NAME} {seed}")
    if most is None or (seen is None and len(whole) <= most):
        return whole
    if seen is None:
        return [whole[place] for place in sorted(draws.sample(range(len(whole)), most))]
    return covering(draws.sample(whole, len(whole)), most, seen)


def covering(whole: Sequence[Chosen], least: int, seen: set[tuple[str, Any]]) -> list[Chosen]:
    """Returns calls in which each value occurs that is not in `seen`, and at least `least` where there are as many.
    Their values are added to `seen`. whole: the calls in the order in which they are preferred. A call with a size of 0
    comes after the others, because a call without rows shows little."""
    preferred = sorted(whole, key=lambda call: any(type(value) is int and value == 0 for value in call.values()))
    found: list[Chosen] = []
    for enough in (all, any):
        for call in preferred:
            if call not in found and enough(value not in seen for value in call.items()):
                found.append(call)
                seen |= set(call.items())
    rest = [call for call in preferred if call not in found] if len(found) < least else []
    return found + rest[: max(0, least - len(found))]


def _made(op: type[Op], grid: CaseGrid, chosen: dict[str, Any]) -> OpCase:
    words = " ".join(f"{name}={_word(each)}" for name, each in chosen.items() if not callable(each))
    return OpCase(op.NAME, words, _Maker(op, chosen, words).operands(), grid.tolerance)


def _word(choice: object) -> str:
    if isinstance(choice, WeightFormat):
        return f"{choice.kind.name.lower()}/{choice.group}/{choice.rotated}"
    return choice.size if isinstance(choice, Filled) else str(getattr(choice, "name", choice)).replace(" ", "")


class _Maker:
    """Makes the operands of one call."""

    def __init__(self, op: type[Op], chosen: dict[str, Any], words: str) -> None:
        self._op, self._sizes = op, dict(chosen)
        self._random = np.random.default_rng(zlib.crc32(f"{op.NAME} {words}".encode()))
        if "steps" in chosen:
            self._sizes["T"] = sum(rows for _, rows in chosen["steps"])
            self._sizes["S"] = len(chosen["steps"])
        self._table = self._page_table()

    def operands(self) -> tuple[Any, ...]:
        return tuple(self._operand(field) for field in signature(self._op))

    def _operand(self, field: Operand) -> Any:
        name, kind = field.name, field.kind
        if kind in (OperandKind.NUMBER, OperandKind.INTEGER):
            number = self._sizes[name] if name in self._sizes else defaults(self._op)[name]
            return product(number, self._sizes) if isinstance(number, str) else number
        if field.optional and self._sizes.get(name, "") is None:
            return None
        if kind is OperandKind.WEIGHT:
            return self._weight(name)
        if kind is OperandKind.CACHE:
            return self._layer(name)
        if kind is OperandKind.SEQUENCES:
            return self._batch()
        if kind is OperandKind.ROPE:
            angles = self._normal(product("P", self._sizes), product("R", self._sizes))
            return RopeTable(np.cos(angles), np.sin(angles))
        return self._array(name, kind)

    def _array(self, name: str, kind: OperandKind) -> np.ndarray:
        choice = self._sizes.get(name)
        content = choice.content if isinstance(choice, Filled) else choice
        if kind is OperandKind.STATE:
            shape: tuple[int, ...] = (self._sizes["S"] + 1, self._number(choice))
        else:
            shape = tuple(self._axis(name, axis.name, axis.times) for axis in axes(self._op.SHAPES[name]))
        if name in self._op.SCRATCH:
            return np.full(shape, np.nan, np.float32)
        if kind is OperandKind.INDICES and content is None:
            return self._indices(name, shape[0])
        made = content(self._random, shape, self._sizes) if callable(content) else self._normal(*shape)
        return np.ascontiguousarray(made, np.int32 if kind is OperandKind.INDICES else np.float32)

    def _axis(self, name: str, axis: str, times: int) -> int:
        if axis == "*":
            return self._number(self._sizes[name])
        return times * (product(axis, self._sizes) if axis else 1)

    def _number(self, choice: Any) -> int:
        return product(choice.size if isinstance(choice, Filled) else choice, self._sizes)

    def _normal(self, *shape: int) -> np.ndarray:
        return self._random.standard_normal(shape, dtype=np.float32)

    def _rows(self, *shape: int) -> np.ndarray:
        """Returns the content of pages, which comes from the case's own function or is Gaussian numbers."""
        content = self._sizes.get("layer")
        return content(self._random, shape, self._sizes).astype(np.float32) if content else self._normal(*shape)

    def _indices(self, name: str, count: int) -> np.ndarray:
        """Returns the slots of states in any order, the positions from FIRST_POSITION on, or the slots of these
        positions in scattered pages."""
        if "steps" in self._sizes:
            return self._random.permutation(count + 1)[:count].astype(np.int32)
        positions = np.arange(FIRST_POSITION, FIRST_POSITION + count, dtype=np.int32)
        pages = np.random.default_rng(count).permutation(_pages_for(count)).astype(np.int32)
        return positions if name == "positions" else _slots(pages, positions)

    def _weight(self, name: str) -> PackedWeight:
        rows, columns = (self._axis(name, axis.name, axis.times) for axis in axes(self._op.SHAPES[name]))
        count = product(self._sizes.get("bank", 0), self._sizes)
        biased = bool(self._sizes.get("biased", columns % 2))
        parts = [self._packed(self._sizes["formats"], rows, columns, biased) for _ in range(max(1, count))]
        return joined(parts) if count else parts[0]

    def _packed(self, weight_format: WeightFormat, rows: int, columns: int, biased: bool) -> PackedWeight:
        if weight_format.kind.is_stored and not weight_format.rotated:
            values = random_values(weight_format.kind, rows, columns, int(self._random.integers(1 << 30)))
            content = pack_stored(values, weight_format)
            data = aligned_bytes(content.size)
            data[:] = content
            return PackedWeight(weight_format, rows, columns, data)
        bias = self._normal(rows) if biased else None
        return pack_weight(self._normal(rows, columns), weight_format, bias)

    def _page_table(self) -> np.ndarray:
        steps = self._sizes.get("steps", ())
        each = -(-max((context for context, _ in steps), default=1) // PAGE_TOKENS) or 1
        order = np.random.default_rng(9).permutation(each * len(steps))
        return np.ascontiguousarray(order.reshape(len(steps), each).astype(np.int32))

    def _batch(self) -> AttentionBatch:
        contexts, rows = np.array(self._sizes["steps"], np.int32).T
        return AttentionBatch(np.cumsum([0, *rows]).astype(np.int32), np.ascontiguousarray(contexts), self._table)

    def _layer(self, name: str) -> KVLayer:
        """Returns pages with the positions of all sequences. Pages that an op writes to hold only NaN."""
        kind, words, writes = self._sizes["kinds"], self._op.SHAPES[name], "steps" not in self._sizes
        pages = _pages_for(self._sizes["T"]) if writes else self._table.size + 1
        dim = product("D", self._sizes) if "D" in self._sizes else product("L", self._sizes) + product("R", self._sizes)
        if words == "1 * *":
            numbers = entry_cache(dim, self._sizes["rate"]).head_dim
            layer = new_kv_layer(kind, pages, 1, numbers, numbers, is_latent=True)
        elif words.startswith("1 "):
            latent = product(self._sizes.get("L", dim), self._sizes)
            layer = new_kv_layer(kind, pages, 1, dim, latent, is_latent=True)
        else:
            heads = product(self._sizes["G" if "G" in self._sizes else "H"], self._sizes)
            layer = new_kv_layer(kind, pages, heads, dim, product("V", self._sizes))
        layer.data.view(np.uint8)[...] = 0xFF
        for table, (context, _) in zip(self._table, self._sizes.get("steps", ()), strict=True):
            self._fill(layer, words, dim, table, context)
        return layer

    def _fill(self, layer: KVLayer, words: str, dim: int, table: np.ndarray, context: int) -> None:
        positions = np.arange(context, dtype=np.int32)
        if words == "1 * *":
            rate = self._sizes["rate"]
            positions = positions[(positions + 1) % rate == 0]
            at = positions % PAGE_TOKENS // rate
            assert not len(at) or at.max() < places(rate)
            write_entries(layer, self._rows(len(positions), dim), table[positions // PAGE_TOKENS], at)
        elif layer.is_latent:
            write_latents(layer, self._rows(context, dim), table[positions // PAGE_TOKENS], positions % PAGE_TOKENS)
        else:
            k, v = (self._rows(context, layer.kv_heads, size) for size in (dim, layer.value_dim))
            write_rows(layer, k, v, table[positions // PAGE_TOKENS], positions % PAGE_TOKENS)


def joined(parts: Sequence[PackedWeight]) -> PackedWeight:
    """Returns a bank of these matrices, one after the other. All have one shape and format. The bank has biases when
    the first matrix has one."""
    first = parts[0]
    data = aligned_bytes(sum(part.data.size for part in parts))
    data[:] = np.concatenate([part.data for part in parts])
    all_scales = [part.scales for part in parts if part.scales is not None]
    scales = np.concatenate(all_scales) if all_scales else None
    biases = [part.bias for part in parts if part.bias is not None]
    bias = np.concatenate(biases) if biases else None
    return PackedWeight(first.format, first.rows, first.columns, data, scales, bias, len(parts))


def _pages_for(count: int) -> int:
    return -(-(count + FIRST_POSITION) // PAGE_TOKENS) + 1


def _slots(pages: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Returns the slots of positions in pages."""
    return (pages[positions // PAGE_TOKENS] * PAGE_TOKENS + positions % PAGE_TOKENS).astype(np.int32)
