"""Chooses where a model runs, this machine's processor or a CUDA device, and settles the parts of an engine that depend
on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import structs

from twostroke.assembly.cost_here import costs_here, costs_on
from twostroke.assembly.guessing.guesses import GuessingModel
from twostroke.assembly.machine.spare_memory import SpareMemory
from twostroke.assembly.optional import cuda, cuda_limits
from twostroke.assembly.settings.engine_settings import CacheSettings, DeviceSettings
from twostroke.assembly.settings.env import Machine, free_memory_bytes
from twostroke.assembly.settings.resolver import Resolved, Resolver
from twostroke.assembly.weights import settler_of
from twostroke.backends.cpu.huge_pages import populate
from twostroke.cost.memory import LEAST_FREE_SHARE, MemoryNeeds
from twostroke.cost.what_if import WhatIf
from twostroke.engine.cache.page_group import never
from twostroke.ops.program.model import Model
from twostroke.ops.quant.formats import format_choice
from twostroke.ops.step_memory import StepMemory
from twostroke.runner.backing import KvPrefault
from twostroke.types.errors import BackendError, ConfigError, TwostrokeError, UnsupportedModel
from twostroke.types.pooling import Task
from twostroke.types.spec.hardware_guess import guessed_device
from twostroke.weights.loaded import ModelWeights
from twostroke.weights.packed.settle import Settler

if TYPE_CHECKING:
    from twostroke.backends.cuda import CudaDevice

CPU, AUTO, CUDA = "cpu", "auto", "cuda"
ON, OFF = "on", "off"


def choose_device(resolver: Resolver, spec: Model) -> CudaDevice | None:
    """Opens and returns the device that was asked for; None for the CPU. Settles `device` with its reason.

    `auto` takes the CPU where no device can be used for this model with these settings; the reason explains it. Raises
    ConfigError where `cuda` was asked for and no device can be used. Raises UnsupportedModel where the backend lacks
    kernels.
    """
    asked = resolver.asked_value(DeviceSettings.device) or CPU
    if asked == CPU:
        resolver.pick(DeviceSettings.device, CPU, "default: --device cuda or auto takes a GPU")
        return None
    missing = cuda_limits.lacking(spec.program)
    reason: TwostrokeError = UnsupportedModel(
        "The cuda backend cannot run this model.", why=missing or "", fix="Use --device cpu."
    )
    if missing is None:
        ordinal = int(asked.partition(":")[2] or 0)
        try:
            device = cuda.CudaDevice(ordinal)
            resolver.put(DeviceSettings.device, f"cuda:{ordinal}", device.facts.name)
            return device
        except BackendError as error:
            reason = ConfigError(f"--device {asked} cannot be used: {error.what}", why=error.why, fix=error.fix)
    if asked != AUTO:
        raise reason
    resolver.put(DeviceSettings.device, CPU, f"auto: {' '.join(part for part in (reason.what, reason.why) if part)}")
    return None


def costs_for(device: CudaDevice | None, machine: Machine, settings: Resolved) -> Callable[[Model], WhatIf]:
    """Returns a function that gives the cost model of a model on its device. No CUDA device was ever measured, so its
    costs are guessed from what the driver tells of it."""
    weights, kind = settings.model.weights, settings.cache.kind
    if device is None:
        level, threads = settings.cpu.cpu_level, settings.cpu.threads
        return lambda model: costs_here(model, weights, kind, machine.cache_folder, level, threads)
    facts = device.facts
    rates = (facts.clock_hz, facts.memory_bytes_per_s)
    guess = guessed_device(facts.name, facts.multiprocessors, facts.total_bytes, *rates)
    return lambda model: costs_on(guess, model, weights, kind)


def room_on(device: CudaDevice | None, machine: Machine) -> Machine:
    """Returns the machine with the memory that the model gets: the device's memory, where there is a device."""
    if device is None:
        return machine
    facts = device.facts
    source = f"free of the {facts.total_bytes / 1e9:.1f} GB of {facts.name}"
    return replace(machine, available_bytes=facts.free_bytes, memory_source=source)


def able_to_guess(device: CudaDevice | None, guessing: GuessingModel | None, resolver: Resolver) -> CudaDevice | None:
    """Returns the device where it can also run the draft model or heads. Otherwise closes the device, and returns None
    (the CPU) for --device auto or raises UnsupportedModel for --device cuda."""
    programs = () if guessing is None else guessing.programs
    missing = next((reason for each in programs if (reason := cuda_limits.lacking(each)) is not None), None)
    if device is None or missing is None:
        return device
    device.close()
    error = UnsupportedModel(
        "The cuda backend cannot run what --speculate names.", why=missing, fix="Use --speculate auto, or --device cpu."
    )
    if resolver.asked_value(DeviceSettings.device) != AUTO:
        raise error
    resolver.put(DeviceSettings.device, CPU, f"auto: {error.what} {missing}")
    return None


def settle_early_steps(
    device: CudaDevice | None, spec: Model, guessing: GuessingModel | None, resolver: Resolver
) -> None:
    """Settles `early_steps` with its reason: whether a GPU begins the next decode step before the host has read the
    tokens of this one. Raises ConfigError where early steps are asked for and are not possible."""
    asked = resolver.asked_value(DeviceSettings.early_steps) or AUTO
    if asked == OFF:
        resolver.pick(DeviceSettings.early_steps, OFF, "")
        return
    reason = None
    if device is None:
        reason = "on the CPU there is nothing to wait for"
    elif spec.state_bytes():
        reason = "a model that keeps states cannot drop a step"
    elif spec.task is not Task.GENERATE:
        reason = f"a model for the task {spec.task} makes no tokens"
    elif guessing is not None:
        reason = "what --speculate names reads each step before the next"
    elif spec.program.given:
        reason = "rows of images and their places are written before each step"
    if reason is None:
        words = "the device begins the next decode step while the host looks at this one"
        resolver.put(DeviceSettings.early_steps, ON, words)
    elif asked == ON:
        raise ConfigError("--early-steps on is not possible here.", why=f"{reason[0].upper()}{reason[1:]}.")
    else:
        resolver.put(DeviceSettings.early_steps, OFF, reason)


def needs_on(
    device: CudaDevice | None, needs: MemoryNeeds, spec: Model, settings: Resolved, guessing: GuessingModel | None
) -> MemoryNeeds:
    """Returns the memory to reserve. On a GPU, the scratch memory of the kernels is added, and the memory of this
    process is not counted. Programs run one after the other and share the scratch memory; each has inputs of its own.
    """
    if device is None:
        return needs
    programs = [spec.program] if guessing is None else [spec.program, *guessing.programs]
    formats, context = format_choice(settings.model.weights), settings.steps.context
    held = max(cuda_limits.scratch_bytes(program, formats, context) for program in programs)
    held += cuda_limits.sampling_bytes(spec.vocab_size) + (len(programs) - 1) * cuda_limits.ASKED_BYTES
    held += 0 if guessing is None else guessing.input_bytes(settings)
    return structs.replace(needs, buffer_bytes=needs.buffer_bytes + held, process_bytes=0)


def backing_of(device: CudaDevice | None, memory: StepMemory) -> KvPrefault:
    """Returns the object that makes the system provide memory for the first group's pages before they are used. It does
    nothing for a device, whose memory is there from the beginning."""
    return KvPrefault([] if device is not None else [layer.data for layer in memory.layers_of(0)], populate)


def shortage_of(
    device: CudaDevice | None, resolver: Resolver, machine: Machine, weights: ModelWeights, settler: Settler
) -> Callable[[], bool]:
    """Returns the function that tells the cache whether other programs need memory which it has not taken yet. It is
    never so where the user chose the size of the pool, and on a GPU.

    The system counts mapped weights as free memory until the settler has moved them, because it could read them again.
    So as many bytes more must be free.
    """
    if device is not None or resolver.asked_value(CacheSettings.kv_memory) is not None:
        return never
    least_bytes = int(machine.available_bytes * LEAST_FREE_SHARE)
    least_bytes += 0 if weights.mapped is None else weights.mapped.nbytes
    return SpareMemory(free_memory_bytes, lambda: least_bytes - settler.moved_bytes).is_short


def settler_on(device: CudaDevice | None, weights: ModelWeights, machine: Machine) -> Settler:
    """Returns the settler, which moves mapped weights into huge pages. On a GPU it moves nothing, because only the CPU
    reads mapped weights."""
    return settler_of(weights if device is None else replace(weights, mapped=None), machine)
