"""GET /models/sse: the events of all models from now on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from twostroke.server.api.sse import Event, raw_event
from twostroke.server.several.models import Models

LOOK_S, HEARTBEAT_S = 0.1, 15.0


async def model_events(models: Models) -> AsyncIterator[bytes]:
    """Yields events until the server ends. Events do not wait for a slow reader: when events that it has not read are
    no longer kept, it gets the present state of all models instead."""
    models.note()
    place, quiet_s = models.news.end, 0.0
    yield b": models\n\n"
    while models.alive and not models.shared.admission.closing.began:
        await asyncio.sleep(LOOK_S)
        made, place = models.news.since(place), models.news.end
        quiet_s = 0.0 if made else quiet_s + LOOK_S
        if made:
            yield b"".join(raw_event(Event(None, each)) for each in made)
        elif quiet_s >= HEARTBEAT_S:
            quiet_s = 0.0
            yield b": still here\n\n"
