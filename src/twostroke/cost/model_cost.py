"""Makes the StepCost of a model in its formats, for a machine of the catalogue or for this machine as measured.

    cost = step_cost(work_table(model, StoredFormats(lambda weight: INT8, KVKind.BF16)), calibration)
    cost.predict([Segment.decode(512)]).seconds
"""

from __future__ import annotations

from twostroke.cost.calibrated import CalibratedCost
from twostroke.cost.calibration import Calibration
from twostroke.cost.roofline import RooflineCost
from twostroke.cost.shape import SteadyCost
from twostroke.cost.step_work import WorkCounter
from twostroke.cost.work_table import WorkTable
from twostroke.types.spec.hardware import HardwareSpec


def step_cost(table: WorkTable, machine: HardwareSpec | Calibration) -> SteadyCost:
    """Returns the cost of steps of this model on this machine. Raises ConfigError for a format that was not measured
    there."""
    counter = WorkCounter(table)
    if isinstance(machine, Calibration):
        return CalibratedCost(counter, machine)
    return RooflineCost(counter, machine)
