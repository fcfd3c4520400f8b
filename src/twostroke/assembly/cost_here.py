"""Predicts what a step of a model costs on this machine or on its CUDA device, from the stored measurement or from a
careful guess.

This module measures nothing, so that a server starts at once.
"""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path

from twostroke.assembly.images.encoder_format import EncoderFormat
from twostroke.assembly.settings.env import processor_name
from twostroke.backends.cpu.calibration_file import fingerprint, read_calibration
from twostroke.cost.calibration import Calibration
from twostroke.cost.encode_cost import EncodeCost
from twostroke.cost.model_cost import step_cost
from twostroke.cost.shape import Segment, StepCost
from twostroke.cost.what_if import WhatIf
from twostroke.models.common.encoders import SightEncoder, encode_cost
from twostroke.models.common.work import work_of
from twostroke.ops.program.model import Model
from twostroke.ops.program.op import StoredFormats
from twostroke.ops.program.work_table import work_table
from twostroke.ops.quant.formats import FORMATS
from twostroke.types.errors import ConfigError
from twostroke.types.objectives import LatencyObjectives
from twostroke.types.spec.formats import KVKind
from twostroke.types.spec.hardware import HardwareSpec
from twostroke.types.spec.hardware_guess import guessed_cpu


def costs_here(model: Model, weights: str, kv_kind: KVKind, cache_folder: Path, level: str, threads: int) -> WhatIf:
    """Returns the cost model of this machine. Where the machine was never measured, the model is a guess, whose times
    are more often too long than too short. The engine corrects it with the steps that it measures."""
    kept = read_calibration(cache_folder, fingerprint(processor_name(), level, threads))
    if kept is not None:
        measured = costs_on(kept, model, weights, kv_kind)
        with contextlib.suppress(ConfigError):  # this pair of formats was not measured
            _ = measured.now
            return measured
    return costs_on(guessed_cpu(threads, level), model, weights, kv_kind)


def encoder_cost(encoder: SightEncoder, form: EncoderFormat, machine: Calibration | HardwareSpec) -> EncodeCost:
    """Returns the cost of encodes in these formats, on a machine that was measured or guessed. Raises ConfigError where
    the machine was not measured with them."""
    formats = StoredFormats(form.choice, form.kv)
    cost_of = partial(_part_cost, formats=formats, machine=machine)
    return encode_cost(encoder, form.model(encoder.model), cost_of)


def _part_cost(part: Model, formats: StoredFormats, machine: Calibration | HardwareSpec) -> StepCost:
    return step_cost(work_table(part, formats), machine)


def encoder_cost_here(
    encoder: SightEncoder, form: EncoderFormat, cache_folder: Path, level: str, threads: int
) -> EncodeCost:
    """Returns the cost of encodes on this machine. A guessed cost is more often too high than too low, as in
    `costs_here`."""
    kept = read_calibration(cache_folder, fingerprint(processor_name(), level, threads))
    if kept is not None:
        with contextlib.suppress(ConfigError):  # these formats were not measured
            return encoder_cost(encoder, form, kept)
    return encoder_cost(encoder, form, guessed_cpu(threads, level))


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
                why="The cost model computes this from this machine's measured rates.",
                fix=f"Ask for more than {1e3 * least_s:.1f}ms, or use narrower --weights.",
            )
