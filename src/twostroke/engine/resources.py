"""What the requests of one engine share: compiled grammars, adapters, and the source of seeds."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from msgspec import Struct

from twostroke.types.adapter import TakenAdapter
from twostroke.types.grammar import Grammar, TokenMask


class Grammars(Protocol):
    """Compiles grammars, in threads of its own. Any thread may call it."""

    def submit(self, grammar: Grammar, count: int) -> Future[tuple[TokenMask, ...]]:
        """Begin to compile a grammar, without waiting. The future gives `count` masks, one for each completion, or
        raises the same errors.

        Raises InvalidRequest, Overloaded.
        """


class Adapters(Protocol):
    """The loaded adapters, and the requests that use them. Any thread may call it."""

    def check(self, name: str | None) -> None:
        """Raises InvalidRequest for an adapter that is not loaded."""

    def take(self, name: str) -> TakenAdapter:
        """Take an adapter, which stays as it is until it is given back. Raises InvalidRequest."""

    def give_back(self, slot: int) -> None:
        """Give an adapter back, because its request has ended."""


class Resources(Struct, frozen=True):
    """Objects that the requests of one engine share: compiled grammars, and adapters. An engine may have none of them.
    """

    grammars: Grammars | None = None
    adapters: Adapters | None = None


NO_RESOURCES = Resources()


class Seeds(Struct, frozen=True):
    """The source of the seeds of completions. draw: returns a fresh 63-bit seed. sibling(seed, i): returns the seed of
    completion i of a request with this seed."""

    draw: Callable[[], int]
    sibling: Callable[[int, int], int]
