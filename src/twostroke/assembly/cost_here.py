"""Predicts what a step of a model costs on this machine or on its CUDA device, from the stored measurement or from a
careful guess.

This module measures nothing, so that a server starts at once.
"""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path

from twostroke.assembly.settings.env import processor_name
from twostroke.backends.cpu.calibration_file import fingerprint, read_calibration
from twostroke.cost.calibration import Calibration
from twostroke.cost.shape import Segment
from twostroke.cost.what_if import WhatIf
from twostroke.models.common.work import work_of
from twostroke.ops.program.model import Model
from twostroke.ops.quant.formats import FORMATS
from twostroke.types.errors import ConfigError
from twostroke.types.objectives import LatencyObjectives
from twostroke.types.spec.formats import KVKind
from twostroke.types.spec.hardware import HardwareSpec
from twostroke.types.spec.hardware_guess import guessed_cpu


def costs_here(model: Model, weights: str, kv_kind: KVKind, cache_folder: Path, level: str, threads: int) -> WhatIf:
    """Returns the cost model of this machine. A guessed cost model errs on the slow side. Deciders correct it as steps
    are measured."""
    kept = read_calibration(cache_folder, fingerprint(processor_name(), level, threads))
    if kept is not None:
        measured = costs_on(kept, model, weights, kv_kind)
        with contextlib.suppress(ConfigError):  # this pair of formats was not measured
            _ = measured.now
            return measured
    return costs_on(guessed_cpu(threads, level), model, weights, kv_kind)


def costs_on(machine: Calibration | HardwareSpec, model: Model, weights: str, kv_kind: KVKind) -> WhatIf:
    """Returns the cost model of a machine that was measured or guessed."""
    return WhatIf(partial(work_of, model), FORMATS, weights, kv_kind, machine)


def check_objectives(costs: WhatIf, objectives: LatencyObjectives) -> None:
    """Raises ConfigError for an objective that even one short request alone would miss. It checks only a measured
    machine."""
    if not costs.measured:
        return
    least_s = costs.now.predict([Segment.decode(0)]).seconds
    for name, promised_s in (("ttft", objectives.ttft_s), ("itl", objectives.itl_s)):
        if promised_s is not None and promised_s < least_s:
            raise ConfigError(
                f"--{name} {1e3 * promised_s:g}ms cannot be met: one token alone takes {1e3 * least_s:.1f} ms here.",
                why="So says the cost model with this machine's measured rates.",
                fix=f"Ask for more than {1e3 * least_s:.1f}ms, or use narrower --weights.",
            )
