"""One CUDA device: its memory, its kernels, the programs that run on it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from twostroke.backends.cpu.compiled import CompiledProgram
from twostroke.backends.cpu.library import run_words
from twostroke.backends.cpu.recorded import CallRecorder, Calls
from twostroke.backends.cpu.words import Structs
from twostroke.backends.cuda import library as native
from twostroke.backends.cuda.arrays import DeviceArray
from twostroke.backends.cuda.images import images
from twostroke.backends.cuda.limits import ASKED_BYTES
from twostroke.ops.attention.token_weights import EXP2_COEFFICIENTS, exponent_scale
from twostroke.ops.device_memory import ALIGNMENT
from twostroke.ops.operands import F32Array, I32Array, U8Array
from twostroke.ops.program.program import Program
from twostroke.ops.step_memory import StepMemory, StepSizes
from twostroke.types.errors import BackendError, OutOfMemory

SCALE = exponent_scale(1.0)
SERIES: NDArray[np.float64] = np.array(EXP2_COEFFICIENTS)
_SERIES_AT = SERIES.ctypes.data
_TRANSFERS_A_CLOCK = 2
"""Memory of graphics cards moves data twice in each clock, at both edges."""
Follows = Sequence[tuple[int, I32Array]]
"""Tells where a new step finds input tokens that are still on the device. Each item has the slot of an earlier step and
an array (N, 2). A pair [i, j] of the array sets input token i to the token that the earlier step sampled for row j."""


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """The facts that the driver gives of a device. capability: the compute capability, such as (9, 0). clock_hz: the
    highest clock. memory_bytes_per_s: the rate of the memory's pins. Both are 0 where the driver does not tell them."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    driver_version: int
    free_bytes: int
    total_bytes: int
    clock_hz: float
    memory_bytes_per_s: float


class CudaDevice:
    """One CUDA device, which holds arrays and runs compiled programs. One call at a time. Satisfies
    `ops.device_memory.DeviceMemory`.

    driver: the driver's library, by name or path. folder: the folder of the backend's built files. image_name: the file
    whose kernels run. `close` gives all memory back.
    """

    def __init__(self, ordinal: int = 0, driver: str | None = None, folder: Path | None = None) -> None:
        driver, folder = driver or native.DRIVER, folder or native.LIBRARY_FOLDER
        self._context = ctypes.c_void_p()
        self._library, self.numbers = native.load_host_library(folder), native.cuda_op_numbers(folder)
        self.structs, self._owned, self._inputs = Structs(), set[int](), dict[int, U8Array]()
        status = self._library.ts_cuda_open(driver.encode(), ordinal, ctypes.byref(self._context))
        if not status:
            status = self._load(folder)
        if status:
            raise _cannot_open(ordinal, status, native.words_of(status, self._library))

    def _load(self, folder: Path) -> int:
        """Loads the kernels that suit the device, or the kernels for every device where the driver refuses the suitable
        ones. Returns 0, or the status of the failure."""
        native.require_built(folder)
        found, status = self.facts, 0
        for image in images(folder, found.capability, found.driver_version):
            self.image_name, code = image.name, image.read() + b"\0"
            status = self._library.ts_cuda_load(self._context, code, len(code), image.has)
            if status != native.FAILED:
                break
        return int(status)

    def close(self) -> None:
        """Gives all memory back. The object and its arrays cannot be used afterwards. Closing twice is harmless."""
        if self._context:
            for address in self._owned:
                self._library.ts_cuda_free(self._context, address)
            self._library.ts_context_destroy(self._context)
        self._context = ctypes.c_void_p()

    def __del__(self) -> None:
        if getattr(self, "_context", None):
            self.close()

    @property
    def facts(self) -> DeviceFacts:
        """The facts of the device, with the memory that is free at this moment."""
        found = native.DeviceStruct()
        self._check("cuda", self._library.ts_cuda_describe(self._context, ctypes.byref(found)))
        capability = (found.major, found.minor)
        name = found.name.decode(errors="replace")
        return DeviceFacts(
            name,
            capability,
            found.multiprocessors,
            found.driver_version,
            found.free_bytes,
            found.total_bytes,
            clock_hz=1e3 * found.clock_khz,
            memory_bytes_per_s=_TRANSFERS_A_CLOCK * 1e3 * found.memory_clock_khz * found.memory_bits / 8,
        )

    def empty(self, num_bytes: int) -> NDArray[np.uint8]:
        """Reserves memory on the device. Raises OutOfMemory."""
        address = ctypes.c_uint64()
        status = self._library.ts_cuda_allocate(self._context, num_bytes, ctypes.byref(address))
        if status == native.NO_MEMORY:
            raise OutOfMemory(
                f"The device has no memory left for {num_bytes / 1e6:,.1f} MB.",
                why=f"{native.words_of(status, self._library)}; {self.facts.free_bytes / 1e6:,.1f} MB are free.",
                fix="Use smaller --weights or --kv-memory, or end what else uses the device.",
            )
        self._check("allocate", status)
        self._owned.add(address.value)
        return cast(NDArray[np.uint8], DeviceArray.at(address.value, num_bytes))

    def zeros(self, num_bytes: int) -> NDArray[np.uint8]:
        """Reserves memory on the device that is filled with zeros. Raises OutOfMemory."""
        made = self.empty(num_bytes)
        self._check("zeros", self._library.ts_cuda_zero(self._context, made.ctypes.data, num_bytes))
        return made

    def put(self, host: NDArray[Any]) -> NDArray[Any]:
        """Copies an array to new memory on the device. Raises OutOfMemory."""
        whole = np.ascontiguousarray(host)
        made: NDArray[Any] = self.empty(whole.nbytes).view(whole.dtype).reshape(whole.shape)
        self.write(made, whole)
        return made

    def write(self, array: NDArray[Any], host: NDArray[Any]) -> None:
        """Copies `host` to `array`, which lies on the device. Rows of `array` may lie apart; then each row is copied by
        itself. Raises BackendError where the arrays differ in shape or dtype."""
        parts, whole = [array], np.ascontiguousarray(host)
        if not array.flags.c_contiguous:
            parts = [array[row : row + 1] for row in range(len(array))]
        if array.shape != host.shape or array.dtype != host.dtype or not all(p.flags.c_contiguous for p in parts):
            raise BackendError("Only contiguous rows of the same shape can be written.", why=f"It is {array!r}.")
        at = whole.ctypes.data
        for part in parts:
            self._check("put", self._library.ts_cuda_put(self._context, part.ctypes.data, at, part.nbytes))
            at += part.nbytes
        self._check("put", self._library.ts_cuda_wait(self._context))  # the caller may change `host` afterwards

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Gives back, at the end of the `with` block, all device memory that was taken inside the block, including what
        `inputs` has reserved."""
        before, inputs = set(self._owned), set(self._inputs)
        try:
            yield
        finally:
            for address in self._owned - before:
                self._release(address)
            for address in self._inputs.keys() - inputs:
                self._check("inputs", self._library.ts_cuda_inputs(self._context, address, 0))
                del self._inputs[address]

    def _release(self, address: int) -> None:
        self._owned.discard(address)
        self._check("free", self._library.ts_cuda_free(self._context, address))

    def get(self, array: NDArray[Any]) -> NDArray[Any]:
        """Returns a copy of an array in this process's memory. The array's elements must be contiguous."""
        if not array.flags.c_contiguous:
            raise BackendError("Only contiguous arrays can be copied from a device.", why=f"It is {array!r}.")
        host = np.empty(array.shape, array.dtype)
        status = self._library.ts_cuda_get(self._context, host.ctypes.data, array.ctypes.data, host.nbytes)
        self._check("get", status)
        return host

    def copy_row(self, array: NDArray[Any], source: int, target: int) -> None:
        """Copies row `source` of an array on the device to row `target`. Raises BackendError for a row that does not
        exist."""
        to, row_bytes = self._row(array, target)
        status = self._library.ts_cuda_copy(self._context, to, self._row(array, source)[0], row_bytes)
        self._check("copy", status)

    def clear_row(self, array: NDArray[Any], row: int) -> None:
        """Fills one row of an array on the device with zeros. Raises BackendError for a row that does not exist."""
        at, row_bytes = self._row(array, row)
        self._check("clear", self._library.ts_cuda_zero(self._context, at, row_bytes))

    @staticmethod
    def _row(array: NDArray[Any], row: int) -> tuple[int, int]:
        """Returns the address and the size in bytes of one row. Raises BackendError for a row that does not exist."""
        if not 0 <= row < len(array):
            raise BackendError(f"Row {row} is not among the {len(array)} of an array on a device.")
        row_bytes = array.nbytes // len(array)
        return int(array.ctypes.data) + row * row_bytes, row_bytes

    def wait(self) -> None:
        """Waits until everything that was started is done. Raises BackendError where some of it failed."""
        self._check("wait", self._library.ts_cuda_wait(self._context))

    def inputs(self, num_bytes: int) -> NDArray[np.uint8]:
        """Makes an array on the host for the inputs of steps, and an array on the device to which they are copied; see
        DeviceMemory. Both also have room for the inputs of sampling."""
        block = np.zeros(num_bytes + ASKED_BYTES + ALIGNMENT, np.uint8)
        self._check("inputs", self._library.ts_cuda_inputs(self._context, block.ctypes.data, block.nbytes))
        self._inputs[block.ctypes.data] = block
        return block[:num_bytes]

    def upload(self, inputs: U8Array, num_bytes: int, asked: U8Array | None = None) -> U8Array:
        """Copies the first bytes of a block of inputs to the device, and after them the inputs of sampling (`asked`),
        in one copy. Returns the place of `asked` in the block. Raises BackendError for an array that the method
        `CudaDevice.inputs` did not make."""
        address = int(inputs.ctypes.data)
        whole = self._inputs.get(address)
        if whole is None:
            raise BackendError("These inputs are not a block of this device.")
        at = -(-num_bytes // ALIGNMENT) * ALIGNMENT
        end = num_bytes if asked is None else at + len(asked)
        if asked is not None:
            whole[at:end] = asked
        self._check("inputs", self._library.ts_cuda_upload(self._context, address, end))
        return whole[at:end]

    def compile(self, program: Program, memory: StepMemory) -> CudaForward:
        """Returns the program as native calls, which are encoded once and run in each step. memory: made with this
        device. Raises BackendError where an op has no kernel."""
        lacking = sorted({call.NAME for call in program.calls} - self.numbers.keys())
        if lacking:
            raise BackendError(f"The cuda backend has no kernels for {', '.join(lacking)}.")
        return CudaForward(self, program, memory)

    def recorder(self) -> CallRecorder:
        """Returns an object that checks calls and records them, without running them. `run` then starts all recorded
        calls together."""
        return CallRecorder(self.numbers, self.structs)

    def run(self, calls: Calls) -> None:
        """Starts calls on the content that their operands will have when they run, without waiting. Raises BackendError
        where a call refuses."""
        status, ran = run_words(self._library, self._context, calls.address, len(calls.words))
        self._check(calls.names[ran] if ran < len(calls.names) else "run", status)

    def collect(self, calls: Calls) -> None:
        """Collects calls, as `run` but without starting them. All collected calls start together, just before the next
        call of another kind."""
        ran = ctypes.c_int64()
        words = calls.words
        status = self._library.ts_cuda_collect(self._context, calls.address, len(words), ctypes.byref(ran))
        self._check(calls.names[ran.value] if ran.value < len(calls.names) else "run", status)

    def keep_graphs(self, most: int) -> None:
        """Sets how many graphs of launches are kept from now on, at most 48; 0 for none. The graphs that were kept
        before are dropped."""
        self._check("keep_graphs", self._library.ts_cuda_graphs(self._context, most))

    def sample(self, logits: NDArray[Any], asked: U8Array, row_bytes: int, row_results: NDArray[Any]) -> None:
        """Samples a token of each row of logits (R, V) float32 on the device, and waits. asked: the requests, R structs
        of row_bytes each and then their lists, which `upload` has copied to the device. row_results: R structs that are
        filled in. csrc/cuda/include/twostroke/cuda/rows/sample_row.h defines both structs."""
        self._sample(logits, asked, row_bytes, row_results.ctypes.data, row_results.itemsize, -1)

    def begin_step(self, slot: int) -> None:
        """Begins a step. Everything that is started until `begin_sample` with this slot belongs to it."""
        self._check("begin", self._library.ts_cuda_begin_step(self._context, slot))

    def begin_sample(self, logits: NDArray[Any], asked: U8Array, row_bytes: int, result_bytes: int, slot: int) -> None:
        """Starts the same work as `sample`, without waiting. `results` fills in the structs later; each has
        result_bytes."""
        self._sample(logits, asked, row_bytes, None, result_bytes, slot)

    def follow(self, token_ids: I32Array, pairs: I32Array, result_bytes: int, slot: int) -> None:
        """Sets token_ids[pairs[i, 0]] to the token of row pairs[i, 1] of the step in `slot`, on the device, without
        waiting. token_ids (T,) and pairs (N, 2) lie in a block of inputs that `upload` has copied."""
        where = (token_ids.ctypes.data, len(token_ids), pairs.ctypes.data, len(pairs))
        self._check("follow", self._library.ts_cuda_follow(self._context, *where, result_bytes, slot))

    def results(self, slot: int, row_results: NDArray[Any]) -> float:
        """Waits for the step in `slot` and fills in its structs. Returns how many seconds the device worked on it."""
        seconds = ctypes.c_double()
        where = (row_results.ctypes.data, row_results.nbytes, ctypes.byref(seconds))
        self._check("results", self._library.ts_cuda_results(self._context, slot, *where))
        return seconds.value

    def _sample(
        self, logits: NDArray[Any], asked: U8Array, row_bytes: int, at: int | None, result_bytes: int, slot: int
    ) -> None:
        rows, count = logits.shape
        where = (logits.ctypes.data, logits.strides[0] // 4, rows, count, asked.ctypes.data, row_bytes)
        how = (SCALE, _SERIES_AT, len(SERIES), at, result_bytes, slot)
        self._check("sample", self._library.ts_cuda_sample(self._context, *where, *how))

    def _check(self, op: str, status: int) -> None:
        if status:
            raise BackendError(f"{op} was refused by the cuda backend: {native.words_of(status, self._library)}.")


class _Collector:
    """Gives encoded calls to `CudaDevice.collect`. The device launches the calls of a program's body and head only with
    the copy of their results to the host, all together. Satisfies `backends.cpu.compiled.Runner`."""

    def __init__(self, device: CudaDevice) -> None:
        self.numbers, self.structs, self.run = device.numbers, device.structs, device.collect


class CudaForward:
    """A program compiled for this device. One copy brings the inputs of a step to the device, and one copy brings
    logits or tokens back. Satisfies the runner's `Forward`, `SamplingForward` and `EarlyForward`."""

    def __init__(self, device: CudaDevice, program: Program, memory: StepMemory) -> None:
        self._device, self._memory = device, memory
        self._compiled = CompiledProgram(_Collector(device), program, memory)
        self._logits: NDArray[Any] = np.empty((0, 0), np.float32)

    def __call__(self, sizes: StepSizes) -> F32Array:
        self._upload(sizes)
        self._logits = self._compiled(sizes)
        return self._device.get(self._logits)

    @property
    def asked_bytes(self) -> int:
        return ASKED_BYTES

    def sampled(self, asked: NDArray[Any], lists: U8Array, row_results: NDArray[Any], sizes: StepSizes) -> None:
        where = self._upload(sizes, np.concatenate([asked.view(np.uint8), lists]))
        self._logits = self._compiled(sizes)
        if len(row_results):
            self._device.sample(self._logits, where, asked.itemsize, row_results)
        else:  # a step without samples then has its own time and its own failure
            self._device.wait()

    def begin(
        self, asked: NDArray[Any], lists: U8Array, follows: Follows, sizes: StepSizes, slot: int, result_bytes: int
    ) -> None:
        self._device.begin_step(slot)
        parts = [asked.view(np.uint8), *(pairs.reshape(-1).view(np.uint8) for _, pairs in follows), lists]
        where, at = self._upload(sizes, np.concatenate(parts)), asked.nbytes
        for before, pairs in follows:
            lying = where[at : at + pairs.nbytes].view(np.int32).reshape(-1, 2)
            self._device.follow(self._memory.token_ids[: sizes.tokens], lying, result_bytes, before)
            at += pairs.nbytes
        self._logits = self._compiled(sizes)
        self._device.begin_sample(self._logits, where, asked.itemsize, result_bytes, slot)

    def results(self, slot: int, row_results: NDArray[Any]) -> float:
        return self._device.results(slot, row_results)

    def scored(self, rows: I32Array, asked: NDArray[Any], row_results: NDArray[Any], sizes: StepSizes) -> None:
        self._memory.choose_logit_rows(rows)
        where = self._upload(StepSizes(sizes.tokens, sizes.sequences, len(rows)), asked.view(np.uint8))
        self._device.sample(self._compiled.logits(rows, sizes), where, asked.itemsize, row_results)

    def logits_at(self, begin: int, end: int) -> F32Array:
        return self._device.get(self._logits[begin:end])

    @property
    def max_rows(self) -> int:
        return self._compiled.max_rows

    def logits(self, rows: I32Array, sizes: StepSizes) -> F32Array:
        self._memory.choose_logit_rows(rows)
        self._upload(sizes)
        return self._device.get(self._compiled.logits(rows, sizes))

    def _upload(self, sizes: StepSizes, asked: U8Array | None = None) -> U8Array:
        return self._device.upload(self._memory.inputs, self._memory.used_input_bytes(sizes), asked)


def _cannot_open(ordinal: int, status: int, words: str) -> BackendError:
    if status == native.NO_DRIVER:
        return BackendError(
            "There is no CUDA driver here.",
            why=f"{words}.",
            fix="Install the driver of the GPU (it brings libcuda.so.1), or use --device cpu.",
        )
    if status == native.OLD_DRIVER:
        fix = "Install a newer driver of the GPU, or use --device cpu."
        return BackendError("The CUDA driver here is too old.", why=f"{words}.", fix=fix)
    if status == native.NO_MEMORY:
        fix = "End what else uses the device, or choose another --device cuda:N."
        return BackendError(f"CUDA device {ordinal} has no memory left to begin with.", why=f"{words}.", fix=fix)
    if status in (native.NO_DEVICE, native.OLD_DEVICE):
        fix = "Choose another --device cuda:N, or use --device cpu."
        return BackendError(f"CUDA device {ordinal} cannot be used.", why=f"{words}.", fix=fix)
    return BackendError(
        f"CUDA device {ordinal} could not be opened.", why=f"{words}.", fix="Use --device cpu, or a newer driver."
    )
