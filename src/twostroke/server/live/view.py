"""The parts of an engine that the live view reads. Nothing is kept for viewers: they read what the engine keeps."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from twostroke.cost.history.ledger import Ledger


@dataclass(frozen=True, slots=True)
class EngineView:
    """What the live routes may read of a running engine. pages: returns a PageState for each page. clock: the engine's
    clock. about: facts that do not change while the engine runs. replicas: returns the facts about each replica; an
    empty tuple for an engine in this process."""

    ledger: Ledger = field(default_factory=Ledger)
    pages: Callable[[], bytes] = bytes
    clock: Callable[[], float] = time.perf_counter
    about: Mapping[str, Any] = field(default_factory=dict)
    replicas: Callable[[], Sequence[Mapping[str, Any]]] = tuple
