"""Chooses the device on which an engine runs its programs: the model's program, and those of the draft model or heads
that guess for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from twostroke.assembly.machine.run_delay import RunDelay
from twostroke.assembly.optional import cuda, cuda_health, device_sampler, early_runner, runner_ahead
from twostroke.backends.cpu import CpuOps
from twostroke.backends.cpu.health import check_kernels
from twostroke.engine.executor import Executor
from twostroke.ops.device_memory import HOST, DeviceMemory
from twostroke.ops.operands import F32Array
from twostroke.ops.program.program import Program
from twostroke.ops.registry import registry
from twostroke.ops.step_memory import StepMemory
from twostroke.runner.forward import Forward
from twostroke.runner.hidden_rows import StepReader
from twostroke.runner.place_weights import placed
from twostroke.runner.runner import ModelRunner, no_delay
from twostroke.runner.samplers import HostSampler, StepSampler
from twostroke.weights.loaded import ModelWeights

if TYPE_CHECKING:
    from twostroke.backends.cuda import CudaDevice
    from twostroke.runner.images.span_runner import ImageSteps


class RunPlace(Struct, frozen=True):
    """The device on which programs run. ops: the kernels of this machine's processor; they also compute the
    probabilities of tokens that are sampled on the host. device: the CUDA device; None where everything runs on the
    processor."""

    ops: CpuOps
    device: CudaDevice | None = None

    @property
    def memory(self) -> DeviceMemory:
        """The memory in which the arrays for the kernels are allocated."""
        return HOST if self.device is None else self.device

    def weights(self, weights: ModelWeights) -> ModelWeights:
        """Returns the weights for the kernels: copied to the GPU where there is one, else as they are. Raises
        OutOfMemory."""
        return weights if self.device is None else placed(weights, self.device)

    def compiled(self, program: Program, memory: StepMemory) -> Forward:
        """Returns the program, compiled to run on the arrays of `memory`. These arrays lie on the device, where there
        is one."""
        return self.ops.compile(program, memory) if self.device is None else self.device.compile(program, memory)

    def runner(
        self,
        forward: Forward,
        memory: StepMemory,
        vocabulary: int,
        delay: Callable[[], float] = no_delay,
        readers: Sequence[StepReader] = (),
        images: ImageSteps | None = None,
    ) -> ModelRunner:
        """Returns the runner of a model's steps. Tokens are chosen on the device that holds the logits. delay: returns
        the seconds that this thread waited for a processor. readers: objects that read values after each step. images:
        None for a model that reads no images."""
        sampler: StepSampler = HostSampler(forward, self.ops.weigh)
        if self.device is not None and isinstance(forward, cuda.CudaForward):
            sampler = device_sampler.DeviceSampler(forward, vocabulary, self.ops.weigh)
        return ModelRunner(forward, memory, time.perf_counter, delay, sampler, readers, images)

    def executor(
        self,
        forward: Forward,
        memory: StepMemory,
        vocabulary: int,
        readers: Sequence[StepReader],
        early: bool,
        images: ImageSteps | None = None,
    ) -> Executor:
        """Returns the runner of a model's steps, which also measures how long its thread waits for a core. early: a
        device may begin a step before the results of the step before it are read."""
        delay = RunDelay()
        plain = self.runner(forward, memory, vocabulary, delay, readers, images)
        if not early or readers or not isinstance(forward, cuda.CudaForward):
            return plain
        sampler = device_sampler.DeviceSampler(forward, vocabulary, self.ops.weigh)
        return early_runner.EarlyRunner(plain, forward, sampler, memory, time.perf_counter, delay)

    def call(self, op: str, operands: Sequence[Any], rows: int, width: int) -> Callable[[F32Array, F32Array], None]:
        """Returns a function that runs one op. Its arguments are the result, which lies in `self.memory`, and the input
        (at most rows, width), which lies in this process.

        operands: the op's operands after the result and the input. On a device, memory for the input is reserved from
        now on.
        """
        if self.device is None:
            return runner_ahead.native_call(self.ops, op, operands)
        device, kind = self.device, registry()[op]
        room: F32Array = device.empty(4 * rows * width).view(np.float32).reshape(rows, width)

        def run(out: F32Array, given: F32Array) -> None:
            there = room[: len(given)]
            device.write(there, given)
            recorder = device.recorder()
            recorder.record(kind, (out, there, *operands))
            device.run(recorder.calls())

        return run

    def probe(self) -> None:
        """Checks that the kernels still compute right results. Raises BackendError."""
        check_kernels(self.ops)
        if self.device is not None:
            cuda_health.check_device(self.device)

    def close(self) -> None:
        """Closes the device, where there is one, and then the threads."""
        if self.device is not None:
            self.device.close()
        self.ops.close()
