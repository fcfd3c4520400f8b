"""What an entry of the table of architectures says: names on both sides, and what converters did to the tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from twostroke.ops.operands import F32Array, I32Array
from twostroke.types.pooling import Task
from twostroke.weights.gguf.families.key_row import KeyRow
from twostroke.weights.gguf.keys import Keys

Config = Mapping[str, Any]
"""The members of config.json, under the names of the family."""

Shape = tuple[int, ...]


class Place(Struct, frozen=True):
    """Where a stored tensor stands in our checkpoints.

    name: ours with its ending; without one, it has the stored ending. `{}` in it is an expert's number, or one of
    `parts`. order: of its rows, by the config and their number (see row_orders.py). shape: ours, by the config and the
    stored one. columns: the order of its columns. negated_exp: stored is minus the exponential of what our checkpoints
    have. whole: the name has its ending already. parts: what stands for `{}` where the stored tensor holds several of
    ours, one for each of its first axis. factor: what the values are multiplied by, a power of two, by the config and
    the layer's number.
    """

    name: str
    order: Callable[[Config, int], I32Array] | None = None
    shape: Callable[[Config, Shape], Shape] | None = None
    columns: Callable[[Config, int], I32Array] | None = None
    negated_exp: bool = False
    whole: bool = False
    parts: tuple[str, ...] = ()
    factor: Callable[[Config, int], float] | None = None


class Joined(Struct, frozen=True):
    """One of our tensors whose rows lie in several stored ones of a layer.

    name: ours, with its ending. pieces: stored names with their endings; a layer that lacks the first has no such
    tensor. turned_pieces: of these, the stacks whose matrices are stored as (columns, rows). order: as in Place, by the
    shapes of the pieces. matrices: whether ours is a stack as the pieces are. turned: our checkpoints have it as
    (columns, rows).
    """

    name: str
    pieces: tuple[str, ...]
    order: Callable[[Config, tuple[Shape, ...]], I32Array] | None = None
    matrices: bool = False
    turned: bool = False
    turned_pieces: frozenset[str] = frozenset()


def no_numbers(config: Config) -> Mapping[str, F32Array]:
    """No tensors next to those of the file."""
    return {}


def nothing_held(read: Callable[[str], F32Array], layers: int) -> dict[str, Any]:
    """No fields that tensors hold."""
    return {}


def nothing_more(keys: Keys, config: Config) -> dict[str, Any]:
    """No fields next to the usual ones."""
    return {}


@dataclass(frozen=True, slots=True)
class Family:
    """hf: what `architectures` of config.json would say. outer, layer: stored name -> ours. A stored name with its
    ending goes before one without.

    layers: what stands before a layer's number. pairs: rows of q and k lie as pairs that turn together, and are put
    back into halves. less_one: tensors whose values had one added. turned: matrices that are stored as (columns, rows)
    in our checkpoints. joined: see Joined. chosen: the entry that a file of this architecture is read as, by its keys;
    "" for this one. windows: whether it may have a sliding window. partial: whether less than a whole head may turn.
    apart: heads' sizes are not what the usual keys say; `more` reads them. fixed: fields that all of them have. keys:
    those that this family alone has, and what config.json calls them. rows: the same of keys with a rule for files and
    configs that lack them. renamed: our usual field -> theirs, "" for none.
    more: the fields that no table says; they count over the others. numbers: tensors of our checkpoints whose values
    are keys of the file, by the config. held: the fields of the config that those tensors hold, by what reads one and
    the number of layers. task: what the model's rows are. written: whether `quantize --to gguf` makes such files.
    """

    hf: str
    model_type: str
    outer: Mapping[str, str | Place]
    layer: Mapping[str, str | Place]
    layers: str = "model.layers."
    pairs: bool = False
    less_one: frozenset[str] = frozenset()
    turned: frozenset[str] = frozenset()
    joined: tuple[Joined, ...] = ()
    chosen: Callable[[Keys], str] = lambda keys: ""
    windows: bool = False
    partial: bool = False
    apart: bool = False
    fixed: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    keys: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    rows: tuple[KeyRow, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    more: Callable[[Keys, Config], dict[str, Any]] = nothing_more
    numbers: Callable[[Config], Mapping[str, F32Array]] = no_numbers
    held: Callable[[Callable[[str], F32Array], int], dict[str, Any]] = nothing_held
    task: Task = Task.GENERATE
    written: bool = True
