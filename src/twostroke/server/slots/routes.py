"""POST /slots/{id}?action=save, restore or erase.

Saving and restoring run all tokens of the slot as the prompt of a request with an answer of one token. Saving so keeps
the pages of these tokens on the disk, and restoring brings them into the prefix cache. So both actions are bounded,
queued and counted as any request, and damaged pages are computed again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from twostroke.server.answering.generation import Generation
from twostroke.server.api.fields.disk_wish import DAY_S
from twostroke.server.api.sse import line_json
from twostroke.server.calls import Call
from twostroke.server.errors import HttpProblem, Problem
from twostroke.server.facts import facts_of
from twostroke.server.gate.body import reading
from twostroke.server.gate.decode import body_kind, decode
from twostroke.server.gate.security import client_of
from twostroke.server.parts import ServerParts
from twostroke.server.slots.kept import SavedSlot, Slots, SlotTokens
from twostroke.server.stored.keeping import guarded_write
from twostroke.server.visit import visit_of
from twostroke.types.output import Prompt
from twostroke.types.sampling.sampling_params import SamplingParams

PATH = "/slots/{name}"
SETTLE_S, LOOK_S = 30.0, 0.02
"""SETTLE_S: the longest wait until a saved slot's pages are on the disk. LOOK_S: the time between two checks. Both are
in seconds."""
UNKNOWN_ACTION = Problem(400, "action must be save, restore or erase.", param="action")
NO_DISK = Problem(
    501,
    "Slots are saved where pages are kept on a disk. Start this server, or the replicas of this front, with --kv-disk "
    "SIZE. Where it was given and keeps nothing, `twostroke config MODEL --kv-disk SIZE` says why.",
    "not_supported_error",
    code="no_kv_disk",
)


@body_kind
class SlotFile(msgspec.Struct):
    """The body of the actions save and restore."""

    filename: str


class SlotAsk(msgspec.Struct, frozen=True):
    """A request to save, restore or erase one slot of llama.cpp's API: the tokens that a client's last request with
    this slot number left."""

    request: Request
    slots: Slots
    client: str
    number: int


def slot_routes(parts: ServerParts) -> list[Route]:
    """Returns the route POST /slots/{id}, as in llama.cpp. It saves a slot (the tokens of the last request with this
    number) to a file, restores it or erases it."""
    actions = {"save": _save, "restore": _restore, "erase": _erase}

    async def endpoint(request: Request) -> Response:
        if parts.serving.slots is None:
            raise HttpProblem(NO_DISK)
        act: Callable[[SlotAsk, ServerParts], Awaitable[dict[str, Any]]] | None
        act = actions.get(request.query_params.get("action", ""))
        if act is None:
            raise HttpProblem(UNKNOWN_ACTION)
        text = request.path_params["name"]
        if not (text.isascii() and text.isdigit() and len(text) < 5):
            raise HttpProblem(Problem(404, f"There is no slot {text[:20]!r}.", param="id_slot", code="not_found"))
        ask = SlotAsk(request, parts.serving.slots, client_of(request.scope), int(text))
        return Response(line_json({"id_slot": ask.number, **await act(ask, parts)}), media_type="application/json")

    return [Route(PATH, endpoint, methods=["POST"])]


async def _save(ask: SlotAsk, parts: ServerParts) -> dict[str, Any]:
    name = await _name(ask, parts)
    held = ask.slots.held(ask.client, ask.number)
    if held is None:
        text = f"Slot {ask.number} holds nothing: no request of this key has ended there."
        raise HttpProblem(Problem(400, text, param="id_slot", code="slot_is_empty"))
    begun_s, before = time.perf_counter(), ask.slots.disk.counts.written_bytes
    saved = SavedSlot(parts.serving.served_name, tuple(held.tokens), held.salt, held.adapter)
    await guarded_write(lambda: ask.slots.save(ask.client, name, saved), "slot")
    await _run(ask, parts, held, DAY_S)
    await _settled(ask.slots)
    written = max(0, ask.slots.disk.counts.written_bytes - before)  # a restarted replica counts from zero again
    return {"filename": name, "n_saved": len(held.tokens), "n_written": written, **_timing("save_ms", begun_s)}


async def _restore(ask: SlotAsk, parts: ServerParts) -> dict[str, Any]:
    name = await _name(ask, parts)
    saved = await asyncio.to_thread(ask.slots.saved, ask.client, name)
    if saved is None:
        text = f"Nothing was saved under the name {name!r}, or its file is damaged."
        raise HttpProblem(Problem(404, text, param="filename", code="not_found"))
    if saved.model != parts.serving.served_name:
        text = f"{name!r} was saved by the model {saved.model!r}, and this one is {parts.serving.served_name!r}."
        raise HttpProblem(Problem(400, text, param="filename", code="other_model"))
    begun_s, before = time.perf_counter(), ask.slots.disk.counts.read_bytes
    tokens = SlotTokens(saved.tokens, saved.salt, saved.adapter)
    await _run(ask, parts, tokens, 0.0)
    ask.slots.hold(ask.client, ask.number, tokens)
    read = max(0, ask.slots.disk.counts.read_bytes - before)
    return {"filename": name, "n_restored": len(saved.tokens), "n_read": read, **_timing("restore_ms", begun_s)}


async def _erase(ask: SlotAsk, _parts: ServerParts) -> dict[str, Any]:
    return {"n_erased": ask.slots.erase(ask.client, ask.number)}


async def _name(ask: SlotAsk, parts: ServerParts) -> str:
    """Returns the file's name that the body gives. Raises HttpProblem (400)."""
    async with reading(ask.request, parts.admission) as body:
        name = decode(body, SlotFile).filename
    if not ask.slots.fits(ask.client, name):
        text = "filename must be 1 to 128 letters, digits, '.', '-' and '_', and begin with a letter or digit."
        raise HttpProblem(Problem(400, text, param="filename"))
    return name


async def _run(ask: SlotAsk, parts: ServerParts, held: SlotTokens, disk_s: float) -> None:
    """Bring the pages of these tokens into the prefix cache, by running them as a request."""
    tokens = tuple(held.tokens)[: parts.serving.context_tokens - 1]
    params = SamplingParams(temperature=0.0, max_tokens=1)
    prompt = Prompt(tokens, params, cache_salt=held.salt, adapter=held.adapter, disk_s=disk_s)
    name = f"slot-{parts.serving.new_id()}"
    call = Call(name, int(parts.serving.wall_clock()), (prompt,), slot=None)
    scope, admission = ask.request.scope, parts.admission
    visit = visit_of(scope, admission.limits.deadline_s, admission.door.clock())
    async with Generation(call, parts, facts_of(scope), visit) as generation:
        while await generation.next() is not None:
            pass


async def _settled(slots: Slots) -> None:
    """Waits until no page waits to be written to the disk, at most SETTLE_S seconds."""
    until_s = time.monotonic() + SETTLE_S
    while not slots.disk.settled and time.monotonic() < until_s:
        await asyncio.sleep(LOOK_S)


def _timing(name: str, begun_s: float) -> dict[str, Any]:
    return {"timings": {name: round(1e3 * (time.perf_counter() - begun_s), 3)}}
