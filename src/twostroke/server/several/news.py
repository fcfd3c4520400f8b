"""Changes of models' states, as events in the form of llama.cpp's router. All readers share one list of events."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from itertools import islice
from typing import Any

from msgspec import Struct

from twostroke.distributed.fleet.loading import ModelState
from twostroke.server.several.pulls import Pull

STAGE = "weights"
"""The name of the one stage of a load whose progress is known."""
SHARES = 100
"""The number of equal parts of a load's bytes; a load has an event after each part at most."""
MOST_KEPT = 4096
"""The most events that are kept for readers that have not read them yet."""

Told = dict[str, Any]
"""One event, as the object that is sent as JSON."""


class ModelStatus(Struct, frozen=True):
    """The state of one model. share: the part of it that is loaded, from 0 to 1. why: what is wrong with it."""

    state: ModelState
    share: float = 0.0
    why: str = ""


def whole_share(share: float) -> float:
    """Returns the loaded share of a model, 0 to 1, rounded down to a multiple of 1 / SHARES, as events report it."""
    return math.floor(SHARES * min(1.0, share)) / SHARES


class News:
    """The list of events about models: changes of their states, such as loading, and progress of downloads. `note` adds
    one event for each change. All readers get the same events.

    end: the number of all events so far.
    """

    def __init__(self) -> None:
        self.end = 0
        self._events: deque[Told] = deque(maxlen=MOST_KEPT)
        self._told: dict[str, ModelStatus] = {}
        self._pull: Pull | None = None

    def note(self, now: Mapping[str, ModelStatus], pull: Pull | None) -> None:
        """Add the events of the changes from the last noted state to this one. now: the status of each model. pull: the
        last download; the caller must not change the object afterwards."""
        made = changes(self._told, now) + pull_changes(self._pull, pull)
        told = {name: self._told.get(name, each) for name, each in now.items() if each.state is ModelState.DRAINING}
        self._told, self._pull = {**now, **told}, pull
        self._events += made
        self.end += len(made)

    def since(self, place: int) -> list[Told]:
        """Returns the events after the first `place` ones. When some of these were dropped, returns events that
        describe the present state instead."""
        missing = self.end - place
        if missing > len(self._events):
            return changes({}, self._told) + pull_changes(None, self._pull)
        return list(islice(self._events, len(self._events) - missing, None))


def changes(before: Mapping[str, ModelStatus], now: Mapping[str, ModelStatus]) -> list[Told]:
    """Returns the events that lead from one state of the models to a later one. A model that is being unloaded has an
    event only when it is unloaded."""
    found: list[Told] = []
    for name, status in now.items():
        old = before.get(name)
        if status == old or status.state is ModelState.DRAINING:
            continue
        if status.state is ModelState.LOADING:
            if old is None or old.state is not ModelState.LOADING:
                found.append({"model": name, "event": "model_status", "data": {"status": status.state}})
            if status.share:
                progress = {"stages": [STAGE], "current": STAGE, "value": status.share}
                found.append(_changed(name, {"status": status.state, "progress": progress}))
        elif old is None or old.state is not status.state:
            found.append(_changed(name, {"status": status.state, **({"error": status.why} if status.why else {})}))
    return found


def pull_changes(before: Pull | None, now: Pull | None) -> list[Told]:
    """Returns the events that lead from one state of the last download to a later one."""
    if now is None or now == before:
        return []
    if now.state == "running":
        progress = {"stage": now.stage, "done": now.done, "total": now.total}
        return [{"model": now.name, "event": "download_progress", "data": {"progress": progress}}]
    if now.state == "finished":
        return [{"model": now.name, "event": "download_finished", "data": {}}]
    return [{"model": now.name, "event": "download_failed", "data": {"error": now.why or now.state}}]


def _changed(name: str, data: Told) -> Told:
    return {"model": name, "event": "status_change", "data": data}
