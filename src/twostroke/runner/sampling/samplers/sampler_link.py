"""What a sampler is: a link of the chain that a row goes through before a token is drawn."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from twostroke.runner.sampling.row import SamplerRow

Memory = tuple[float, ...]


class SamplerLink(Protocol):
    """Frozen, made of the request's parameters."""

    def apply(self, row: SamplerRow) -> None:
        """Leave out tokens, or change their weights. At least one token with a weight stays."""


@runtime_checkable
class RememberingSampler(Protocol):
    """A link whose next row depends on how likely the chosen tokens were. It is the last of the chain."""

    def apply(self, row: SamplerRow) -> None:
        """See SamplerLink. row.memory: what `remember` gave after the token before; empty at the first."""

    def remember(self, row: SamplerRow, place: int) -> Memory:
        """What is known after the token at a place of the row was chosen."""
