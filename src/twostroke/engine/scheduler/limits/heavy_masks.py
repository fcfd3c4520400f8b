"""Which sequences go into a step where the grammars of some take long: others do not wait for all of their masks.

A mask is made between a step's logits and its tokens, so all sequences of a step wait for it. What a sequence of a
hard grammar gets is the same in any step; it is only later.
"""

from __future__ import annotations

from twostroke.engine.scheduler.sequence import Sequence

HEAVY_S = 0.5e-3
"""A mask that takes longer is heavy. Most take a tenth of that."""
BESIDE_S, ALONE_S = 5e-3, 50e-3
"""Heavy masks of one step take no longer together, next to other sequences and where there are none. One of them is
always made."""


def mask_s(sequence: Sequence) -> float:
    """About how long the next mask of the sequence takes; 0 where it has no grammar."""
    return 0.0 if sequence.request.mask is None else sequence.request.mask.mask_s


def without_late_masks(decoding: list[Sequence], others: bool) -> list[Sequence]:
    """The sequences whose turn it is; the heavy ones that were in no step for longest come first.

    others: whether prompts are to be computed, too.
    """
    heavy = [each for each in decoding if mask_s(each) > HEAVY_S]
    if len(heavy) < 2:
        return decoding
    left_s = BESIDE_S if others or len(heavy) < len(decoding) else ALONE_S
    late: set[str] = set()
    for place, each in enumerate(sorted(heavy, key=lambda sequence: sequence.last_step)):
        left_s -= mask_s(each)
        if place and left_s < 0:
            late.add(each.request.request_id)
    return [each for each in decoding if each.request.request_id not in late]
