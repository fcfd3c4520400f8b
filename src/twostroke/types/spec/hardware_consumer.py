"""Computers that people own: processors of desktops and laptops, and Apple's chips, with the vendors' documents.

Sources, as of November 2026:

- AMD: the product pages of the Ryzen processors (cores, base clock, memory type). Zen 2 and 3 have AVX2. Zen 4 runs
  AVX-512 with VNNI in 256-bit units, and so does Zen 5 in laptops. Zen 5 in desktops and in Ryzen AI Max has 512-bit
  units (AMD, "Zen 5" technical briefings, July 2024 and January 2025).
- Intel: ARK (cores of both kinds, their base clocks, "Max Memory Bandwidth", or the fastest memory type times the width
  of the bus). AVX2 with AVX-VNNI, which doubles the products of bytes (Intel's instruction set reference, VPDPBUSD).
  Tiger Lake has AVX-512 with VNNI and one 512-bit unit.
- Apple: the newsroom of the day on which each chip was shown. M1: 10 November 2020. M1 Pro and Max: 18 October 2021.
  M1 Ultra: 8 March 2022. M2: 6 June 2022. M2 Pro and Max: 17 January 2023. M3, M3 Pro and Max: 30 October 2023.
  M4: 7 May 2024. M4 Pro: 30 October 2024. Memory is the most that is sold.

Bandwidth is the memory's transfer rate times the width of its bus. No vendor publishes operations a second of these
processors: cores x base clock x operations a cycle, as for servers. Laptops run below the base clock where they get
hot, and above it where they do not.
"""

from __future__ import annotations

from twostroke.types.spec.hardware import HardwareClass, HardwareSpec

GB = 10**9

Cycle = tuple[int, int, int]
AVX2: Cycle = (32, 32, 64)
"""f32, bf16 and int8 operations for each cycle and core: two 256-bit units; bf16 is widened to f32."""
AVX_VNNI: Cycle = (32, 32, 128)
AVX_VNNI_SMALL: Cycle = (16, 16, 64)
"""f32, bf16 and int8 operations for each cycle and core of Intel's E cores, which have 128-bit units."""
ZEN4: Cycle = (32, 64, 128)
ZEN5: Cycle = (64, 128, 256)
TIGER_LAKE: Cycle = (32, 32, 128)

AMD, INTEL = "AMD product page", "Intel ARK"
DDR4_3200, DDR5_4800, DDR5_5200, DDR5_5600, DDR5_6400 = 51.2, 76.8, 83.2, 89.6, 102.4
"""GB/s of two channels, 128 bits together."""


def _processor(
    name: str, title: str, parts: tuple[tuple[int, float, Cycle], ...], gb_per_s: float, gigabytes: int, source: str
) -> HardwareSpec:
    """Returns the entry of a processor. parts: (cores, base clock in GHz, operations a cycle) of each kind of core."""
    f32, bf16, int8 = (sum(cores * ghz * 1e9 * cycle[kind] for cores, ghz, cycle in parts) for kind in range(3))
    cores = " and ".join(f"{count} cores x {ghz} GHz base x {cycle}" for count, ghz, cycle in parts)
    note = f"rates: {cores} f32, bf16, int8 operations a cycle; a computer with {gigabytes} GB"
    memory, read = gigabytes * GB, gb_per_s * GB
    return HardwareSpec(name, title, HardwareClass.PC, memory, read, f32, bf16, int8, source, note)


def _ryzen(
    name: str, title: str, cores: int, ghz: float, cycle: Cycle, gb_per_s: float, gigabytes: int = 64
) -> HardwareSpec:
    return _processor(name, f"AMD {title}", ((cores, ghz, cycle),), gb_per_s, gigabytes, AMD)


def _core(
    name: str, title: str, fast: tuple[int, float], small: tuple[int, float], gb_per_s: float, gigabytes: int = 64
) -> HardwareSpec:
    """Returns the entry of an Intel processor. fast, small: the numbers of P and E cores, with their base clocks in
    GHz."""
    parts = ((*fast, AVX_VNNI), (*small, AVX_VNNI_SMALL)) if small[0] else ((*fast, AVX_VNNI),)
    return _processor(name, f"Intel {title}", parts, gb_per_s, gigabytes, INTEL)


def _apple(name: str, title: str, cores: int, ghz: float, gb_per_s: float, gigabytes: int, day: str) -> HardwareSpec:
    """Returns the entry of an Apple chip. cores: the number of GPU cores. Each does 256 operations a cycle, in f32,
    bf16 or int8."""
    rate = cores * 256 * ghz * 1e9
    return HardwareSpec(
        name,
        f"Apple {title}, {cores}-core GPU",
        HardwareClass.APPLE,
        gigabytes * GB,
        gb_per_s * GB,
        rate,
        rate,
        rate,
        f"Apple newsroom, {day} (memory, bandwidth)",
        f"{cores} GPU cores x 256 operations x {ghz} GHz",
    )


APPLE_FAMILIES: tuple[HardwareSpec, ...] = (
    _apple("m1", "M1", 8, 1.28, 68.25, 16, "10 November 2020"),
    _apple("m1-pro", "M1 Pro", 16, 1.3, 200, 32, "18 October 2021"),
    _apple("m1-max", "M1 Max", 32, 1.3, 400, 64, "18 October 2021"),
    _apple("m1-ultra", "M1 Ultra", 64, 1.3, 800, 128, "8 March 2022"),
    _apple("m2", "M2", 10, 1.4, 100, 24, "6 June 2022"),
    _apple("m2-pro", "M2 Pro", 19, 1.4, 200, 32, "17 January 2023"),
    _apple("m2-max", "M2 Max", 38, 1.4, 400, 96, "17 January 2023"),
    _apple("m3", "M3", 10, 1.38, 100, 24, "30 October 2023"),
    _apple("m3-pro", "M3 Pro", 18, 1.38, 150, 36, "30 October 2023"),
    _apple("m3-max", "M3 Max", 40, 1.38, 400, 128, "30 October 2023"),
    _apple("m4", "M4", 10, 1.58, 120, 32, "7 May 2024"),
    _apple("m4-pro", "M4 Pro", 20, 1.58, 273, 64, "30 October 2024"),
)

PROCESSORS: tuple[HardwareSpec, ...] = (
    _ryzen("ryzen-3600", "Ryzen 5 3600", 6, 3.6, AVX2, DDR4_3200, 32),
    _ryzen("ryzen-5600x", "Ryzen 5 5600X", 6, 3.7, AVX2, DDR4_3200, 32),
    _ryzen("ryzen-5800x", "Ryzen 7 5800X", 8, 3.8, AVX2, DDR4_3200),
    _ryzen("ryzen-5950x", "Ryzen 9 5950X", 16, 3.4, AVX2, DDR4_3200),
    _ryzen("ryzen-7600x", "Ryzen 5 7600X", 6, 4.7, ZEN4, DDR5_5200),
    _ryzen("ryzen-7700x", "Ryzen 7 7700X", 8, 4.5, ZEN4, DDR5_5200),
    _ryzen("ryzen-7800x3d", "Ryzen 7 7800X3D", 8, 4.2, ZEN4, DDR5_5200),
    _ryzen("ryzen-7950x", "Ryzen 9 7950X", 16, 4.5, ZEN4, DDR5_5200),
    _ryzen("ryzen-9600x", "Ryzen 5 9600X", 6, 3.9, ZEN5, DDR5_5600),
    _ryzen("ryzen-9700x", "Ryzen 7 9700X", 8, 3.8, ZEN5, DDR5_5600),
    _ryzen("ryzen-9800x3d", "Ryzen 7 9800X3D", 8, 4.7, ZEN5, DDR5_5600),
    _ryzen("ryzen-9950x", "Ryzen 9 9950X", 16, 4.3, ZEN5, DDR5_5600),
    _ryzen("ryzen-5800u", "Ryzen 7 5800U, LPDDR4x-4266", 8, 1.9, AVX2, 68.3, 16),
    _ryzen("ryzen-7840u", "Ryzen 7 7840U, LPDDR5x-7500", 8, 3.3, ZEN4, 120, 32),
    _ryzen("ryzen-ai-370", "Ryzen AI 9 HX 370, LPDDR5x-8000", 12, 2.0, ZEN4, 128, 32),
    _ryzen("ryzen-ai-max-395", "Ryzen AI Max+ 395, LPDDR5x-8000, 256 bits", 16, 3.0, ZEN5, 256, 128),
    _core("core-i5-12400", "Core i5-12400", (6, 2.5), (0, 0.0), DDR5_4800),
    _core("core-i7-12700k", "Core i7-12700K", (8, 3.6), (4, 2.7), DDR5_4800),
    _core("core-i9-12900k", "Core i9-12900K", (8, 3.2), (8, 2.4), DDR5_4800),
    _core("core-i5-13600k", "Core i5-13600K", (6, 3.5), (8, 2.6), DDR5_5600),
    _core("core-i7-13700k", "Core i7-13700K", (8, 3.4), (8, 2.5), DDR5_5600),
    _core("core-i7-14700k", "Core i7-14700K", (8, 3.4), (12, 2.5), DDR5_5600),
    _core("core-i9-14900k", "Core i9-14900K", (8, 3.2), (16, 2.4), DDR5_5600),
    _core("core-ultra-265k", "Core Ultra 7 265K", (8, 3.9), (12, 3.3), DDR5_6400),
    _core("core-ultra-285k", "Core Ultra 9 285K", (8, 3.7), (16, 3.2), DDR5_6400),
    _processor(
        *("core-i7-1165g7", "Intel Core i7-1165G7, LPDDR4x-4267", ((4, 2.8, TIGER_LAKE),), 68.3, 16),
        INTEL,
    ),
    _core("core-i7-1260p", "Core i7-1260P, LPDDR5-5200", (4, 2.1), (8, 1.5), 83.2, 16),
    _core("core-i7-13700h", "Core i7-13700H, DDR5-5200", (6, 2.4), (8, 1.8), 83.2, 32),
    _core("core-ultra-155h", "Core Ultra 7 155H, LPDDR5x-7467", (6, 1.4), (8, 0.9), 119.5, 32),
    _core("core-ultra-258v", "Core Ultra 7 258V, LPDDR5x-8533", (4, 2.2), (4, 2.2), 136.5, 32),
)
