"""What a CPU that was not measured is taken to be, so that shares of a step can be given before `twostroke doctor` ran.

Knows: a number of threads, the level of the kernels.
Must not know: models, what this machine really does.
"""

from __future__ import annotations

from twostroke.spec.hardware import HardwareClass, HardwareSpec

CLOCK_HZ = 2e9
THREAD_BYTES_PER_S, MOST_BYTES_PER_S = 5e9, 100e9
OPERATIONS = {
    "generic": (4, 4, 8),
    "avx2": (16, 16, 32),
    "avx512": (32, 32, 128),
    "amx": (32, 512, 1024),
    "neon": (8, 8, 16),
    "dotprod": (8, 8, 32),
    "i8mm": (8, 8, 64),
}
"""f32, bf16 and int8 operations a cycle and core, by level: half of what the units could do."""


def guessed_cpu(threads: int, level: str) -> HardwareSpec:
    """A processor unlikely to be faster than the real one. An unknown level is taken for the least."""
    f32, bf16, int8 = (threads * CLOCK_HZ * operations for operations in OPERATIONS.get(level, OPERATIONS["generic"]))
    return HardwareSpec(
        "unmeasured",
        f"a CPU with {threads} threads, not measured",
        HardwareClass.CPU,
        0,
        min(MOST_BYTES_PER_S, threads * THREAD_BYTES_PER_S),
        f32,
        bf16,
        int8,
        f"a guess: {CLOCK_HZ / 1e9} GHz, {level} kernels, {THREAD_BYTES_PER_S / 1e9:.0f} GB/s a thread",
    )
