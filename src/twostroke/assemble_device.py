"""Where a model runs: on this machine's processor, or on a CUDA device; and what of an engine depends on that.

Knows: the backends, settings, memory plans.
Must not know: how an engine is put together, servers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from twostroke.assemble_caches import step_memory
from twostroke.assemble_weights import settler_of
from twostroke.backends.cpu import CpuOps
from twostroke.backends.cpu.health import check_kernels
from twostroke.backends.cpu.huge_pages import populate
from twostroke.backends.cuda import CudaDevice
from twostroke.backends.cuda.health import check_device
from twostroke.backends.cuda.limits import lacking, scratch_bytes
from twostroke.config import Resolved, Resolver
from twostroke.cost.memory import MemoryNeeds
from twostroke.env import Machine
from twostroke.ops.step_memory import StepMemory
from twostroke.program.model import Model
from twostroke.program.program import Program
from twostroke.quant.formats import format_choice
from twostroke.runner.backing import PoolBacking
from twostroke.runner.forward import Forward
from twostroke.runner.place_weights import placed
from twostroke.types.cache_pools import CachePools
from twostroke.types.errors import BackendError, ConfigError, UnsupportedModel
from twostroke.weights.loaded import ModelWeights
from twostroke.weights.settle import Settler

CPU, AUTO, CUDA = "cpu", "auto", "cuda"


def choose_device(resolver: Resolver, spec: Model) -> CudaDevice | None:
    """The device that was asked for, opened; None for the CPU. Settles `device` with its reason.

    auto takes the CPU where no device can be used for this model with these settings, and says why. Raises ConfigError
    where cuda was asked for and there is none, or an option that it cannot honour; UnsupportedModel where it lacks
    kernels.
    """
    asked = resolver.asked_value("device") or CPU
    if asked == CPU:
        resolver.pick("device", CPU, "default: nothing has run on a GPU yet")
        return None
    reason = _why_not(resolver, spec)
    if reason is None:
        ordinal = int(asked.partition(":")[2] or 0)
        try:
            device = CudaDevice(ordinal)
            resolver.put("device", f"cuda:{ordinal}", device.facts.name)
            return device
        except BackendError as error:
            reason = ConfigError(f"--device {asked} cannot be used: {error.what}", why=error.why, fix=error.fix)
    if asked != AUTO:
        raise reason
    resolver.put("device", CPU, f"auto: {' '.join(part for part in (reason.what, reason.why) if part)}")
    return None


def _why_not(resolver: Resolver, spec: Model) -> ConfigError | UnsupportedModel | None:
    settings = resolver.resolved()
    for name in ("ttft", "itl"):
        if settings[name] is not None:
            return _cannot_honour(name, "Promises are kept by predicted step times, and no device was ever measured.")
    if settings["speculate"] != "off":
        return _cannot_honour(
            "speculate", "Guesses are weighed by predicted step times, and no device was ever measured."
        )
    for name in ("adapter", "adapter_folder", "max_adapters"):
        if resolver.asked_value(name) is not None:
            return _cannot_honour(name, "The products of adapters have no kernels.")
    missing = lacking(spec.program, format_choice(settings["weights"]))
    if missing is None:
        return None
    return UnsupportedModel("The cuda backend cannot run this model.", why=missing, fix="Use --device cpu.")


def _cannot_honour(name: str, why: str) -> ConfigError:
    return ConfigError(
        f"--{name.replace('_', '-')} is not possible on a CUDA device yet.",
        why=why,
        fix="Leave it out, or use --device cpu.",
    )


def room_on(device: CudaDevice | None, machine: Machine) -> Machine:
    """The machine, with the memory that the model gets: the device's, where there is one."""
    if device is None:
        return machine
    facts = device.facts
    source = f"free of the {facts.total_bytes / 1e9:.1f} GB of {facts.name}"
    return replace(machine, available_bytes=facts.free_bytes, memory_source=source)


def needs_on(device: CudaDevice | None, needs: MemoryNeeds, spec: Model) -> MemoryNeeds:
    """What must fit: on a device scratch memory, and nothing of this process. What the driver took is taken already."""
    if device is None:
        return needs
    return replace(needs, buffer_bytes=needs.buffer_bytes + scratch_bytes(spec.program), process_bytes=0)


def memory_on(
    device: CudaDevice | None, program: Program, weights: ModelWeights, pools: CachePools, settings: Resolved
) -> StepMemory:
    """The arrays of a program's steps, with the weights where they are read. Raises OutOfMemory."""
    if device is None:
        return step_memory(program, weights, pools, settings)
    return step_memory(program, placed(weights, device), pools, settings, device)


def forward_on(device: CudaDevice | None, ops: CpuOps, program: Program, memory: StepMemory) -> Forward:
    """The program on that memory."""
    return ops.compile(program, memory) if device is None else device.compile(program, memory)


def backing_of(device: CudaDevice | None, memory: StepMemory) -> PoolBacking:
    """Memory behind the first group's pages ahead of their use; a device's is there from the beginning."""
    return PoolBacking([] if device is not None else [layer.data for layer in memory.layers_of(0)], populate)


def settler_on(device: CudaDevice | None, weights: ModelWeights, machine: Machine) -> Settler:
    """Moves mapped weights into huge pages, where the CPU reads them."""
    return settler_of(weights if device is None else replace(weights, mapped=None), machine)


def closer_of(device: CudaDevice | None) -> Callable[[], None]:
    """Gives the device back, where there is one."""
    return (lambda: None) if device is None else device.close


def probe_of(device: CudaDevice | None, ops: CpuOps) -> Callable[[], None]:
    """Asks whether the kernels still compute; raises BackendError."""

    def probe() -> None:
        check_kernels(ops)
        if device is not None:
            check_device(device)

    return probe
