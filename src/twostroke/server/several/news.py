"""What becomes of each model, as events in the form of llama.cpp's router: one list, which all readers share."""

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
"""The one stage of a load that has a share."""
SHARES = 100
"""A load has an event for each of so many shares of its bytes."""
MOST_KEPT = 4096
"""Events that are kept for readers which have not read them yet."""

Told = dict[str, Any]
"""One event."""


class ModelStatus(Struct, frozen=True):
    """The state of one model. share: how much of it is loaded. why: what is wrong with it."""

    state: ModelState
    share: float = 0.0
    why: str = ""


def whole_share(share: float) -> float:
    """A share of a load as events tell it."""
    return math.floor(SHARES * min(1.0, share)) / SHARES


class News:
    """Every change has its events once, however short it lasted, and every reader gets the same ones.

    end: how many events there have been.
    """

    def __init__(self) -> None:
        self.end = 0
        self._events: deque[Told] = deque(maxlen=MOST_KEPT)
        self._told: dict[str, ModelStatus] = {}
        self._pull: Pull | None = None

    def note(self, now: Mapping[str, ModelStatus], pull: Pull | None) -> None:
        """This is true now. pull: the last download; the caller does not change it any more."""
        made = changes(self._told, now) + pull_changes(self._pull, pull)
        told = {name: self._told.get(name, each) for name, each in now.items() if each.state is ModelState.DRAINING}
        self._told, self._pull = {**now, **told}, pull
        self._events += made
        self.end += len(made)

    def since(self, place: int) -> list[Told]:
        """The events after the first `place` ones. Where some of them are no longer kept, it returns what is true
        now."""
        missing = self.end - place
        if missing > len(self._events):
            return changes({}, self._told) + pull_changes(None, self._pull)
        return list(islice(self._events, len(self._events) - missing, None))


def changes(before: Mapping[str, ModelStatus], now: Mapping[str, ModelStatus]) -> list[Told]:
    """The events between two looks. A model that is leaving has its event when it has left."""
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
    """The events of a download between two looks."""
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
