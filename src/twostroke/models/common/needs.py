"""The memory that an engine needs, for a whole model or for the largest of the parts that several processes have."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from twostroke.cost.cache_needs import CacheNeeds, GroupBytes
from twostroke.cost.memory import PROCESS_BYTES, MemoryNeeds
from twostroke.engine.speculate.guess_limiter import GUESS_ROWS
from twostroke.ops.program.cache_groups import cache_groups, page_bytes
from twostroke.ops.program.model import Model
from twostroke.ops.program.place import place
from twostroke.ops.quant.formats import format_choice
from twostroke.ops.step_memory import page_table_bytes
from twostroke.types.spec.formats import KVKind


class EngineSizes(Struct, frozen=True):
    """The sizes of an engine that decide its memory. weights: the name of a weight format."""

    weights: str
    kv_kind: KVKind
    context_tokens: int
    max_sequences: int
    step_tokens: int


def memory_needs(whole: Model, parts: Sequence[Model], sizes: EngineSizes) -> MemoryNeeds:
    """Returns the memory that a process needs if it may hold any of `parts`: the most that one of them needs. The pools
    are planned with the same number of pages as for the whole model."""
    context, sequences, step = sizes.context_tokens, sizes.max_sequences, sizes.step_tokens
    tables = len(cache_groups(whole.program).pages) * page_table_bytes(context, sequences)
    formats = format_choice(sizes.weights)
    pages = tuple(_group_bytes(whole, parts, sizes.kv_kind))
    return MemoryNeeds(
        weight_bytes=max(part.weight_bytes(formats) for part in parts),
        buffer_bytes=max(place(part.program, step, sequences + GUESS_ROWS).num_bytes for part in parts),
        caches=CacheNeeds(pages, max(part.state_bytes() for part in parts), context, sequences, step),
        table_bytes=whole.rope_bytes(context) + tables,
        process_bytes=PROCESS_BYTES,
    )


def _group_bytes(whole: Model, parts: Sequence[Model], kind: KVKind) -> list[GroupBytes]:
    """Returns the sizes of the whole model's page groups. The size of a group is that of the largest page that any part
    has."""
    groups = cache_groups(whole.program).pages
    largest = [0] * len(groups)
    for part in parts:
        places = range(len(groups)) if part.groups is None else part.groups
        for place_of, group in zip(places, cache_groups(part.program).pages, strict=True):
            largest[place_of] = max(largest[place_of], page_bytes(group, kind))
    return [GroupBytes(size, group.window) for size, group in zip(largest, groups, strict=True)]
