"""What a step of a model costs on this machine: by the kept measurement, or by a careful guess.

Nothing is measured here: a server starts at once.

Knows: where a measurement is kept, rough rates of processors.
Must not know: how a machine is measured, who asks.
"""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.backends.cpu.calibration_file import fingerprint, read_calibration
from twostroke.cost.model_cost import step_cost
from twostroke.cost.shape import Segment, StepCost
from twostroke.env import Machine, processor_name
from twostroke.spec.formats import KVKind
from twostroke.spec.hardware import HardwareClass, HardwareSpec
from twostroke.spec.model import FormatChoice, ModelSpec
from twostroke.types.errors import ConfigError
from twostroke.types.objectives import LatencyObjectives

GUESSED_HZ = 2e9
CORE_READ_BYTES_PER_S, MOST_READ_BYTES_PER_S = 5e9, 100e9
OPERATIONS_A_CYCLE = {
    "generic": (4, 4, 8),
    "avx2": (16, 16, 32),
    "avx512": (32, 32, 128),
    "amx": (32, 512, 1024),
}
"""f32, bf16 and int8 operations a cycle and core: half of what the units could do."""


@dataclass(frozen=True, slots=True)
class CostHere:
    """measured: by the doctor; else guessed from the cores. reason: for `twostroke config`."""

    cost: StepCost
    measured: bool
    reason: str


def cost_here(
    spec: ModelSpec, format_for: FormatChoice, kv_kind: KVKind, machine: Machine, level: str, threads: int
) -> CostHere:
    """The cost model of this machine. A guess errs to the slow side, and is corrected as steps are measured."""
    kept = read_calibration(machine.cache_folder, fingerprint(processor_name(), level, threads))
    why = "nothing measured is kept"
    if kept is not None:
        try:
            return CostHere(step_cost(spec, format_for, kv_kind, kept), True, "as `twostroke doctor` measured it")
        except ConfigError as error:
            why = error.what.rstrip(".")
    cost = step_cost(spec, format_for, kv_kind, rough_hardware(machine, level, threads))
    return CostHere(cost, False, f"{why}: guessed from {threads} threads, corrected online; run `twostroke doctor`")


def rough_hardware(machine: Machine, level: str, threads: int) -> HardwareSpec:
    """A processor that is unlikely to be faster than the real one."""
    f32, bf16, int8 = (threads * GUESSED_HZ * rate for rate in OPERATIONS_A_CYCLE[level])
    read = min(MOST_READ_BYTES_PER_S, threads * CORE_READ_BYTES_PER_S)
    title = f"{threads} threads of an unmeasured processor"
    return HardwareSpec(
        "here", title, HardwareClass.CPU, machine.available_bytes, read, f32, bf16, int8, "a guess that errs to slow"
    )


def check_objectives(here: CostHere, objectives: LatencyObjectives) -> None:
    """Raises ConfigError for a promise that one short request alone would break, where the machine was measured."""
    if not here.measured:
        return
    least_s = here.cost.predict([Segment(0, 1, True)]).seconds
    for name, promised_s in (("ttft", objectives.ttft_s), ("itl", objectives.itl_s)):
        if promised_s is not None and promised_s < least_s:
            raise ConfigError(
                f"--{name} {1e3 * promised_s:g}ms cannot be met: one token alone takes {1e3 * least_s:.1f} ms here.",
                why="So says the cost model with this machine's measured rates.",
                fix=f"Ask for more than {1e3 * least_s:.1f}ms, or use narrower --weights.",
            )
