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
"""The operations in f32, bf16 and int8 that a core is assumed to do in one cycle, by instruction-set level: half of the
most that its units could do."""
GUESSED_MEETING_S, GUESSED_BYTES_PER_S = 50e-6, 1e9
"""The latency in seconds of an exchange between two processes on a machine that was not measured, and the bytes a
second that they exchange."""
DEVICE_CLOCK_HZ, MULTIPROCESSOR_BYTES_PER_S = 1e9, 5e9
"""The clock of a device, and the rate of its memory for each multiprocessor, where its driver tells neither."""
DEVICE_SHARE = 0.5
"""The share of the memory bandwidth that steps on a CUDA device are assumed to reach. On an H200 a step of one stream
reached 0.29 of it with int8 and 0.49 with bf16 (docs/gpu.md), and longer steps reach more."""
DEVICE_OPERATIONS = (64, 64, 256)
"""The operations in f32, bf16 and int8 that a CUDA multiprocessor is assumed to do in one cycle. These are low guesses:
an H100 and an H200 reached 150, 150 and 1,100 with prompts (docs/gpu.md). Devices of compute capability 8 have only a
half to a quarter of an H100's arithmetic units."""


def guessed_cpu(threads: int, level: str) -> HardwareSpec:
    """Returns cautious figures of a CPU: the real one is probably at least as fast. An unknown level counts as the
    slowest one."""
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


def guessed_device(
    name: str, multiprocessors: int, memory_bytes: int, clock_hz: float = 0.0, pins_bytes_per_s: float = 0.0
) -> HardwareSpec:
    """Returns cautious figures of a CUDA device: the real device is probably at least as fast. name: the name that the
    driver reports. clock_hz: the highest clock; 0 where it is unknown. pins_bytes_per_s: the peak bandwidth of the
    device's memory; 0 where it is unknown."""
    clock_hz = clock_hz or DEVICE_CLOCK_HZ
    pins_bytes_per_s = pins_bytes_per_s or multiprocessors * MULTIPROCESSOR_BYTES_PER_S
    f32, bf16, int8 = (multiprocessors * clock_hz * operations for operations in DEVICE_OPERATIONS)
    return HardwareSpec(
        "unmeasured",
        f"{name}, not measured",
        HardwareClass.GPU,
        memory_bytes,
        DEVICE_SHARE * pins_bytes_per_s,
        f32,
        bf16,
        int8,
        f"a guess: {multiprocessors} multiprocessors, {clock_hz / 1e9:.2f} GHz, {DEVICE_SHARE:.0%} of "
        f"{pins_bytes_per_s / 1e9:,.0f} GB/s; steps correct it as they are seen",
    )
