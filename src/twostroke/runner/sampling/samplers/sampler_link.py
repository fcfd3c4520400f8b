"""The interface of a sampler. A sampler is a link of the chain that a row goes through before a token is drawn."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from twostroke.runner.sampling.row import SamplerRow

Memory = tuple[float, ...]


class SamplerLink(Protocol):
    """One sampler of a chain. It is frozen, and made from the request's parameters."""

    def apply(self, row: SamplerRow) -> None:
        """Leaves out tokens, or changes their weights. At least one token with a weight stays."""


@runtime_checkable
class RememberingSampler(Protocol):
    """A link whose next row depends on how likely the chosen tokens were. It is the last link of the chain."""

    def apply(self, row: SamplerRow) -> None:
        """Leaves out tokens, or changes their weights; see SamplerLink. row.memory: the result of `remember` after the
        token before; empty at the first token."""

    def remember(self, row: SamplerRow, place: int) -> Memory:
        """Returns the memory after the token at `place` of the row was chosen."""
