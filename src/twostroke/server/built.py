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
"""Called with all names by which requests may call the models of a server, in a thread that may touch a disk."""


def _names_stay(_heard: NamesHeard) -> None:
    pass


@dataclass(eq=False)
class BuiltServer:
    """parts: the parts for `run`. facts: the facts of a start-up message. make_app: makes the app of a server with
    several models; None for the usual app. follow_names: called once, with a function that gets all names whenever a
    model was added while the server runs. Used with `with`, which closes it at the end."""

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
