"""Assumed figures of a CPU or a CUDA device that was not measured, so that steps can be predicted before the first
step."""

from __future__ import annotations

from twostroke.types.spec.hardware import HardwareClass, HardwareSpec

CLOCK_HZ = 2e9
THREAD_BYTES_PER_S, MOST_BYTES_PER_S = 5e9, 100e9
OPERATIONS = {
    "generic": (4, 4, 8),
    "avx2": (16, 16, 32),
    "avxvnni": (16, 16, 64),
    "avx512": (32, 32, 128),
    "amx": (32, 512, 1024),
    "neon": (8, 8, 16),
    "dotprod": (8, 8, 32),
    "i8mm": (8, 8, 64),
}
"""f32, bf16 and int8 operations for each cycle and core, by level: half of what the units could do."""
GUESSED_MEETING_S, GUESSED_BYTES_PER_S = 50e-6, 1e9
"""The seconds of one meeting of two processes on a machine that was not measured, and the bytes a second that they
exchange."""
DEVICE_CLOCK_HZ, MULTIPROCESSOR_BYTES_PER_S = 1e9, 2.5e9
DEVICE_OPERATIONS = (16, 16, 64)
"""f32, bf16 and int8 operations for each cycle and multiprocessor: an eighth of what units without matrices could do at
compute capability 8.0."""


def guessed_cpu(threads: int, level: str) -> HardwareSpec:
    """Returns a processor that is probably not faster than the real one. An unknown level counts as the slowest one."""
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
        f"a guess: {CLOCK_HZ / 1e9} GHz, {level} kernels, {THREAD_BYTES_PER_S / 1e9:.0f} GB/s a thread; "
        "`twostroke doctor` measures this machine",
    )


def guessed_device(name: str, multiprocessors: int, memory_bytes: int) -> HardwareSpec:
    """Returns a CUDA device that is probably not faster than the real one. name: the name that the driver reports."""
    f32, bf16, int8 = (multiprocessors * DEVICE_CLOCK_HZ * operations for operations in DEVICE_OPERATIONS)
    return HardwareSpec(
        "unmeasured",
        f"{name}, not measured",
        HardwareClass.GPU,
        memory_bytes,
        multiprocessors * MULTIPROCESSOR_BYTES_PER_S,
        f32,
        bf16,
        int8,
        f"a guess: {multiprocessors} multiprocessors, {DEVICE_CLOCK_HZ / 1e9} GHz, "
        f"{MULTIPROCESSOR_BYTES_PER_S / 1e9} GB/s each; steps correct it as they are seen",
    )
