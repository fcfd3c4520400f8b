"""Public hardware, one line for each machine with the vendor's document. Rates are dense, without sparsity.

Desktops, laptops and Apple's chips except the largest stand in hardware_consumer.py. Vendors do not publish rates of
CPUs. They are computed as cores x base clock x operations a cycle, at the base clock because nothing more is promised
with all cores busy. Prices are not listed: they change by the week (--price-per-hour).
"""

from __future__ import annotations

from dataclasses import replace

from twostroke.types.spec.hardware import HardwareClass, HardwareSpec
from twostroke.types.spec.hardware_consumer import APPLE_FAMILIES, PROCESSORS

GB, TERA = 10**9, 1e12

AVX512_VNNI = (64, 128, 256)
"""f32, bf16 and int8 operations for each cycle and core: two 512-bit units, where a multiply-add is two operations."""
AVX512_VNNI_HALF = (32, 64, 128)
"""f32, bf16 and int8 operations for each cycle and core, through 256-bit units."""
AMX = (64, 1024, 2048)
"""f32, bf16 and int8 operations for each cycle and core: f32 in AVX-512; bf16 and int8 in matrix registers."""


def _gpu(
    name: str, title: str, gigabytes: int, gb_per_s: float, tera: tuple[float, float, float], source: str
) -> HardwareSpec:
    """Returns the entry of a GPU. tera: the rates of f32, bf16 and int8 in units of 10^12 operations a second."""
    f32, bf16, int8 = (rate * TERA for rate in tera)
    return HardwareSpec(name, title, HardwareClass.GPU, gigabytes * GB, gb_per_s * GB, f32, bf16, int8, source)


def _apple(name: str, title: str, gigabytes: int, gb_per_s: float, tera: float, source: str, note: str) -> HardwareSpec:
    """Returns the entry of an Apple chip. Its shaders compute bf16 and int8 at the rate of f32."""
    rate = tera * TERA
    memory, read = gigabytes * GB, gb_per_s * GB
    return HardwareSpec(name, title, HardwareClass.APPLE, memory, read, rate, rate, rate, source, note)


def _cpu(
    name: str, title: str, cores: int, base_ghz: float, gb_per_s: float, cycle: tuple[int, int, int], source: str
) -> HardwareSpec:
    """Returns the entry of a server CPU. Its memory is what a socket usually gets, 64 GB in each channel."""
    f32, bf16, int8 = (cores * base_ghz * 1e9 * operations for operations in cycle)
    channels = 12 if gb_per_s > 400 else 8
    note = (
        f"rates: {cores} cores x {base_ghz} GHz base x {cycle} f32, bf16, int8 operations a cycle; {channels} x 64 GB"
    )
    read = gb_per_s * GB
    return HardwareSpec(name, title, HardwareClass.CPU, channels * 64 * GB, read, f32, bf16, int8, source, note)


CATALOGUE: tuple[HardwareSpec, ...] = (
    _gpu("rtx3090", "GeForce RTX 3090", 24, 936, (35.6, 71, 284), "NVIDIA Ampere GA102 GPU Architecture whitepaper"),
    _gpu("rtx4090", "GeForce RTX 4090", 24, 1008, (82.6, 165.2, 660.6), "NVIDIA Ada GPU Architecture whitepaper"),
    _gpu(
        *("rtx5090", "GeForce RTX 5090", 32, 1792, (104.8, 209.5, 838)),
        "NVIDIA RTX Blackwell GPU Architecture whitepaper",
    ),
    _gpu("l4", "NVIDIA L4", 24, 300, (30.3, 121, 242), "NVIDIA L4 Tensor Core GPU datasheet (sparse rates halved)"),
    _gpu("l40s", "NVIDIA L40S", 48, 864, (91.6, 362, 733), "NVIDIA L40S datasheet"),
    _gpu("a100-80gb", "NVIDIA A100 80GB SXM", 80, 2039, (19.5, 312, 624), "NVIDIA A100 Tensor Core GPU datasheet"),
    _gpu("h100-sxm", "NVIDIA H100 SXM", 80, 3350, (67, 989, 1979), "NVIDIA H100 datasheet (sparse rates halved)"),
    _gpu("h200", "NVIDIA H200 SXM", 141, 4800, (67, 989, 1979), "NVIDIA H200 datasheet (sparse rates halved)"),
    _gpu(
        *("b200", "NVIDIA B200 (HGX)", 180, 8000, (75, 2250, 4500)),
        "NVIDIA DGX B200 and HGX datasheets, an eighth of the system, sparse rates halved",
    ),
    _gpu("mi300x", "AMD Instinct MI300X", 192, 5300, (163.4, 1307.4, 2614.9), "AMD Instinct MI300X datasheet"),
    *APPLE_FAMILIES,
    _apple(
        *("m2-ultra", "Apple M2 Ultra, 76-core GPU", 192, 800, 27.2, "Apple newsroom, 5 June 2023 (memory, bandwidth)"),
        "Apple publishes no rate; 76 cores x 256 operations x 1.4 GHz",
    ),
    _apple(
        *("m3-ultra", "Apple M3 Ultra, 80-core GPU", 512, 819, 28.7),
        "Apple newsroom, 5 March 2025 (memory, bandwidth)",
        "Apple publishes no rate; 80 cores x 256 operations x 1.4 GHz",
    ),
    _apple(
        *("m4-max", "Apple M4 Max, 40-core GPU", 128, 546, 16.2, "Apple newsroom, 30 October 2024 (memory, bandwidth)"),
        "Apple publishes no rate; 40 cores x 256 operations x 1.58 GHz",
    ),
    replace(
        _apple(
            *("m4-ultra", "Apple M4 Ultra (no product; 2 x M4 Max)", 256, 1092, 32.4),
            "no document: Apple made no M4 Ultra, the largest machine of that time is the M3 Ultra",
            "a projection: twice the M4 Max; planned where it is named, never proposed",
        ),
        projected=True,
    ),
    _cpu("epyc-9654", "AMD EPYC 9654", 96, 2.4, 460.8, AVX512_VNNI_HALF, "AMD EPYC 9654 product page"),
    _cpu("epyc-9965", "AMD EPYC 9965", 192, 2.25, 614, AVX512_VNNI, "AMD EPYC 9965 product page"),
    _cpu("epyc-9575f", "AMD EPYC 9575F", 64, 3.3, 614, AVX512_VNNI, "AMD EPYC 9575F product page"),
    _cpu("xeon-8480+", "Intel Xeon Platinum 8480+", 56, 2.0, 307.2, AMX, "Intel ARK, Xeon Platinum 8480+"),
    _cpu("xeon-8592+", "Intel Xeon Platinum 8592+", 64, 1.9, 358.4, AMX, "Intel ARK, Xeon Platinum 8592+"),
    _cpu("xeon-6980p", "Intel Xeon 6980P, MRDIMM 8800", 128, 2.0, 844.8, AMX, "Intel ARK, Xeon 6980P"),
    *PROCESSORS,
)
