"""Compares the results of a device with those of the CPU's level with fused multiply-add, byte for byte: single ops,
logits of the embedded model, and sampled tokens."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from tools.gpu.cases import numbers, op_cases
from tools.gpu.logits_there import LogitsThere
from tools.gpu.op_cases import OpCase

from twostroke.assets import spark_path
from twostroke.backends.cpu import CpuOps, NativePacker
from twostroke.backends.cuda.device import CudaDevice
from twostroke.ops.attention.token_weights import weigh
from twostroke.ops.operands import AttentionBatch, KVLayer, PackedWeight, RopeTable
from twostroke.ops.program.model import Model
from twostroke.ops.quant.formats import format_choice
from twostroke.ops.registry import registry
from twostroke.ops.step_memory import MemorySizes, StepMemory, StepSizes
from twostroke.runner.device.sampler import DeviceSampler
from twostroke.runner.folder import read_folder
from twostroke.runner.place_weights import placed
from twostroke.runner.samplers import HostSampler
from twostroke.types.errors import TwostrokeError
from twostroke.types.plan import Plan, PlannedSequence, Role
from twostroke.types.request import Request
from twostroke.types.sampling.sampling_params import SamplingParams
from twostroke.types.spec.formats import BF16, F32, PAGE_TOKENS, KVKind, WeightFormat, WeightKind
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.load import load_weights

INPUT_BYTES = 1 << 20
CHUNKS = (37, 1, 6, 1, 1)
STEP_SIZES = MemorySizes(8, 128, 64, 64)
TIMED = {
    "f32": F32,
    "bf16": BF16,
    "int8": WeightFormat(WeightKind.INT8, 128),
    "int4": WeightFormat(WeightKind.INT4, 128),
}

DRAWN = (
    SamplingParams(temperature=0.0, logprobs=20),
    SamplingParams(temperature=1.0, logprobs=0),
    SamplingParams(temperature=0.8, top_k=50, top_p=0.95, repetition_penalty=1.2),
    SamplingParams(temperature=2.0, top_p=0.999, min_p=1e-3, frequency_penalty=0.4, logit_bias={3: 2.0}),
)

HasTime = Callable[[], bool]
Row = dict[str, Any]


class Inputs:
    """The integers of a call, stored one after the other in one block of inputs."""

    def __init__(self, device: CudaDevice) -> None:
        self.block, self._used = device.inputs(INPUT_BYTES), 0

    def put(self, array: np.ndarray) -> np.ndarray:
        part = self.block[self._used : self._used + array.nbytes].view(np.int32).reshape(array.shape)
        part[...] = array
        self._used += -(-array.nbytes // 64) * 64
        return part


def there(device: CudaDevice, inputs: Inputs, item: Any) -> Any:
    """Returns an operand on the device. Integers are put into the block of inputs."""
    if isinstance(item, np.ndarray):
        return inputs.put(item) if item.dtype == np.int32 else device.put(item)
    if isinstance(item, PackedWeight):
        parts = {name: getattr(item, name) for name in ("data", "scales", "bias")}
        moved: dict[str, Any] = {name: None if part is None else device.put(part) for name, part in parts.items()}
        return replace(item, **moved)
    if isinstance(item, KVLayer):
        return replace(item, data=device.put(item.data))
    if isinstance(item, RopeTable):
        return RopeTable(device.put(item.cos), device.put(item.sin))
    if isinstance(item, AttentionBatch):
        return AttentionBatch(*(inputs.put(part) for part in (item.row_starts, item.context_tokens, item.page_table)))
    return item


def on_device(device: CudaDevice, case: OpCase) -> np.ndarray:
    """Returns the first operand of the case after the op has run on the device."""
    with device.lent():
        inputs = Inputs(device)
        operands = [there(device, inputs, item) for item in case.operands]
        device.upload(inputs.block, INPUT_BYTES)
        recorder = device.recorder()
        recorder.record(registry()[case.op], tuple(operands))
        device.run(recorder.calls())
        return device.get(operands[0].data if isinstance(operands[0], KVLayer) else operands[0])


def on_cpu(ops: CpuOps, case: OpCase) -> np.ndarray:
    """The result of the case on the CPU."""
    first = case.operands[0]
    own = replace(first, data=first.data.copy()) if isinstance(first, KVLayer) else first.copy()
    getattr(ops, case.op)(own, *case.operands[1:])
    return own.data if isinstance(own, KVLayer) else own


def compared(ours: np.ndarray, theirs: np.ndarray) -> Row:
    """Returns how many bytes differ and, for floats, the largest difference. All NaN count as equal, because their bits
    are not fixed."""
    if ours.dtype == np.float32:
        ours, theirs = (np.where(np.isnan(each), np.float32(np.nan), each) for each in (ours, theirs))
    a, b = (np.ascontiguousarray(each).reshape(-1).view(np.uint8) for each in (ours, theirs))
    found: Row = {"bytes": int(a.size), "different": int((a != b).sum())}
    if found["different"] and ours.dtype == np.float32:
        found["largest_difference"] = float(np.nanmax(np.abs(ours - theirs)))
    return found


def compare_ops(make: Callable[[], CudaDevice], ops: CpuOps, has_time: HasTime, every: int = 1) -> Iterator[Row]:
    """Yields one row for each case, or with `every` > 1 for one of `every` cases. The row of a case for which there was
    no time has a note."""
    device = make()
    have_kernels = (case for case in op_cases() if case.op in device.numbers)
    for case in itertools.islice(have_kernels, 0, None, every):
        name = f"{case.op}: {case.words}"
        if not has_time():
            yield {"case": name, "not_run": "no time left"}
            continue
        try:
            yield {"case": name, **compared(on_device(device, case), on_cpu(ops, case))}
        except TwostrokeError as error:
            yield {"case": name, "failed": str(error)}
            device.close()
            device = make()
    device.close()


def logits(model: Model, forward: Any, memory: StepMemory) -> np.ndarray:
    """Returns the logits of a text that is computed first in chunks, then token by token."""
    ids = [(31 * place + 7) % model.vocab_size for place in range(sum(CHUNKS))]
    pages, rows, start = np.arange(8, dtype=np.int32)[::-1].copy(), [], 0
    for count in CHUNKS:
        positions = np.arange(start, start + count, dtype=np.int32)
        memory.token_ids[:count], memory.positions[:count] = ids[start : start + count], positions
        memory.logit_rows[:count] = np.arange(count)
        memory.batch.row_starts[:2], memory.batch.context_tokens[0] = [0, count], start + count
        for group in memory.page_inputs:
            group.slots[:count] = pages[positions // PAGE_TOKENS] * PAGE_TOKENS + positions % PAGE_TOKENS
            group.batch.page_table[0, : len(pages)] = pages
        rows.append(forward(StepSizes(count, 1, count)).copy())
        start += count
    return np.concatenate(rows)


def compare_spark(make: Callable[[], CudaDevice], ops: CpuOps, has_time: HasTime) -> Iterator[Row]:
    """Compares the logits of the embedded model on the device and on the CPU, one row for each pair of formats."""
    folder = spark_path()
    model, packer = read_folder(folder), NativePacker(ops.level, 1)
    for name in TIMED:
        with Checkpoint.open(folder) as checkpoint:
            weights = load_weights(checkpoint, model, format_choice(name), packer)
        for kv in KVKind:
            case = f"spark logits: {name}, K and V {kv.name.lower()}"
            if not has_time():
                yield {"case": case, "not_run": "no time left"}
                continue
            device = make()
            own = StepMemory(model.program, weights.matrices, weights.vectors, kv, STEP_SIZES)
            moved = placed(weights, device)
            memory = StepMemory(model.program, moved.matrices, moved.vectors, kv, STEP_SIZES, device)
            forward = device.compile(model.program, memory)
            row = compared(logits(model, forward, memory), logits(model, ops.compile(model.program, own), own))
            yield {"case": case, **row}
            device.close()
    packer.close()


def compare_sampling(device: CudaDevice) -> Iterator[Row]:
    """Compares tokens and log probabilities of a vocabulary of 128,000, sampled on the device and on the host."""
    logits = 4 * numbers(len(DRAWN), 128_000)
    sequences = [_drawn_by(index, params) for index, params in enumerate(DRAWN)]
    plan, sizes = Plan(0, tuple(sequences)), StepSizes(len(DRAWN), len(DRAWN), len(DRAWN))
    with device.lent():
        there = DeviceSampler(LogitsThere(device, logits), logits.shape[1], weigh)
        found = there.choose(plan, there.forward(plan, sizes))
    here = HostSampler(lambda _sizes: logits, weigh)  # type: ignore[arg-type]
    expected = here.choose(plan, logits)
    for sequence in sequences:
        name, words = sequence.request.request_id, str(DRAWN[int(sequence.request.request_id)])
        row = {"bytes": 1, "different": int(repr(found.tokens.get(name)) != repr(expected.tokens.get(name)))}
        yield {"case": f"sampling: {words}", **row}


def _drawn_by(index: int, params: SamplingParams) -> PlannedSequence:
    request = Request(str(index), "", (1, 4, 4), params, 9, 10, frozenset({2}), 0.0)
    return PlannedSequence(request, 0, 5, [1, 4, 4, 7, 7], ((0,),), True, Role.PREFILL)
