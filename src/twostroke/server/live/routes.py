"""The routes of the live view of the engine: facts about the engine, the stream of frames (see frame.py), and a
recording as a Chrome trace.

A viewer that reads slowly gets fewer frames, and each frame counts the steps that the viewer missed. A frame is made
only when the last one has been sent, so there is no queue. These routes do not touch the streams of answers.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from twostroke.cost.history.account import record_of
from twostroke.cost.history.perfetto import trace
from twostroke.cost.history.record import RequestRecord, StepRecord
from twostroke.server.answering.stream import EventWriter, until_disconnect
from twostroke.server.api.sse import Event, line_json
from twostroke.server.attached.pdf import has_pypdf
from twostroke.server.errors import OVERLOADED, HttpProblem, SlowReader
from twostroke.server.live.frame import Frames
from twostroke.server.parts import ServerParts
from twostroke.server.serving import Serving
from twostroke.types.errors import InvalidRequest

FRAME_S = 0.5
MAX_VIEWERS = 8
MAX_TRACE_STEPS = 16_384
MAX_FRAMES = 1_000_000


@dataclass(slots=True)
class _Viewers:
    count: int = 0


def live_routes(parts: ServerParts) -> list[Route]:
    """Returns the routes GET /v1/engine/about, /v1/engine/steps and /v1/engine/trace."""
    viewers = _Viewers()

    async def about(_request: Request) -> Response:
        page = {"chats": parts.serving.chats is not None, "pdf": has_pypdf()}
        shown = {**parts.serving.view.about, **page, "frame_s": FRAME_S}
        return _json({**shown, "now_s": parts.serving.view.clock()})

    async def steps(request: Request) -> Response:
        frames = _frames(request)
        if viewers.count >= MAX_VIEWERS:
            raise HttpProblem(OVERLOADED)
        return FrameStream(parts, viewers, frames)

    async def recording(request: Request) -> Response:
        begin_s, end_s = (_seconds(request, name) for name in ("begin_s", "end_s"))
        return _json(await asyncio.to_thread(_trace, parts.serving, begin_s, end_s))

    return [
        Route("/v1/engine/about", about, methods=["GET"]),
        Route("/v1/engine/steps", steps, methods=["GET"]),
        Route("/v1/engine/trace", recording, methods=["GET"]),
    ]


class FrameStream(Response):
    """Sends frames of the live view as server-sent events, until the viewer leaves or has all the frames that it asked
    for."""

    def __init__(self, parts: ServerParts, viewers: _Viewers, num_frames: float = math.inf) -> None:
        self._num_frames = num_frames
        self._parts = parts
        self._viewers = viewers
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._viewers.count += 1
        try:
            await until_disconnect(receive, self._frames(send))
        finally:
            self._viewers.count -= 1

    async def _frames(self, send: Send) -> None:
        parts = self._parts
        events = EventWriter(send, parts.admission.limits.stalled_s)
        frames = Frames(parts.serving.view)
        objectives = parts.serving.view.about.get("objectives", {})
        left = self._num_frames
        try:
            while parts.serving.engine.alive and not parts.admission.closing.began:
                latency = parts.telemetry.metrics.recent.figures(**objectives)
                frame = await asyncio.to_thread(frames.next, parts.serving.engine.gauges(), latency)
                await events.send([Event(None, frame)])
                left -= 1
                if left <= 0:
                    break
                await asyncio.sleep(FRAME_S)
            await events.finish(b"data: [DONE]\n\n")
        except SlowReader:
            return


def _trace(serving: Serving, begin_s: float, end_s: float) -> dict[str, Any]:
    ledger = serving.view.ledger
    steps = [step for step in ledger.history.records() if begin_s <= step.begin_s <= end_s][-MAX_TRACE_STEPS:]
    accounts = ledger.accounts.since(0, len(ledger.accounts))
    ended = [record_of(account) for account in accounts if begin_s <= account.finished_s <= end_s]
    return trace({serving.served_name: sorted(_all(steps, ended), key=_when)})


def _all(steps: Iterable[StepRecord], ended: Iterable[RequestRecord]) -> Iterable[StepRecord | RequestRecord]:
    yield from steps
    yield from ended


def _when(record: StepRecord | RequestRecord) -> float:
    return record.begin_s if isinstance(record, StepRecord) else record.finished_s


def _frames(request: Request) -> float:
    text = request.query_params.get("frames")
    if text is None:
        return math.inf
    if not re.fullmatch(r"[0-9]{1,7}", text) or not 1 <= int(text) <= MAX_FRAMES:
        raise InvalidRequest(f"frames must be a whole number from 1 to {MAX_FRAMES:,}.", param="frames")
    return int(text)


def _seconds(request: Request, name: str) -> float:
    text = request.query_params.get(name, "0" if name == "begin_s" else "inf")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise InvalidRequest(f"{name} is no number of seconds.", param=name, fix="Take now_s of /v1/engine/about.")
    return value


def _json(value: object) -> Response:
    return Response(line_json(value), media_type="application/json")
