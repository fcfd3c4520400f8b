"""Computes how many FLOPs and bytes a model's steps take (WorkTable), with all weights in one format. The last tables
are cached."""

from __future__ import annotations

from functools import lru_cache

from twostroke.cost.work_table import WorkTable
from twostroke.ops.program.model import Model
from twostroke.ops.program.op import StoredFormats
from twostroke.ops.program.work_table import work_table
from twostroke.ops.quant.formats import format_choice
from twostroke.types.spec.formats import KVKind


@lru_cache(maxsize=64)
def work_of(model: Model, weights: str, kv_kind: KVKind) -> WorkTable:
    """Returns the table of what a step computes and moves. weights: a name of `formats.FORMATS`."""
    return work_table(model, StoredFormats(format_choice(weights), kv_kind))
