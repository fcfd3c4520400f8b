"""Predicts the formats in which the matrices of a quantized checkpoint will be kept. `twostroke plan` needs them where
the weights were not downloaded, so they are predicted from config.json alone.

Facts that only the tensors show are not known to this module: act-order whose orders differ, types of scales, layers
that were left out without a note. So the checkpoint may be kept in other formats.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import singledispatch
from typing import Any

from twostroke.ops.program.trace import StoredChoice, nothing_stored
from twostroke.ops.program.values import Tensor
from twostroke.ops.stored_layout import holds_columns
from twostroke.types.spec.formats import BF16, STORED_GROUP, WeightFormat, WeightKind
from twostroke.weights.quantized.matrix import affine_kinds
from twostroke.weights.quantized.patterns import compiled, exactly
from twostroke.weights.quantized.recipe import scheme_of
from twostroke.weights.quantized.schemes import (
    AwqScheme,
    CompressedScheme,
    GptqScheme,
    HqqScheme,
    MlxScheme,
    Mxfp4Scheme,
    Scheme,
)

_IN_LAYER = re.compile(r"\.\d+\.")
_NONE: frozenset[WeightKind] = frozenset()


def expected_formats(config: Mapping[str, Any]) -> StoredChoice:
    """Returns a function from the tensors of a matrix to its format. Raises the errors of `scheme_of`."""
    scheme = scheme_of(config)
    if scheme is None:
        return nothing_stored

    def choose(parts: tuple[Tensor, ...]) -> WeightFormat | None:
        plain = all(part.rows is None and part.order is None and part.matrix is None for part in parts)
        banks = all(part.transposed and part.matrix is not None for part in parts)
        if not (banks if isinstance(scheme, Mxfp4Scheme) else plain and not any(part.transposed for part in parts)):
            return BF16
        common = frozenset.intersection(*(_kinds(scheme, part.name.removesuffix(".weight"), part) for part in parts))
        columns = parts[0].shape[-2 if banks else -1]
        fitting = [WeightFormat(kind, STORED_GROUP) for kind in common if holds_columns(kind, columns)]
        return min(fitting, key=lambda each: (each.bits_per_weight, each.kind), default=BF16)

    return choose


@singledispatch
def _kinds(scheme: Scheme, module: str, part: Tensor) -> frozenset[WeightKind]:
    """Returns the packed kinds that hold a module's matrix without loss. There are none for a matrix that the
    checkpoint has in floats, and for a matrix that must be expanded to bf16."""
    return _NONE


@_kinds.register
def _(scheme: GptqScheme, module: str, part: Tensor) -> frozenset[WeightKind]:
    place = "config.json: quantization_config.dynamic"
    left_out = any(members is None and compiled(text, place).match(module) for text, members in scheme.dynamic)
    if left_out or not _IN_LAYER.search(module):
        return _NONE
    settings = scheme.settings(module)
    return affine_kinds(settings.bits, part.shape[1], settings.group or part.shape[1])


@_kinds.register
def _(scheme: AwqScheme, module: str, part: Tensor) -> frozenset[WeightKind]:
    return affine_kinds(4, part.shape[1], scheme.group or part.shape[1]) if _IN_LAYER.search(module) else _NONE


@_kinds.register
def _(scheme: MlxScheme, module: str, part: Tensor) -> frozenset[WeightKind]:
    bits, group, mode = scheme.own.get(module, scheme.usual)
    if mode == "affine":
        return affine_kinds(bits, part.shape[1], group)
    small = {"mxfp4": WeightKind.E2M1_32, "nvfp4": WeightKind.E2M1_16}
    return frozenset({small[mode]}) if mode in small else _NONE


@_kinds.register
def _(scheme: HqqScheme, module: str, part: Tensor) -> frozenset[WeightKind]:
    plain = any(name in module for name in scheme.skipped) or not _IN_LAYER.search(module)
    if plain or scheme.usual is None:
        return _NONE
    bits, group, axis = scheme.usual
    columns = part.shape[1]
    return affine_kinds(bits, columns, group or columns) if axis and columns % (group or columns) == 0 else _NONE


@_kinds.register
def _(scheme: Mxfp4Scheme, module: str, part: Tensor) -> frozenset[WeightKind]:
    return frozenset({WeightKind.E2M1_32})


@_kinds.register
def _(scheme: CompressedScheme, module: str, part: Tensor) -> frozenset[WeightKind]:
    if exactly(scheme.ignore, module, "config.json: quantization_config.ignore") or not _IN_LAYER.search(module):
        return _NONE
    found = scheme.scheme_for(module)
    if found is None:
        return _NONE
    if found.format.endswith("fp4-pack-quantized"):
        return frozenset({WeightKind.E2M1_16 if found.format.startswith("nv") else WeightKind.E2M1_32})
    whole = not found.floats and found.tile[0] <= 1
    return affine_kinds(found.bits, part.shape[1], found.tile[1] or part.shape[1]) if whole else _NONE
