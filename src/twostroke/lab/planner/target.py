"""The machine for which a plan is made: this machine as measured or as guessed, or an entry of the catalogue."""

from __future__ import annotations

import re
from dataclasses import dataclass

from twostroke.cost.calibration import Calibration
from twostroke.cost.exchange import LinkRates
from twostroke.types.errors import ConfigError, TwostrokeError
from twostroke.types.spec.formats import WeightKind
from twostroke.types.spec.hardware import HardwareClass, HardwareSpec, find_hardware
from twostroke.types.spec.hardware_catalogue import CATALOGUE
from twostroke.types.spec.hardware_guess import GUESSED_BYTES_PER_S, GUESSED_MEETING_S

MAX_DEVICES = {HardwareClass.GPU: 8, HardwareClass.APPLE: 1, HardwareClass.CPU: 2, HardwareClass.PC: 1}
STEP_TOKENS = {
    HardwareClass.GPU: 2048,
    HardwareClass.APPLE: 512,
    HardwareClass.CPU: 512,
    HardwareClass.PC: 512,
}
HERE_STEP_TOKENS = 512
MEASURE = "twostroke doctor --fresh"
"""The command that measures this machine."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """The memory (NUMA) nodes of a machine. threads: the number of threads that compute on each node. far: the mean
    distance from a node to another node's memory, where the distance to its own memory is 1."""

    count: int
    threads: int
    level: str
    far: float


@dataclass(frozen=True, slots=True)
class Target:
    """The machine for which a plan is made. memory_bytes: the memory of all devices together, or the memory that is
    available on this machine now. step_tokens: a step's token budget. nodes: the memory nodes over which one process
    would be spread; None for a machine with a single node.

    read_bytes_per_s: the catalogue's peak, or the measured rate of this machine. link: how processes of this machine
    exchange; None where it is unknown.
    """

    name: str
    title: str
    machine: HardwareSpec | Calibration
    memory_bytes: int
    read_bytes_per_s: float
    step_tokens: int
    assumptions: tuple[str, ...]
    link: LinkRates | None = None
    nodes: Nodes | None = None

    @property
    def is_gpu(self) -> bool:
        """Whether the target is a GPU of the catalogue."""
        return isinstance(self.machine, HardwareSpec) and self.machine.kind is HardwareClass.GPU

    def peak_ops_per_s(self, kind: WeightKind) -> float:
        """Returns the peak rate of products with weights of this kind."""
        return self.machine.product_rate(kind)

    def ridge_flops_per_byte(self, kind: WeightKind) -> float:
        """Returns the FLOPs a byte of the roofline's ridge. Steps with more FLOPs a byte are bound by arithmetic."""
        return self.peak_ops_per_s(kind) / self.read_bytes_per_s


def catalogue_target(hardware: HardwareSpec) -> Target:
    """Returns the target of an entry of the catalogue, which may be split over several devices."""
    shares = hardware.efficiency
    said = [
        f"{hardware.title}: {hardware.source}" + (f"; {hardware.note}" if hardware.note else ""),
        f"of the published peaks, products reach {shares.products:.0%}, attention {shares.attention:.0%} and reading "
        f"{shares.memory:.0%}; each layer costs {shares.layer_s * 1e6:.0f} us and each step {shares.step_s * 1e3:.1f} "
        f"ms beside: {shares.reason}",
    ]
    if hardware.devices > 1:
        said.append(f"{hardware.devices} devices share each layer and keep {shares.links:.0%} of their added rates")
    rates = (hardware.memory_bytes, hardware.read_bytes_per_s)
    return Target(hardware.name, hardware.title, hardware, *rates, STEP_TOKENS[hardware.kind], tuple(said))


def here_target(calibration: Calibration, available_bytes: int) -> Target:
    """Returns the target of this machine, as it was measured."""
    said = [
        f"{calibration.title}, {calibration.threads} threads, as measured by `twostroke doctor`: times are put "
        "together from the kernels' measured times, not from peaks",
    ]
    if calibration.disturbed:
        taken = f"{calibration.others_share:.0%} of the cores"
        said.append(f"other programs took {taken} meanwhile: `twostroke doctor --fresh` will find a faster machine")
    read, exchange = calibration.read_bytes_per_s, calibration.exchange
    words = "as `twostroke doctor` measured it here, through memory that processes share"
    link = None if exchange is None else LinkRates(exchange.meeting_s, exchange.bytes_per_s, words)
    return Target("here", "this machine", calibration, available_bytes, read, HERE_STEP_TOKENS, tuple(said), link)


def guessed_target(guess: HardwareSpec, available_bytes: int, why: TwostrokeError) -> Target:
    """Returns the target of this machine where it could not be measured. why: the error that kept the doctor from
    measuring."""
    reason = " ".join(each for each in (why.what, why.why) if each)
    said = (
        f"this machine was not measured, so all its times follow from a guess. {reason} `{MEASURE}` measures it",
        f"{guess.title}: {guess.source}; the guess errs to the slow side",
    )
    link = LinkRates(GUESSED_MEETING_S, GUESSED_BYTES_PER_S, f"as a guess, not measured; `{MEASURE}` measures it")
    read = guess.read_bytes_per_s
    return Target("here", "this machine, not measured", guess, available_bytes, read, HERE_STEP_TOKENS, said, link)


def named_target(asked: str) -> Target:
    """Returns the target of a name such as "h100-sxm" or "4xh100-sxm". Raises ConfigError with the nearest name, or for
    too many devices."""
    match = re.fullmatch(r"\s*(\d{1,4})\s*[xX*]\s*(.+)", asked)
    devices, name = (int(match[1]), match[2]) if match else (1, asked)
    hardware = find_hardware(name, CATALOGUE)
    most = MAX_DEVICES[hardware.kind]
    if not 1 <= devices <= most:
        raise ConfigError(
            f"--hardware {asked[:60]}: {hardware.title} is planned with "
            f"{f'1 to {most} devices' if most > 1 else 'one device'}.",
            why="Links between more devices are slower than the model of a split layer assumes.",
            fix=f"Ask for at most {most}; several replicas serve more users.",
        )
    return catalogue_target(hardware.split_over(devices))


def device_counts(hardware: HardwareSpec) -> tuple[int, ...]:
    """Returns the numbers of devices that are tried: powers of two."""
    return tuple(count for count in (1, 2, 4, 8) if count <= MAX_DEVICES[hardware.kind])
