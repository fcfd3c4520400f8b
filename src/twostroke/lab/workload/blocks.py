"""Identities of a prompt's blocks: equal ids in equal places mean equal text."""

from __future__ import annotations

from collections.abc import Hashable


class PromptBlocks:
    """Gives ids to the blocks of generated prompts, which are parts of `block_tokens` tokens. A full block keeps its id
    when the prompt of the same conversation grows; a partly filled block gets a new id."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._known: dict[Hashable, int] = {}

    def ids(self, shared: Hashable, shared_tokens: int, own: Hashable, prompt_tokens: int) -> tuple[int, ...]:
        """Returns the ids of a prompt's blocks, in order. The first shared_tokens tokens belong to `shared`, the others
        to `own`."""
        block = self._block_tokens
        found = []
        for index in range(-(-prompt_tokens // block)):
            end = (index + 1) * block
            filled = min(end, prompt_tokens)
            owner = shared if filled <= shared_tokens else (shared, own)
            found.append(self._id((owner, index, filled)))
        return tuple(found)

    def _id(self, key: Hashable) -> int:
        return self._known.setdefault(key, len(self._known))
