"""The entries of the table of architectures: names of tensors in GGUF files and in Hugging Face checkpoints, and what
llama.cpp's converters change. In this folder, "our" names, shapes and checkpoints are those of Hugging Face."""

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
"""The members of a config.json as a mapping, under the field names that the Hugging Face model uses."""

Shape = tuple[int, ...]


class Place(Struct, frozen=True):
    """How a tensor stored in a GGUF file becomes a tensor of a Hugging Face checkpoint.

    name: the checkpoint's name with its ending; without an ending, it gets the stored one. `{}` in the name stands for
    an expert's number, or for one of `parts`. order: computes the order of the rows (see row_orders.py) from the config
    and the number of rows. shape: computes the checkpoint's shape from the config and the stored shape. columns:
    computes the order of the columns. negated_exp: True where the file stores -exp(x) for each value x. whole: True
    where `name` has its ending already. parts: the texts for `{}` where the stored tensor holds several tensors of the
    checkpoint, one for each index of its first axis. factor: computes a power of two, by which the values are
    multiplied, from the config and the layer's number.
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
    """One tensor of a Hugging Face checkpoint whose rows lie in several stored tensors of a GGUF layer.

    name: the checkpoint's name of the tensor, with its ending (".weight"). pieces: the stored names in the file, with
    their endings; a layer that lacks the first piece has no such tensor. turned_pieces: those pieces that store each
    matrix of a stack transposed, as (columns, rows). order: computes the order of the joined rows from the config and
    the shapes of the pieces. matrices: whether the tensor is a stack of matrices, as the pieces are. turned: True where
    the checkpoint has the tensor transposed, as (columns, rows).
    """

    name: str
    pieces: tuple[str, ...]
    order: Callable[[Config, tuple[Shape, ...]], I32Array] | None = None
    matrices: bool = False
    turned: bool = False
    turned_pieces: frozenset[str] = frozenset()


def no_numbers(config: Config) -> Mapping[str, F32Array]:
    """The default of Family.numbers: no tensors are made from keys of the file."""
    return {}


def nothing_held(read: Callable[[str], F32Array], layers: int) -> dict[str, Any]:
    """The default of Family.held: no fields of the config are read from tensors."""
    return {}


def nothing_more(keys: Keys, config: Config) -> dict[str, Any]:
    """The default of Family.more: no fields in addition to the usual ones."""
    return {}


_Names = Mapping[str, str | Place]
OUTER: _Names = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
"""The tensors outside of layers in most families: stored name -> Hugging Face name."""


@dataclass(frozen=True, slots=True)
class Family:
    """One architecture of GGUF files: how its keys become config.json, and its tensors those of Hugging Face
    checkpoints ("ours").

    hf: the name in `architectures` of config.json. layer, outer: stored name -> our name, for the tensors of a layer
    and for the others. A stored name with its ending goes before one without.

    layers: the text before a layer's number. pairs: True where the file has the rows of q and k as rotary pairs and
    checkpoints have them as two halves. less_one: tensors to whose values the converter added 1. turned: matrices that
    are transposed, (columns, rows), in our checkpoints. joined: see Joined. chosen: returns, from a file's keys, the
    name of another entry to read the file with, or "" for this entry. windows: whether a file may have a sliding
    window. partial: whether a head may be rotated in part. apart: True where the usual keys do not give the heads'
    sizes; `more` reads them. fixed: fields that all files of the family have. keys: keys that only this family has, and
    their names in config.json. rows: further keys of the file, each with a rule for files and configs that lack it.
    renamed: the usual field of config.json -> this family's field, "" for none. more: returns the fields that must be
    computed; they override the others. numbers: returns, from the config, tensors of our checkpoints whose values a
    file has as keys. held: used when a GGUF file is written: returns the config fields whose values are in such
    tensors. Its arguments are a function that reads a tensor, and the number of layers. task: the task of the model.
    written: whether `quantize --to gguf` makes such files.
    """

    hf: str
    model_type: str
    layer: _Names
    outer: _Names = field(default_factory=lambda: OUTER)
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
