"""The tokens that close an image, such as an end tag, in models that place an image on a canvas (the plane of its
embeddings). These tokens (marks) belong to the image, so they do not shift the positions of the text after it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from msgspec import structs

from twostroke.types.images import ImageSpan, ImageTile, key_of

LAST = b"the prompt ends with this image"


def with_ends(spans: Sequence[ImageSpan], token_ids: Sequence[int], marks: Sequence[int]) -> tuple[ImageSpan, ...]:
    """Returns the spans of a prompt. The last span of each image gets the position after the image's closing marks.
    spans: the spans in order, each with a canvas. marks: the ids of the tokens that may close an image.

    A mark that the model generates after a prompt does not belong to the image. In a later prompt, the same mark does
    belong to it. So an image at the end of a prompt has a key of its own, and shares no pages with images that have
    text after them.
    """
    made: list[ImageSpan] = []
    for place, span in enumerate(spans):
        after = spans[place + 1] if place + 1 < len(spans) else None
        begins = after is None or after.canvas is None or after.canvas.is_whole
        if span.canvas is None or not begins:
            made.append(span)
            continue
        ends, limit = span.end, len(token_ids) if after is None else after.first - 1
        while ends < limit and token_ids[ends] in marks:
            ends += 1
        tile = span.tile if ends < len(token_ids) else _at_the_end(span.tile)
        made.append(structs.replace(span, tile=tile, canvas=structs.replace(span.canvas, ends=ends)))
    return tuple(made)


def _at_the_end(tile: ImageTile) -> ImageTile:
    return structs.replace(tile, key=key_of(hashlib.sha256(LAST + str(tile.key).encode()).digest()))
