"""Maps names of stored tensors in GGUF files to the names in Hugging Face checkpoints."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct

from twostroke.ops.operands import I32Array
from twostroke.types.errors import CorruptModel
from twostroke.weights.gguf.container import GgufFile, StoredTensor
from twostroke.weights.gguf.families.family import Config, Family, Joined, Place
from twostroke.weights.gguf.row_orders import halves_of_pairs
from twostroke.weights.gguf.tensors import GgufTensor, NumbersOfKeys, Source, expanded, whole
from twostroke.weights.tensor_source import ORDER

_LAYER = re.compile(r"blk\.(\d{1,5})\.(.+)")
_ONE_EXPERT = re.compile(r"(ffn_(?:gate|up|down))\.(\d{1,5})\.(weight|bias)")
_ENDING = re.compile(r"\.(weight|bias)$")

ROTATION_DIVISORS = (("rope_freqs.weight",), ("rope_factors_short.weight", "rope_factors_long.weight"))
"""Tensors with the numbers by which rotary frequencies are divided. They become a field of config.json. The second
entry has one tensor for short and one for long contexts."""

_DIVISORS = frozenset(name for names in ROTATION_DIVISORS for name in names)


def named_tensors(
    files: Mapping[str, GgufFile], family: Family, config: Config
) -> Iterator[tuple[str, GgufTensor | NumbersOfKeys]]:
    """Yields all tensors of the files under Hugging Face names. Also yields tensors of a Hugging Face checkpoint whose
    values the files have as keys. A tensor that the family's table does not name keeps its stored name."""
    yield from ((name, NumbersOfKeys(values)) for name, values in family.numbers(config).items())
    by_layer: dict[str | None, dict[str, tuple[GgufFile, str]]] = {}
    for file in files.values():
        for stored in file.tensors:
            found = _LAYER.fullmatch(stored)
            number, rest = (found[1], found[2]) if found else (None, stored)
            if stored not in _DIVISORS:
                by_layer.setdefault(number, {})[rest] = (file, stored)
    for number, tensors in by_layer.items():
        prefix = "" if number is None else f"{family.layers}{number}."
        used: set[str] = set()
        for each in family.joined if number is not None else ():
            if each.pieces[0] in tensors:
                used.update(each.pieces)
                yield prefix + each.name, _fitting(each, tensors, config)
        table = family.outer if number is None else family.layer
        names = _Names(family, config, table, prefix, int(number or 0))
        for rest, (file, stored) in tensors.items():
            if rest not in used:
                yield from names.of(rest, file, stored)


class _Names(Struct, frozen=True):
    """Gives Hugging Face names to the stored tensors of one layer, or to those outside the layers. table: stored name
    -> Hugging Face name. prefix: the text that is put before each of these names. layer: the layer's number, 0 outside
    the layers."""

    family: Family
    config: Config
    table: Mapping[str, str | Place]
    prefix: str
    layer: int

    def of(self, rest: str, file: GgufFile, stored: str) -> Iterator[tuple[str, GgufTensor | NumbersOfKeys]]:
        """Yields what one stored tensor becomes under Hugging Face names. rest: the tensor's name without the layer's
        prefix. Raises CorruptModel."""
        try:
            yield from self._found(rest, file, stored)
        except (ArithmeticError, LookupError, TypeError, ValueError):
            raise _misfit(file, stored) from None

    def _found(self, rest: str, file: GgufFile, stored: str) -> Iterator[tuple[str, GgufTensor | NumbersOfKeys]]:
        tensor = file.tensors[stored]
        one = _ONE_EXPERT.fullmatch(rest)
        rest = f"{one[1]}_exps.{one[3]}" if one else rest
        ending = _ENDING.search(rest)
        stem = rest[: ending.start()] if ending else rest
        said = self.table.get(rest, self.table.get(stem))
        if said is None:
            yield stored, GgufTensor((whole(file, stored),), tensor.shape)
            return
        place = said if isinstance(said, Place) else Place(said)
        name = self.prefix + place.name + ("" if place.whole or ending is None else ending[0])
        if place.parts:
            yield from _parts(file, stored, place, name, self.config)
            return
        if "{}" in name and one is None:
            yield from _slices(file, stored, tensor, name)
            return
        turned = stem in self.family.turned and rest.endswith(".weight")
        shape = tensor.shape if place.shape is None else place.shape(self.config, tensor.shape)
        rows = shape[0]
        order = None if place.order is None else place.order(self.config, rows)
        pairs = order_of_pairs(self.family, self.config, stem, rows)
        order = order if pairs is None else pairs
        plus = -1.0 if stem in self.family.less_one and rest.endswith(".weight") else 0.0
        if place.shape is not None and math.prod(shape) != math.prod(tensor.shape):
            raise _misfit(file, stored)
        source = (whole(file, stored),)
        shape = (*shape[:-2], shape[-1], shape[-2]) if turned else shape
        columns = None if place.columns is None else place.columns(self.config, shape[-1])
        for moved, count in ((order, rows), (columns, shape[-1])):
            if moved is not None and (len(moved) != count or int(moved.max(initial=0)) >= count):
                raise _misfit(file, stored)
        factor = 1.0 if place.factor is None else place.factor(self.config, self.layer)
        elements = len(shape) > 3 or (place.shape is not None and shape[-1] != tensor.shape[-1])
        found = GgufTensor(source, shape, order, turned, plus, place.negated_exp, elements, columns, factor)
        name = name.format(one[2] if one else "")
        yield name, found
        if found.column_order is not None:
            yield name + ORDER, NumbersOfKeys(found.column_order.astype(np.float32))


def _misfit(file: GgufFile, stored: str) -> CorruptModel:
    return CorruptModel(
        f"{file.path.name}: tensor {stored} has the shape {list(file.tensors[stored].shape)}.",
        why="That does not fit the keys of the file, or the other parts of its matrix.",
        fix="Download the file again.",
    )


def order_of_pairs(family: Family, config: Config, stem: str, rows: int) -> I32Array | None:
    """Returns, for each row of a Hugging Face tensor, the number of the stored row, where the file stores rows of q or
    k as rotary pairs. Returns None for any other tensor. stem: the stored name in the layer, without its ending."""
    heads = int(config.get("num_attention_heads") or 0)
    each = {"attn_q": heads, "attn_k": int(config.get("num_key_value_heads") or heads)}.get(stem, 0)
    return halves_of_pairs(rows, each) if family.pairs and each and rows % (2 * each) == 0 else None


def _fitting(joined: Joined, tensors: Mapping[str, tuple[GgufFile, str]], config: Config) -> GgufTensor:
    """Returns the tensor that its pieces form. Raises CorruptModel where they do not fit together."""
    file, stored = tensors[joined.pieces[0]]
    try:
        found = _joined(joined, tensors, config)
    except (ArithmeticError, LookupError, TypeError, ValueError):
        raise _misfit(file, stored) from None
    rows = sum(math.prod(source.tensor.shape) if found.elements else source.rows for source in found.sources)
    widths = {source.tensor.shape[-2 if source.turned else -1] for source in found.sources}
    misfit = len(widths) > 1 and not found.elements
    if misfit or (found.order is not None and (len(found.order) != rows or int(found.order.max(initial=0)) >= rows)):
        raise _misfit(file, stored)
    return found


def _joined(joined: Joined, tensors: Mapping[str, tuple[GgufFile, str]], config: Config) -> GgufTensor:
    missing = [piece for piece in joined.pieces if piece not in tensors]
    if missing:
        file, stored = tensors[joined.pieces[0]]
        raise CorruptModel(
            f"{file.path.name} has {stored}, and no {missing[0]} in that layer.",
            why="Both are parts of one matrix.",
            fix="Download the file again.",
        )
    sources = tuple(whole(*tensors[piece], turned=piece in joined.turned_pieces) for piece in joined.pieces)
    shapes = tuple(source.tensor.shape for source in sources)
    order = None if joined.order is None else joined.order(config, shapes)
    first = shapes[0]
    if joined.name.endswith("bias"):
        sizes = (*first[:-1], sum(shape[-1] for shape in shapes))
        return GgufTensor(sources, sizes, order, elements=True)
    columns = first[-2] if joined.pieces[0] in joined.turned_pieces else first[-1]
    rows = sum(source.rows for source in sources)
    if not joined.matrices:
        return GgufTensor(sources, (columns, rows) if joined.turned else (rows, columns), order, joined.turned)
    each = rows // first[0]
    sizes = (first[0], columns, each) if joined.turned else (first[0], each, columns)
    return GgufTensor(sources, sizes, order, joined.turned)


def _parts(file: GgufFile, stored: str, place: Place, name: str, config: Config) -> Iterator[tuple[str, GgufTensor]]:
    """Yields the Hugging Face tensors that a file stores as one tensor: one for each index of its first axis. They are
    named with the texts of `place.parts`. Raises ValueError where the axis is longer or shorter than `place.parts`."""
    tensor = file.tensors[stored]
    rows = tensor.rows // len(place.parts)
    if tensor.shape[0] != len(place.parts):
        raise ValueError(f"{tensor.shape[0]} parts")
    shape = tensor.shape[1:] if place.shape is None else place.shape(config, tensor.shape[1:])
    for index, part in enumerate(place.parts):
        yield name.format(part), GgufTensor((Source(file, stored, index * rows, rows),), shape)


def _slices(file: GgufFile, stored: str, tensor: StoredTensor, name: str) -> Iterator[tuple[str, GgufTensor]]:
    """Yields a stack (experts, rows, columns) as one tensor for each expert."""
    if len(tensor.shape) != 3:
        yield stored, GgufTensor((whole(file, stored),), tensor.shape)
        return
    experts, rows, columns = tensor.shape
    for expert in range(experts):
        yield name.format(expert), GgufTensor((Source(file, stored, expert * rows, rows),), (rows, columns))


def rotation_divisors(files: Mapping[str, GgufFile]) -> tuple[list[float], ...] | None:
    """Returns the numbers by which the frequencies of rotation are divided: one list, or one for short and one for long
    contexts. Returns None where the files have no such tensors (ROTATION_DIVISORS). Raises CorruptModel where only one
    of the tensors for short and long contexts is there."""
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
