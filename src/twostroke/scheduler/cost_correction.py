"""How far the cost model is off on this machine today: measured over predicted, by kind of step.

Knows: seconds, kinds of steps.
Must not know: what a step holds, how it was predicted.
"""

from __future__ import annotations

import enum

from twostroke.scheduler.window import Window
from twostroke.types.objectives import ITL_SHARE

WINDOW_STEPS = 64
PRIOR = (1.0, 1.0, 1.0)
"""The model is believed until a few steps have shown otherwise."""
LEAST, MOST = 0.1, 10.0
USUAL, HIGH = 0.5, ITL_SHARE + 0.01
"""An ITL objective is met where 95% of the gaps keep it, so that 4% of the steps may pass."""


class StepKind(enum.Enum):
    """Kinds err differently: products of few rows read weights, those of many rows multiply."""

    DECODE = "decode"
    PREFILL = "prefill"
    MIXED = "mixed"


class CostCorrection:
    """Ratios of the last 64 steps of each kind, each bounded to [1/10, 10]. The same observations give the same ratios.

    `usual` is their median: up to half of them may be outliers. `high` is their 96th percentile, for promises: two of
    64 may be outliers. Where steps take as long as predicted, both are equal.
    """

    def __init__(self) -> None:
        self._ratios = {kind: Window(WINDOW_STEPS, PRIOR) for kind in StepKind}

    def observe(self, kind: StepKind, predicted_s: float, measured_s: float) -> None:
        """One finished step; a step that took no time says nothing."""
        if predicted_s > 0 and measured_s > 0:
            self._ratios[kind].add(min(MOST, max(LEAST, measured_s / predicted_s)))

    def usual(self, kind: StepKind) -> float:
        """What a step of this kind takes, in units of its prediction."""
        return self._ratio(kind, USUAL)

    def high(self, kind: StepKind) -> float:
        """What 96% of the steps of this kind do not pass, in units of their predictions."""
        return self._ratio(kind, HIGH)

    def _ratio(self, kind: StepKind, share: float) -> float:
        """Of the kind; where it was never seen, the worst of those that were."""
        windows = [self._ratios[kind]]
        if not windows[0].num_seen:
            windows = [window for window in self._ratios.values() if window.num_seen]
        return max((window.quantile(share) or 1.0 for window in windows), default=1.0)
