"""How much of a step's time its prefill took.

Knows: segments, a StepCost.
Must not know: requests, clocks.
"""

from __future__ import annotations

from collections.abc import Sequence

from twostroke.cost.shape import Segment, StepCost
from twostroke.cost.step_history import device_seconds


def prefill_share(segments: Sequence[Segment], cost: StepCost | None) -> float:
    """0..1 of model and sampling: what the step took more than its single rows alone would have, as predicted.

    Without a cost model it goes by rows.
    """
    single = [segment for segment in segments if segment.num_tokens == 1]
    if len(single) == len(segments):
        return 0.0
    if not single:
        return 1.0
    if cost is None:
        rows = sum(segment.num_tokens for segment in segments)
        return 1 - len(single) / rows
    whole_s = device_seconds(cost.predict(segments))
    return 1 - min(1.0, device_seconds(cost.predict(single)) / whole_s) if whole_s else 1.0
