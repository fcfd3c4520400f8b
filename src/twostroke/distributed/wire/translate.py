"""Makes frames from requests and events, and requests from frames."""

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
    """Returns the form of a request within an Assignment for another process. memory: the samplers' state after its
    output.

    The request's images are sent separately, as `wire_spans` returns them.
    """
    come_s = min(0.0, request.arrival_s - now)
    return replace(request, mask=None, arrival_s=come_s, resumed_memory=memory, images=())


def wire_key(key: int) -> bytes:
    """Returns the key of a tile as frames carry it."""
    return (-1 - key).to_bytes(32, "big")


def wire_spans(images: Sequence[ImageSpan]) -> tuple[WireSpan, ...]:
    """Returns the images of a request as its Assignment carries them, without pixels."""
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
            span.canvas,
        )
        for span in images
    )


def key_spans(images: Sequence[ImageSpan]) -> tuple[KeySpan, ...]:
    """Returns which positions of a prompt hold which images. A replica needs this, next to the tokens, to find cached
    pages of the prompt."""
    return tuple(KeySpan(span.first, span.end - span.first, wire_key(span.tile.key)) for span in images)


def keyed(token_ids: Sequence[int], images: Sequence[KeySpan]) -> tuple[int, ...]:
    """Returns the prompt's token ids, with the key of a tile at each position that holds an image row. Positions after
    the end of the prompt are left out, because no page is found by them."""
    keys = list(token_ids)
    for span in images:
        own = range(span.first, min(len(keys), span.first + span.count))
        keys[own.start : own.stop] = [key_of(span.key)] * len(own)
    return tuple(keys)


class EncodeJob(Struct, frozen=True, eq=False):
    """The tiles that a TilesAhead frame asks this replica to encode, with their pixels."""

    number: int
    tiles: tuple[ImageTile, ...]


def seen_by(work: Assignment | TilesAhead, tiles: Mapping[bytes, ImageTile]) -> Assignment | EncodeJob:
    """Returns `work` with its pixels: an Assignment whose request contains its images, or the EncodeJob that a
    TilesAhead frame asks for. tiles: all tiles of `work`, by the keys that frames carry."""
    if isinstance(work, TilesAhead):
        return EncodeJob(work.number, tuple(tiles[key] for key in dict.fromkeys(span.key for span in work.images)))
    spans = (
        ImageSpan(span.first, tiles[span.key], span.skipped, span.count, span.together, span.canvas)
        for span in work.images
    )
    return structs.replace(work, request=replace(work.request, images=tuple(spans)), images=())


def requests_of(work: Assignment, names: Sequence[str], masks: Sequence[TokenMask | None], now: float) -> list[Request]:
    """Returns the requests that the replica queues for an assignment: the request under the first name, and one for
    each further beam of its search. Arrival times are in the replica's clock. masks: the token masks of the grammar,
    which have already taken in the output tokens `work.resumed`."""
    come_s, told = now + work.request.arrival_s, work.resumed
    first = replace(work.request, request_id=names[0], mask=masks[0], arrival_s=come_s, resumed_token_ids=told)
    silent = replace(first.params, prompt_logprobs=None)  # the first beam reports them
    others = zip(names[1:], masks[1:], strict=True)
    return [first, *(replace(first, request_id=name, mask=mask, params=silent) for name, mask in others)]


def wire_event(event: Event, numbers: Mapping[str, int]) -> WireToken | WirePrompt | WireEnd | None:
    """Returns an event under the number of its stream; None where the stream has ended for the API server."""
    number = numbers.get(event.request_id)
    if number is None:
        return None
    if isinstance(event, TokenEvent):
        return WireToken(number, event.token_id, event.logprob, event.memory)
    if isinstance(event, PromptEvent):
        return WirePrompt(number, event.logprobs, event.rows_sum)
    return WireEnd(number, event)
