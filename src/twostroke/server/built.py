"""A built server, ready to run: with an engine of its own, or as a front of replicas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from starlette.types import ASGIApp

from twostroke.assembly.settings.resolver import Resolved
from twostroke.server.parts import ServerParts

NamesHeard = Callable[[Sequence[str]], None]
"""A function that gets the names of all models of a server, without adapters. It is called in a thread in which it may
write files."""


def _names_stay(_heard: NamesHeard) -> None:
    pass


@dataclass(eq=False)
class BuiltServer:
    """A server that is ready to run. It is used with `with`, which closes it at the end. parts: what `run` needs.
    facts: the facts of a start-up message. make_app: makes the app of a server with several models; None for the usual
    app. follow_names: takes one function, which is called with all models' names whenever a model is added."""

    parts: ServerParts
    resolved: Resolved
    facts: dict[str, Any]
    close: Callable[[], None]
    make_app: Callable[[ServerParts], ASGIApp] | None = None
    follow_names: Callable[[NamesHeard], None] = _names_stay

    def __enter__(self) -> BuiltServer:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()
