"""Checks whether the keys (metadata) of a GGUF file describe the model, before it is written: they are read as the
reader will read them.

The config that the reader makes of the keys must trace to the same program as config.json does. The program must have
the same calls with the same numbers, matrices of the same tensors, and the same tables of rotations. Numbers may differ
by the rounding of float32.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct

from twostroke.models.common.registry import read_model
from twostroke.ops.attention.rope_tables import inverse_frequencies
from twostroke.ops.program.model import Model
from twostroke.ops.program.values import Rope
from twostroke.quantize.gguf.blocks import WrittenBlock
from twostroke.quantize.gguf.container import KeyValue
from twostroke.quantize.gguf.names import FIX, StoredPlan
from twostroke.types.errors import ModelError, UnsupportedModel
from twostroke.weights.gguf.block_types import BLOCK_TYPES
from twostroke.weights.gguf.config import config_of
from twostroke.weights.gguf.container import StoredTensor
from twostroke.weights.gguf.families.family import Config
from twostroke.weights.gguf.families.table import family_of
from twostroke.weights.gguf.vocabulary.token_list import TokenList

NEAR = 2e-6
"""The largest relative difference of numbers that count as the same in float32."""
SKIPPED = frozenset({"trace", "stored", "key"})


def read_back(
    keys: Mapping[str, KeyValue],
    plans: Mapping[str, StoredPlan],
    types: Mapping[str, WrittenBlock],
    divisors: Mapping[str, list[float]],
) -> dict[str, Any]:
    """Returns the config.json that this engine's reader would make of the file. types: the types of the tensors. Raises
    ModelError."""
    values = {name: as_read(value) for name, value in keys.items()}
    tensors = {name: StoredTensor(BLOCK_TYPES[types[name].number], plan.shape, 0) for name, plan in plans.items()}
    _, family, own = family_of(values, "The file", tensors)
    found = tuple([float(np.float32(one)) for one in each] for each in divisors.values()) or None
    return config_of(family, own, TokenList.read(values, "The file"), found)


def as_read(value: KeyValue) -> Any:
    """Returns the value of a key as the reader of GGUF files would return it."""
    if isinstance(value, float):
        return float(np.float32(value))
    if isinstance(value, str | bool | int):
        return value
    if isinstance(value, bytes):
        return np.frombuffer(value, np.uint8)
    return [one.encode() for one in value if isinstance(one, str)] or np.array(value)


def require_same(config: Config, back: Mapping[str, Any]) -> None:
    """Raises UnsupportedModel that names the first difference, where the two configs describe different models."""
    model, again = read_model({**config, "quantization_config": None}), _model(back)
    found = difference(model, again)
    if found:
        raise UnsupportedModel(
            f"This {model.architecture} cannot be written as GGUF: its file would be read as another model.",
            why=f"Keys of GGUF cannot describe {found}.",
            fix=FIX,
        )


def _model(back: Mapping[str, Any]) -> Model:
    try:
        return read_model(back)
    except ModelError as error:
        raise UnsupportedModel(
            "This model cannot be written as GGUF: its file could not be read.", why=str(error)[:300], fix=FIX
        ) from None


def difference(one: Model, two: Model) -> str:
    """Returns the first difference of two models as text; an empty text where they are the same."""
    if len(one.plain.calls) != len(two.plain.calls):
        return f"which ops there are ({len(one.plain.calls)} calls, {len(two.plain.calls)} read back)"
    seen: dict[int, int] = {}
    for call, other in zip(one.plain.calls, two.plain.calls, strict=True):
        found = _differs(call, other, seen, one.max_positions)
        if found:
            return f"{found} of an op {type(call).__name__}"
    if one.task is not two.task:
        return "its task"
    return "" if one.max_positions == two.max_positions else "max_position_embeddings"


def _differs(one: Any, two: Any, seen: dict[int, int], positions: int) -> str:
    """Returns the place in which two operands of a call, or parts of them, differ; an empty text where they are the
    same. seen: pairs of objects that were compared before, by id. positions: the longest context, for rope tables."""
    if type(one) is not type(two):
        return "the type"
    if isinstance(one, Rope):
        return "" if _same_table(one, two, positions) else "the rotations"
    if isinstance(one, float):
        return "" if one == two or abs(one - two) <= NEAR * abs(one) else f"{one} ({two} read back)"
    if isinstance(one, tuple | list):
        if len(one) != len(two):
            return "the number of parts"
        return next(filter(None, (_differs(a, b, seen, positions) for a, b in zip(one, two, strict=True))), "")
    names = _field_names(one)
    if not names:
        return "" if one == two else f"{one} ({two} read back)"
    if id(one) in seen:
        return "" if seen[id(one)] == id(two) else "which values are meant"
    seen[id(one)] = id(two)
    for name in names:
        if name not in SKIPPED:
            found = _differs(getattr(one, name), getattr(two, name), seen, positions)
            if found:
                return f"{name}: {found}" if ":" not in found else found
    return ""


def _field_names(value: object) -> tuple[str, ...]:
    """Returns the fields of a dataclass or a Struct; an empty tuple for every other value."""
    if isinstance(value, Struct):
        return value.__struct_fields__
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return tuple(field.name for field in dataclasses.fields(value))
    return ()


def _same_table(one: Rope, two: Rope, positions: int) -> bool:
    """Returns whether two rotations have equal frequencies, and equal factors of cosines and sines."""
    first, second = one.spec, two.spec
    if first.rotary_dim != second.rotary_dim or first.ahead != second.ahead:
        return False
    if first.growth and first.original_positions != second.original_positions:
        return False
    numbers = [
        np.array([*inverse_frequencies(spec, positions), spec.attention_factor, spec.growth])
        for spec in (first, second)
    ]
    return np.allclose(numbers[0], numbers[1], rtol=4 * NEAR, atol=0)
