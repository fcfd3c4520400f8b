"""HardwareSpec: a machine in numbers, as its maker publishes them, and how much of them programs usually reach."""

from __future__ import annotations

import difflib
import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from msgspec import Struct

from twostroke.types.errors import ConfigError
from twostroke.types.spec.formats import WeightKind


class HardwareClass(enum.StrEnum):
    """The classes of hardware, each with its own usual efficiencies. CPU means processors of servers, PC means
    processors of desktops and laptops."""

    GPU = "gpu"
    APPLE = "apple"
    CPU = "cpu"
    PC = "pc"


class Efficiency(Struct, frozen=True):
    """The shares of the published rates that good programs reach, and the time that a step takes in addition to
    products.

    products: the share for matrix products of many rows. attention: the share for FLOPs of attention over many rows.
    memory: the share for reading weights and K and V. links: the share of the devices' added rates that is left when a
    model is split over several devices. layer_s: the seconds to start the ops of one layer. step_s: the seconds for
    scheduling and sampling.
    """

    products: float
    attention: float
    memory: float
    links: float
    layer_s: float
    step_s: float
    reason: str


EFFICIENCIES = {
    HardwareClass.GPU: Efficiency(
        products=0.65,
        attention=0.45,
        memory=0.80,
        links=0.85,
        layer_s=8e-6,
        step_s=1e-3,
        reason="large products reach 60 to 75% of dense peak in vendors' libraries, streaming kernels 75 to 90% of "
        "bandwidth; ops replayed as a graph; splitting a layer costs two all-reduces over the makers' fast links; "
        "cards joined by PCIe alone lose more",
    ),
    HardwareClass.APPLE: Efficiency(
        products=0.60,
        attention=0.35,
        memory=0.75,
        links=0.50,
        layer_s=15e-6,
        step_s=1e-3,
        reason="Metal kernels reach about 60% of the shaders' peak and 70 to 80% of unified memory's bandwidth",
    ),
    HardwareClass.CPU: Efficiency(
        products=0.50,
        attention=0.25,
        memory=0.75,
        links=0.60,
        layer_s=40e-6,
        step_s=1e-3,
        reason="our kernels reached 45 to 80% of the measured product rate on two machines; all cores sharing a socket "
        "read 70 to 80% of the channels' sum; a barrier among many cores costs several microseconds",
    ),
    HardwareClass.PC: Efficiency(
        products=0.50,
        attention=0.25,
        memory=0.80,
        links=0.50,
        layer_s=25e-6,
        step_s=1e-3,
        reason="a few cores fill two channels to 75 to 85%; our kernels reached 45 to 80% of the measured product rate "
        "on two machines",
    ),
}


@dataclass(frozen=True, slots=True)
class HardwareSpec:
    """One machine, or `devices` equal ones that share each layer.

    Rates are dense peaks, where a multiply-add counts as two operations; 0 where the machine has no such unit. source:
    the vendor's document. note: the figures that are not published and how they were made; empty where all are
    published. projected: True for a machine that is not on sale.
    """

    name: str
    title: str
    kind: HardwareClass
    memory_bytes: int
    read_bytes_per_s: float
    f32_flops_per_s: float
    bf16_flops_per_s: float
    int8_ops_per_s: float
    source: str
    note: str = ""
    projected: bool = False
    devices: int = 1

    @property
    def efficiency(self) -> Efficiency:
        """The shares of the published rates that programs usually reach on machines of this class, such as GPUs."""
        return EFFICIENCIES[self.kind]

    def product_rate(self, kind: WeightKind) -> float:
        """Returns the peak rate of products with weights of this kind, in operations a second.

        int8 and int4 weights are multiplied with activations that are rounded to int8, as in this engine. A kind
        without units of its own takes the rate of the next wider kind.
        """
        if kind.arithmetic in (WeightKind.INT8, WeightKind.INT4):
            return self.int8_ops_per_s or self.bf16_flops_per_s or self.f32_flops_per_s
        if kind is WeightKind.BF16:
            return self.bf16_flops_per_s or self.f32_flops_per_s
        return self.f32_flops_per_s

    def ridge_flops_per_byte(self, kind: WeightKind) -> float:
        """Returns the FLOPs a byte above which a step is bound by arithmetic."""
        return self.product_rate(kind) / self.read_bytes_per_s

    def split_over(self, devices: int) -> HardwareSpec:
        """Returns `devices` of these machines that share each layer. Memory and rates add up. The rates are then
        multiplied by `efficiency.links`, because communication between the devices takes a part of the time."""
        if devices == 1:
            return self
        gain = devices * self.efficiency.links
        return replace(
            self,
            title=f"{devices} x {self.title}",
            memory_bytes=self.memory_bytes * devices,
            read_bytes_per_s=self.read_bytes_per_s * gain,
            f32_flops_per_s=self.f32_flops_per_s * gain,
            bf16_flops_per_s=self.bf16_flops_per_s * gain,
            int8_ops_per_s=self.int8_ops_per_s * gain,
            devices=devices,
        )


def find_hardware(asked: str, known: Iterable[HardwareSpec]) -> HardwareSpec:
    """Returns the entry with the name `asked`; case, spaces and dashes do not matter. Raises ConfigError, which names
    the nearest entry."""
    entries = {_plain(entry.name): entry for entry in known}
    found = entries.get(_plain(asked))
    if found is not None:
        return found
    wanted = _plain(asked)
    inside = [entry.name for plain, entry in entries.items() if wanted and (wanted in plain or plain in wanted)]
    close = [entries[plain].name for plain in difflib.get_close_matches(wanted, entries, 1, cutoff=0.5)]
    nearest = (inside or close)[:1]
    names = ", ".join(entry.name for entry in entries.values())
    raise ConfigError(
        f"There is no hardware {asked[:60]!r} in the catalogue.",
        why=f"It holds {names}.",
        fix=f"Did you mean {nearest[0]}?" if nearest else "Choose one of these, or leave --hardware out.",
    )


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9+]", "", text.lower())
