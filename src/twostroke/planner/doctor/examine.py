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
from twostroke.planner.doctor.measure_ops import COLD_BYTES, FEW_ROWS, ROWS, WARM_BYTES, OpTimer
from twostroke.planner.doctor.stopwatch import Stopwatch
from twostroke.planner.doctor.synthetic import random_memory
from twostroke.quant.formats import FORMATS
from twostroke.spec.formats import KVKind
from twostroke.types.errors import OutOfMemory

RING_BYTES = 1100 << 20
"""Of weights that pass by: more than any cache that a few cores share."""

MEMORY_SHARE = 0.3
"""Of the available memory, at most."""

LEAST_RING_BYTES = 300 << 20

Note = Callable[[int, int, str], None]
"""(done, of, what)"""


@dataclass(frozen=True, slots=True)
class Patient:
    """fingerprint: of processor, threads and version. title: the processor's name."""

    fingerprint: str
    title: str
    threads: int
    available_bytes: int


def examine(patient: Patient, clock: Callable[[], float], note: Note, ring_bytes: int = RING_BYTES) -> Calibration:
    """Measure everything; several seconds. Raises OutOfMemory, BackendError."""
    room = int(min(ring_bytes, patient.available_bytes * MEMORY_SHARE))
    if room < min(ring_bytes, LEAST_RING_BYTES):
        raise OutOfMemory(
            f"Measuring takes {LEAST_RING_BYTES / 1e9:.1f} GB; {patient.available_bytes / 1e9:.1f} GB are available.",
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
        timer = OpTimer(ops, memory, Stopwatch(clock))
        linear = {}
        for name, weight_format in FORMATS.items():
            tell(f"products with {name} weights")
            rows = ROWS if weight_format.group else FEW_ROWS
            linear[weight_format.kind] = timer.linear(weight_format, rows)
        attention = {}
        for kind in KVKind:
            tell(f"attention over {kind.name.lower()} K and V")
            attention[kind] = timer.attention(kind)
        tell("norms, rope and KV writes")
        other, layer_s = timer.other(), timer.layer_s()
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
