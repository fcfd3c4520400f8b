"""Makes frames of requests and events, and makes requests of frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from msgspec import Struct, structs

from twostroke.distributed.wire.frames import (
    Assignment,
    KeySpan,
    TilesAhead,
    WireEnd,
    WirePrompt,
    WireSpan,
    WireToken,
)
from twostroke.types.event import Event, PromptEvent, TokenEvent
from twostroke.types.grammar import TokenMask
from twostroke.types.images import ImageSpan, ImageTile, key_of
from twostroke.types.request import Request


def wire_request(request: Request, now: float, memory: tuple[float, ...] = ()) -> Request:
    """The form of a request within an Assignment for another process. memory: the samplers' state after its output.

    Its images go apart from it, by `wire_spans`.
    """
    come_s = min(0.0, request.arrival_s - now)
    return replace(request, mask=None, arrival_s=come_s, resumed_memory=memory, images=())


def wire_key(key: int) -> bytes:
    """The key of a tile as frames carry it."""
    return (-1 - key).to_bytes(32, "big")


def wire_spans(images: Sequence[ImageSpan]) -> tuple[WireSpan, ...]:
    """The images of a request as its Assignment carries them: without pixels."""
    return tuple(
        WireSpan(
            span.first,
            wire_key(span.tile.key),
            span.tile.lines,
            span.tile.columns,
            span.tile.width,
            span.tile.height,
            span.skipped,
            span.count,
            span.together,
            span.tile.sheet,
        )
        for span in images
    )


def key_spans(images: Sequence[ImageSpan]) -> tuple[KeySpan, ...]:
    """Where the prompt of a question for pages shows images."""
    return tuple(KeySpan(span.first, span.end - span.first, wire_key(span.tile.key)) for span in images)


def keyed(token_ids: Sequence[int], images: Sequence[KeySpan]) -> tuple[int, ...]:
    """The token ids of such a prompt, with the key of its tile at each position that holds an image row. Positions that
    it does not have are left out: no page is found by them."""
    keys = list(token_ids)
    for span in images:
        own = range(span.first, min(len(keys), span.first + span.count))
        keys[own.start : own.stop] = [key_of(span.key)] * len(own)
    return tuple(keys)


class EncodeJob(Struct, frozen=True, eq=False):
    """A TilesAhead whose pixels are here."""

    number: int
    tiles: tuple[ImageTile, ...]


def seen_by(work: Assignment | TilesAhead, tiles: Mapping[bytes, ImageTile]) -> Assignment | EncodeJob:
    """The assignment, whose request has its images; or the job. tiles: all of them, by the keys of frames."""
    if isinstance(work, TilesAhead):
        return EncodeJob(work.number, tuple(tiles[key] for key in dict.fromkeys(span.key for span in work.images)))
    spans = (
        ImageSpan(span.first, tiles[span.key], span.skipped, span.count, span.together) for span in work.images
    )
    return structs.replace(work, request=replace(work.request, images=tuple(spans)), images=())


def requests_of(work: Assignment, names: Sequence[str], masks: Sequence[TokenMask | None], now: float) -> list[Request]:
    """The replica's requests for an assignment, with the replica's own time: the request under the first name, and the
    other beams of its search. masks: they have taken in `work.resumed`."""
    come_s, told = now + work.request.arrival_s, work.resumed
    first = replace(work.request, request_id=names[0], mask=masks[0], arrival_s=come_s, resumed_token_ids=told)
    silent = replace(first.params, prompt_logprobs=None)  # the first beam reports them
    others = zip(names[1:], masks[1:], strict=True)
    return [first, *(replace(first, request_id=name, mask=mask, params=silent) for name, mask in others)]


def wire_event(event: Event, numbers: Mapping[str, int]) -> WireToken | WirePrompt | WireEnd | None:
    """An event under the number of its stream; None where the front does not ask for it any more."""
    number = numbers.get(event.request_id)
    if number is None:
        return None
    if isinstance(event, TokenEvent):
        return WireToken(number, event.token_id, event.logprob, event.memory)
    if isinstance(event, PromptEvent):
        return WirePrompt(number, event.logprobs, event.rows_sum)
    return WireEnd(number, event)
