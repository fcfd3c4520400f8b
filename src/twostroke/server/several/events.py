"""GET /models/sse: the changes of each model's state, as events in the form of llama.cpp's router."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from twostroke.distributed.fleet.loading import ModelState
from twostroke.server.api.sse import Event, raw_event
from twostroke.server.several.models import Models
from twostroke.server.several.pulls import Pull

LOOK_S, HEARTBEAT_S = 0.1, 15.0
STAGE = "weights"
"""The one stage of a load that reports a share."""


class ModelStatus(Struct, frozen=True):
    """The state of one model. share: the share of the model that is loaded, from 0 to 1. why: what is wrong with it."""

    state: ModelState
    share: float = 0.0
    why: str = ""


def changes(before: Mapping[str, ModelStatus], now: Mapping[str, ModelStatus]) -> list[dict[str, Any]]:
    """Returns the events between two looks. A model that is leaving has its event when it has left."""
    found: list[dict[str, Any]] = []
    for name, status in now.items():
        old = before.get(name)
        if status == old or status.state is ModelState.DRAINING:
            continue
        if status.state is ModelState.LOADING:
            if old is None or old.state is not ModelState.LOADING:
                found.append({"model": name, "event": "model_status", "data": {"status": status.state}})
            if status.share:
                progress = {"stages": [STAGE], "current": STAGE, "value": round(status.share, 3)}
                found.append(_changed(name, {"status": status.state, "progress": progress}))
        elif old is None or old.state is not status.state:
            found.append(_changed(name, {"status": status.state, **({"error": status.why} if status.why else {})}))
    return found


def pull_changes(before: Pull | None, now: Pull | None) -> list[dict[str, Any]]:
    """Returns the events of a download between two looks."""
    if now is None or now == before:
        return []
    if now.state == "running":
        progress = {"stage": now.stage, "done": now.done, "total": now.total}
        return [{"model": now.name, "event": "download_progress", "data": {"progress": progress}}]
    if now.state == "finished":
        return [{"model": now.name, "event": "download_finished", "data": {}}]
    return [{"model": now.name, "event": "download_failed", "data": {"error": now.why or now.state}}]


def _changed(name: str, data: dict[str, Any]) -> dict[str, Any]:
    return {"model": name, "event": "status_change", "data": data}


async def model_events(models: Models) -> AsyncIterator[bytes]:
    """Yields events from now on, until the server ends. Events do not wait for a slow reader: it gets the state at the
    time when it reads."""
    told, pulled, quiet_s = statuses(models), _pull_of(models), 0.0
    yield b": models\n\n"
    while models.alive and not models.shared.admission.closing.began:
        await asyncio.sleep(LOOK_S)
        now, pull = statuses(models), _pull_of(models)
        made = changes(told, now) + pull_changes(pulled, pull)
        pulled = pull
        told = {name: told[name] if each.state is ModelState.DRAINING else each for name, each in now.items()}
        quiet_s = 0.0 if made else quiet_s + LOOK_S
        if made:
            yield b"".join(raw_event(Event(None, each)) for each in made)
        elif quiet_s >= HEARTBEAT_S:
            quiet_s = 0.0
            yield b": still here\n\n"


def _pull_of(models: Models) -> Pull | None:
    """Returns the last download as it is now."""
    last = None if models.pulls is None else models.pulls.last
    return None if last is None else replace(last)


def statuses(models: Models) -> dict[str, ModelStatus]:
    """Returns the states of all models as they are now."""
    found = {}
    for group in models.groups.values():
        state, why = models.state(group), models.why(group)
        if group.problem:
            state = ModelState.FAILED
        share = group.loaded_share if state is ModelState.LOADING else 0.0
        found[group.name] = ModelStatus(state, share, why if state is ModelState.FAILED else "")
    return found
