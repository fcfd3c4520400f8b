"""The one way to a StepCost: a model in its formats, and a machine of the catalogue or this one as measured.

    cost = step_cost(spec, lambda role: INT8, KVKind.BF16, calibration)
    cost.predict([Segment(start=512, num_tokens=1, samples=True)]).seconds

Knows: both kinds of StepCost.
Must not know: where a calibration is kept, who asks.
"""

from __future__ import annotations

from twostroke.cost.calibrated import CalibratedCost
from twostroke.cost.calibration import Calibration
from twostroke.cost.roofline import RooflineCost
from twostroke.cost.shape import SteadyCost
from twostroke.cost.step_work import WorkCounter
from twostroke.spec.formats import KVKind
from twostroke.spec.hardware import HardwareSpec
from twostroke.spec.model import FormatChoice, ModelSpec


def step_cost(
    spec: ModelSpec, format_for: FormatChoice, kv_kind: KVKind, machine: HardwareSpec | Calibration
) -> SteadyCost:
    """Predicts steps of this model on that machine. Raises ConfigError for a format that was not measured there."""
    counter = WorkCounter(spec, format_for, kv_kind)
    if isinstance(machine, Calibration):
        return CalibratedCost(counter, format_for, kv_kind, machine)
    return RooflineCost(counter, format_for, machine)
