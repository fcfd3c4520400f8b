"""Adds adapters (LoRA) to a model that is planned: the program then has their small matrices next to its products."""

from __future__ import annotations

from dataclasses import replace

from twostroke.ops.passes.patterns import PATTERNS
from twostroke.ops.passes.with_adapters import AdapterSpec, linear_tensors, with_adapters
from twostroke.ops.products.linear import Linear
from twostroke.ops.program.fuse import fuse
from twostroke.ops.program.model import Model


def with_places(spec: Model, count: int, rank: int) -> Model:
    """Returns the model with operands for `count` adapters of this rank next to every product of its layers; with 0 the
    model as it is. The head is left out: few adapters change it."""
    if count == 0:
        return spec
    head = {part for call in spec.plain.head if isinstance(call, Linear) for part in call.weight.parts}
    ranks = {module: rank for module, part in linear_tensors(spec.plain).items() if part not in head}
    return replace(spec, program=fuse(with_adapters(spec.plain, AdapterSpec(count, ranks)).program, PATTERNS))
