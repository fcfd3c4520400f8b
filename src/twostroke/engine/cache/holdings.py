"""What a prompt finds in the caches, and which pages and slots a sequence holds in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from twostroke.engine.cache.page_group import PageTable
from twostroke.engine.cache.prefix_tree import Node
from twostroke.engine.cache.state_group import SlotTable

Tables = tuple[tuple[int, ...], ...]


class Prefix(Struct, frozen=True):
    """The cached beginning of a prompt. num_pages: the number of its pages from which a sequence can go on in every
    cache group.

    paths: for each page group, and last for the states, the nodes of the group's prefix tree that match the prompt.
    points: the positions, in order, where a prompt with this prefix should stop for snapshots of its state.
    """

    num_pages: int
    paths: tuple[Sequence[Node], ...]
    points: tuple[int, ...] = ()

    def __len__(self) -> int:
        return self.num_pages


NOTHING_CACHED = Prefix(0, ())


class SequenceCache(Struct):
    """The pages and the slot that one sequence holds.

    full_pages: the number of full pages, which the prefix trees hold too. copied_tokens: the number of positions in its
    own pages that were copied from another sequence; they may then exist twice. planned: its page tables as the latest
    plan has them. planned_pages: the length of these tables; -1 when `planned` is no longer valid.
    """

    salt: str
    tables: tuple[PageTable, ...]
    state: SlotTable | None
    full_pages: int
    filled_tokens: int
    copied_tokens: int = 0
    planned: Tables = ()
    planned_pages: int = -1


Closing = Callable[[str, SequenceCache], None]
"""Called with the id of a sequence and its SequenceCache, before the sequence gives its pages back."""


class HeldTables(Protocol):
    """An object that holds pages of a prompt while their bytes come from outside the caches, such as from a disk
    (`Graft`)."""

    @property
    def tables(self) -> Mapping[int, PageTable]:
        """The page tables of the held pages, by the number of the cache group."""
