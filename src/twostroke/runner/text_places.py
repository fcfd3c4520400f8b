"""Places of a prompt's positions in time, height and width. The time after an image is later by the longer side of its
rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from twostroke.ops.operands import I32Array
from twostroke.types.images import ImageSpan


def places_of(spans: Sequence[ImageSpan], start: int, end: int) -> I32Array:
    """Returns the time, height and width of positions [start, end), as (3, end - start). spans: all images of the
    prompt, in order.

    A text position has the same number three times. Rows of an image share the time at which it begins; their lines and
    columns are counted from this time on.
    """
    positions = np.arange(start, end, dtype=np.int32)
    made = np.repeat(positions[None], 3, axis=0)
    shift = 0
    for span in spans:
        if span.first >= end:
            break
        columns, begin = span.tile.columns, span.first - shift
        inside = slice(max(span.first - start, 0), max(span.end - start, 0))
        rows = positions[inside] - span.first
        made[0, inside] = begin
        made[1, inside] = begin + rows // columns
        made[2, inside] = begin + rows % columns
        length = max(span.tile.lines, columns)
        shift += span.end - span.first - length
        made[:, max(span.end - start, 0) :] = positions[max(span.end - start, 0) :] - shift
    return made
