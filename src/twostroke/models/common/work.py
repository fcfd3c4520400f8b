"""The WorkTable of a model in weights of one name, kept for the next caller.

Knows: formats by name.
Must not know: machines.
"""

from __future__ import annotations

from functools import lru_cache

from twostroke.cost.work_table import WorkTable
from twostroke.program.model import Model
from twostroke.program.op import StoredFormats
from twostroke.program.work_table import work_table
from twostroke.quant.formats import format_choice
from twostroke.spec.formats import KVKind


@lru_cache(maxsize=64)
def work_of(model: Model, weights: str, kv_kind: KVKind) -> WorkTable:
    """What a step computes and moves. weights: "f32", "bf16", "int8" or "int4"."""
    return work_table(model, StoredFormats(format_choice(weights), kv_kind))
