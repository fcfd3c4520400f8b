"""The whole examination: limits, kernels, host; one Calibration.

Knows: what is measured, in which order, and how much memory it takes.
Must not know: where the result is kept, how it is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twostroke.backends.cpu import CpuOps, best_level
from twostroke.backends.cpu.limits import LimitMeter
from twostroke.cost.calibration import Calibration
from twostroke.planner.doctor.measure_host import measure_host
from twostroke.planner.doctor.measure_ops import COLD_BYTES, FEW_ROWS, LAYER_OPS, ROUNDS, ROWS, WARM_BYTES, OpTimer
from twostroke.planner.doctor.stopwatch import LEAST_S, Stopwatch
from twostroke.planner.doctor.synthetic import random_memory
from twostroke.quant.formats import FORMATS
from twostroke.spec.formats import KVKind
from twostroke.types.errors import OutOfMemory

MEMORY_SHARE = 0.3
"""Of the available memory, at most."""

LEAST_RING_SHARE = 0.25
"""Of the ring that is wanted: with less there is nothing that a cache could not hold."""


@dataclass(frozen=True, slots=True)
class Effort:
    """ring_bytes: of weights that pass by; more than any cache that a few cores share. rows: of integer weights.

    few_rows: of float weights. least_s: of one timing.
    """

    ring_bytes: int = 1100 << 20
    rounds: int = ROUNDS
    rows: tuple[int, ...] = ROWS
    few_rows: tuple[int, ...] = FEW_ROWS
    least_s: float = LEAST_S


FULL = Effort()

Note = Callable[[int, int, str], None]
"""(done, of, what)"""


@dataclass(frozen=True, slots=True)
class Patient:
    """fingerprint: of processor, threads and version. title: the processor's name."""

    fingerprint: str
    title: str
    threads: int
    available_bytes: int


def examine(patient: Patient, clock: Callable[[], float], note: Note, effort: Effort = FULL) -> Calibration:
    """Measure everything; several seconds. Raises OutOfMemory, BackendError."""
    room = int(min(effort.ring_bytes, patient.available_bytes * MEMORY_SHARE))
    least = LEAST_RING_SHARE * effort.ring_bytes
    if room < least:
        needed, available = least / MEMORY_SHARE / 1e9, patient.available_bytes / 1e9
        raise OutOfMemory(
            f"Measuring takes {needed:.1f} GB; {available:.1f} GB are available.",
            why=f"At most {MEMORY_SHARE:.0%} of the available memory is taken.",
            fix="Close other programs, or give the container more memory.",
        )
    steps = iter(range(1, 100))
    total = 5 + len(FORMATS) + len(KVKind)

    def tell(what: str) -> None:
        note(next(steps), total, what)

    tell("memory to read")
    memory = random_memory(room)
    tell("limits: reading, float32 and int8 products")
    meter = LimitMeter(patient.threads, clock, memory)
    try:
        limits = meter.measure()
    finally:
        meter.close()
    ops = CpuOps(best_level(), patient.threads)
    try:
        timer = OpTimer(ops, memory, Stopwatch(clock, effort.least_s), effort.rounds)
        tell("norms, rope and KV writes")
        layer_s = timer.layer_s()
        start_s = layer_s / LAYER_OPS
        other = timer.other(start_s)
        linear = {}
        for name, weight_format in FORMATS.items():
            tell(f"products with {name} weights")
            rows = effort.rows if weight_format.group else effort.few_rows
            linear[weight_format.kind] = timer.linear(weight_format, start_s, rows)
        attention = {}
        for kind in KVKind:
            tell(f"attention over {kind.name.lower()} K and V")
            attention[kind] = timer.attention(kind)
    finally:
        ops.close()
    tell("schedule, sample and commit")
    host = measure_host(patient.threads, clock)
    note(total, total, "done")
    return Calibration(
        fingerprint=patient.fingerprint,
        title=patient.title,
        threads=patient.threads,
        memory_bytes=patient.available_bytes,
        others_share=0.0,
        read_bytes_per_s=limits.read_bytes_per_s,
        f32_flops_per_s=limits.f32_flops_per_s,
        int8_ops_per_s=limits.int8_ops_per_s,
        warm_bytes=WARM_BYTES,
        cold_bytes=COLD_BYTES,
        linear=linear,
        attention=attention,
        other=other,
        layer_s=layer_s,
        host=host,
    )
