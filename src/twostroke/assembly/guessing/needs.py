"""Computes the memory that a draft model, or layers that guess, need in addition to the model whose tokens they guess.
"""

from __future__ import annotations

from msgspec import structs

from twostroke.assembly.settings.resolver import Resolved
from twostroke.cost.memory import MemoryNeeds
from twostroke.ops.program.model import Model
from twostroke.ops.program.place import place as placement
from twostroke.ops.step_memory import page_table_bytes

SLOTS_A_SEQUENCE = 3
"""The state slots of a draft's sequence: its state, a copy while it reads its own guesses, a snapshot."""


def needs_with(
    needs: MemoryNeeds, spec: Model, weight_bytes: int, rows: int, context: int, settings: Resolved
) -> MemoryNeeds:
    """Returns the memory that a model needs together with a second one, whose cache groups come after the first
    model's.

    rows, context: the most rows of a step of the second model, and its longest context.
    """
    sequences = settings.steps.max_sequences
    own = spec.cache_needs(settings.cache.kind, context, sequences, rows)
    tables = len(own.groups) * page_table_bytes(context, sequences)
    state_bytes = own.state_bytes * draft_slots(spec, sequences)
    return structs.replace(
        needs,
        weight_bytes=needs.weight_bytes + weight_bytes,
        buffer_bytes=needs.buffer_bytes + placement(spec.program, rows, sequences).num_bytes + state_bytes,
        caches=structs.replace(needs.caches, groups=needs.caches.groups + own.groups),
        table_bytes=needs.table_bytes + spec.rope_bytes(context) + tables,
    )


def draft_slots(spec: Model, sequences: int) -> int:
    """Returns the number of slots for recurrent states that a draft model needs; 0 for a draft model without states.
    sequences: the most sequences at a time."""
    return SLOTS_A_SEQUENCE * sequences if spec.state_bytes() else 0
