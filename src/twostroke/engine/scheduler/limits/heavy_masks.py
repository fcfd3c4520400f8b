"""Limits how many slow grammar masks one step makes, so that other sequences do not wait for many of them.

A mask is made between a step's logits and its tokens, so all sequences of a step wait for it. A sequence with a slow
grammar gets the same tokens in any step, only later.
"""

from __future__ import annotations

from twostroke.engine.scheduler.sequence import Sequence

HEAVY_S = 0.5e-3
"""A mask that takes more seconds than this is heavy. Most take a tenth of it."""
BESIDE_S, ALONE_S = 5e-3, 50e-3
"""The most seconds that all heavy (slow) grammar masks of one step may take together: BESIDE_S when sequences without a
heavy mask are in the step, ALONE_S when none is. One heavy mask is made in any case."""


def mask_s(sequence: Sequence) -> float:
    """Returns about how many seconds the next mask of the sequence takes; 0 when it has no grammar."""
    return 0.0 if sequence.request.mask is None else sequence.request.mask.mask_s


def without_late_masks(decoding: list[Sequence], others: bool) -> list[Sequence]:
    """Returns the decoding sequences that go into this step. Sequences with a heavy (slow) grammar mask are left out
    when the masks would take too long together. The sequences that were left out longest come first.

    others: True when the step is to compute prompts too; less time is allowed then.
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
