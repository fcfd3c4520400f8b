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
    """A sampler (see SamplerLink) whose work on the next token depends on how likely the chosen tokens were. It is the
    last sampler of its chain."""

    def apply(self, row: SamplerRow) -> None:
        """Leaves out tokens, or changes their weights. At least one token with a weight stays. row.memory: what
        `remember` has returned for the token before; empty at the first token."""

    def remember(self, row: SamplerRow, place: int) -> Memory:
        """Returns the sampler's memory for the next token. Called after a token was chosen. place: its index among the
        row's candidates."""
