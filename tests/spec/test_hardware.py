"""The catalogue: the required machines are there, each with its source and in plausible ranges, and names are found."""

from __future__ import annotations

import pytest

from twostroke.types.errors import ConfigError
from twostroke.types.spec.formats import WeightKind
from twostroke.types.spec.hardware import EFFICIENCIES, HardwareClass, find_hardware
from twostroke.types.spec.hardware_catalogue import CATALOGUE

BY_NAME = {entry.name: entry for entry in CATALOGUE}
RANGES = {
    HardwareClass.GPU: ((16e9, 300e9), (200e9, 1e13), (100, 2000)),
    HardwareClass.APPLE: ((16e9, 600e9), (60e9, 1.2e12), (20, 100)),
    HardwareClass.PC: ((16e9, 128e9), (50e9, 300e9), (5, 250)),
    HardwareClass.CPU: ((256e9, 2e12), (200e9, 1e12), (10, 1000)),
}


def test_what_was_asked_for_is_there() -> None:
    asked = "rtx3090 rtx4090 rtx5090 a100-80gb h100-sxm h200 b200 mi300x m2-ultra m4-ultra epyc-9654 xeon-8592+"
    assert set(asked.split()) <= set(BY_NAME)
    assert sum(entry.kind is HardwareClass.CPU for entry in CATALOGUE) >= 5
    apple = {f"m{number}{kind}" for number in (1, 2, 3, 4) for kind in ("", "-pro", "-max")}
    assert apple <= set(BY_NAME)
    titles = [entry.title for entry in CATALOGUE if entry.kind is HardwareClass.PC]
    for words in (
        "AMD Ryzen 5",
        "AMD Ryzen 7",
        "AMD Ryzen 9",
        "AMD Ryzen AI",
        "Core i5",
        "Core i7",
        "Core i9",
        "Core Ultra",
    ):
        assert any(words in title for title in titles), words
    assert len(BY_NAME) == len(CATALOGUE)


@pytest.mark.parametrize("name", BY_NAME)
def test_entries_name_their_source_and_are_plausible(name: str) -> None:
    entry = BY_NAME[name]
    memory, read, ridge = RANGES[entry.kind]
    assert any(maker in entry.source for maker in ("NVIDIA", "AMD", "Apple", "Intel"))
    assert memory[0] <= entry.memory_bytes <= memory[1]
    assert read[0] <= entry.read_bytes_per_s <= read[1]
    assert ridge[0] <= entry.ridge_flops_per_byte(WeightKind.INT8) <= ridge[1]
    assert entry.f32_flops_per_s <= entry.bf16_flops_per_s <= entry.int8_ops_per_s
    assert entry.note or entry.kind is HardwareClass.GPU, "what is not published says how it was made"


def test_figures_of_the_vendors() -> None:
    """The figures that DOMAIN's worked examples use, and well-known rates."""
    read = {name: BY_NAME[name].read_bytes_per_s / 1e9 for name in ("rtx4090", "rtx3090", "a100-80gb", "m2-ultra")}
    assert read == {"rtx4090": 1008, "rtx3090": 936, "a100-80gb": 2039, "m2-ultra": 800}
    consumer = {
        name: BY_NAME[name].read_bytes_per_s / 1e9 for name in ("ryzen-7950x", "core-i9-14900k", "m1", "m4-pro")
    }
    assert consumer == {"ryzen-7950x": 83.2, "core-i9-14900k": 89.6, "m1": 68.25, "m4-pro": 273}
    assert BY_NAME["m1"].product_rate(WeightKind.F32) == pytest.approx(2.6e12, rel=0.02), "Apple says 2.6 teraflops"
    assert BY_NAME["m1-max"].product_rate(WeightKind.F32) == pytest.approx(10.4e12, rel=0.03)
    assert BY_NAME["core-i7-12700k"].f32_flops_per_s == pytest.approx((8 * 3.6 * 32 + 4 * 2.7 * 16) * 1e9)
    assert BY_NAME["a100-80gb"].product_rate(WeightKind.BF16) == 312e12
    assert BY_NAME["h100-sxm"].product_rate(WeightKind.INT4) == 1979e12
    assert BY_NAME["epyc-9654"].product_rate(WeightKind.F32) == pytest.approx(96 * 2.4e9 * 32)


def test_a_projected_machine_says_so() -> None:
    assert [entry.name for entry in CATALOGUE if entry.projected] == ["m4-ultra"]
    entry = BY_NAME["m4-ultra"]
    assert "no product" in entry.title and "projection" in entry.note
    assert entry.read_bytes_per_s == 2 * BY_NAME["m4-max"].read_bytes_per_s


@pytest.mark.parametrize(
    ("asked", "found"),
    [("H100-SXM", "h100-sxm"), ("rtx 4090", "rtx4090"), ("m2_ultra", "m2-ultra"), ("Ryzen 7950X", "ryzen-7950x")],
)
def test_spelling_is_forgiven(asked: str, found: str) -> None:
    assert find_hardware(asked, CATALOGUE).name == found


@pytest.mark.parametrize(
    ("asked", "nearest"), [("h100", "h100-sxm"), ("rtx4091", "rtx4090"), ("a100", "a100-80gb"), ("mi300", "mi300x")]
)
def test_an_unknown_name_gets_the_nearest(asked: str, nearest: str) -> None:
    with pytest.raises(ConfigError) as caught:
        find_hardware(asked, CATALOGUE)
    assert asked in caught.value.what and caught.value.fix == f"Did you mean {nearest}?"
    assert "rtx3090" in caught.value.why and "xeon-6980p" in caught.value.why


@pytest.mark.parametrize("asked", ["", "?", "a toaster"])
def test_a_name_near_nothing_gets_the_list(asked: str) -> None:
    with pytest.raises(ConfigError) as caught:
        find_hardware(asked, CATALOGUE)
    assert "Choose one" in caught.value.fix


def test_devices_share_layers() -> None:
    one = BY_NAME["h100-sxm"]
    four = one.split_over(4)
    share = one.efficiency.links
    assert four.memory_bytes == 4 * one.memory_bytes and four.devices == 4 and "4 x" in four.title
    assert four.read_bytes_per_s == pytest.approx(4 * share * one.read_bytes_per_s)
    assert one.split_over(1) is one


def test_shares_are_shares_and_have_reasons() -> None:
    for each in EFFICIENCIES.values():
        assert all(0 < share < 1 for share in (each.products, each.attention, each.memory, each.links))
        assert len(each.reason) > 40
