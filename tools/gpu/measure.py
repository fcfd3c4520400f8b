"""What a machine with an NVIDIA GPU is asked: are the bits those of the CPU, and how long do things take?

Nothing is built there.

    python -m tools.gpu.measure [--out FOLDER] [--device N] [--seconds 300]

It needs numpy and the files that both build.py make (src/twostroke/backends/*/lib), made beforehand on any machine. It
writes measure.json and measure.md. In order:

1. opening: the driver's context, and PTX compiled by the driver (a second time from its cache);
2. every case of tools/gpu/cases.py, byte for byte against the CPU's level with fused multiply-add;
3. the logits of spark in all pairs of formats, the same way: prompts in chunks, then decode steps;
4. weights for sampling, against the same function in NumPy;
5. time of a launch, of a product with one row (bytes a second), of a decode step of spark.

What differs is listed, with how many bytes; a time is the median of its rounds. Ends with exit code 1 where a byte
differs.

Knows: both backends, cases, a clock.
Must not know: servers, other engines.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tools.gpu.cases import OpCase, numbers, op_cases

from twostroke.assets import spark_path
from twostroke.backends.cpu import CpuOps, NativePacker, available_levels
from twostroke.backends.cuda.device import CudaDevice
from twostroke.ops.operands import AttentionBatch, KVLayer, PackedWeight, RopeTable
from twostroke.ops.registry import registry
from twostroke.ops.step_memory import MemorySizes, StepMemory, StepSizes
from twostroke.ops.token_weights import weigh
from twostroke.program.model import Model
from twostroke.quant.formats import format_choice
from twostroke.runner.folder import read_folder
from twostroke.runner.place_weights import placed
from twostroke.spec.formats import BF16, F32, PAGE_TOKENS, KVKind, WeightFormat, WeightKind
from twostroke.types.errors import TwostrokeError
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.load import load_weights

SAME_BITS = ("neon", "avx2")
INPUT_BYTES = 1 << 20
CHUNKS = (37, 1, 6, 1, 1)
STEP_SIZES = MemorySizes(8, 128, 64, 64)
ROUNDS = 20
PRODUCTS = {"8B o": (4096, 4096), "8B gate_up": (28672, 4096), "8B down": (4096, 14336)}
TIMED = {
    "f32": F32,
    "bf16": BF16,
    "int8": WeightFormat(WeightKind.INT8, 128),
    "int4": WeightFormat(WeightKind.INT4, 128),
}

Clock = Callable[[], float]
Row = dict[str, Any]


class _Inputs:
    """Integers of a call, one after the other in the one block that a device has."""

    def __init__(self, device: CudaDevice) -> None:
        self._block, self._used = device.inputs(INPUT_BYTES), 0

    def put(self, array: np.ndarray) -> np.ndarray:
        part = self._block[self._used : self._used + array.nbytes].view(np.int32).reshape(array.shape)
        part[...] = array
        self._used += -(-array.nbytes // 64) * 64
        return part


def there(device: CudaDevice, inputs: _Inputs, item: Any) -> Any:
    """An operand on the device; integers stay in the inputs' block."""
    if isinstance(item, np.ndarray):
        return inputs.put(item) if item.dtype == np.int32 else device.put(item)
    if isinstance(item, PackedWeight):
        parts = {name: getattr(item, name) for name in ("data", "scales", "bias")}
        return replace(item, **{name: None if part is None else device.put(part) for name, part in parts.items()})
    if isinstance(item, KVLayer):
        return replace(item, data=device.put(item.data))
    if isinstance(item, RopeTable):
        return RopeTable(device.put(item.cos), device.put(item.sin))
    if isinstance(item, AttentionBatch):
        return AttentionBatch(*(inputs.put(part) for part in (item.row_starts, item.context_tokens, item.page_table)))
    return item


def on_device(device: CudaDevice, case: OpCase) -> np.ndarray:
    """The case's first operand after the op ran on the device."""
    with device.lent():
        inputs = _Inputs(device)
        operands = [there(device, inputs, item) for item in case.operands]
        device.upload(INPUT_BYTES)
        recorder = device.recorder()
        recorder.record(registry()[case.op], tuple(operands))
        device.run(recorder.calls())
        return device.get(operands[0].data if isinstance(operands[0], KVLayer) else operands[0])


def on_cpu(ops: CpuOps, case: OpCase) -> np.ndarray:
    """The same on the CPU."""
    first = case.operands[0]
    own = replace(first, data=first.data.copy()) if isinstance(first, KVLayer) else first.copy()
    getattr(ops, case.op)(own, *case.operands[1:])
    return own.data if isinstance(own, KVLayer) else own


def compared(ours: np.ndarray, theirs: np.ndarray) -> Row:
    """How many bytes differ; and of floats, by how much at most."""
    a, b = (np.ascontiguousarray(each).reshape(-1).view(np.uint8) for each in (ours, theirs))
    found: Row = {"bytes": int(a.size), "different": int((a != b).sum())}
    if found["different"] and ours.dtype == np.float32:
        found["largest_difference"] = float(np.nanmax(np.abs(ours - theirs)))
    return found


def compare_ops(make: Callable[[], CudaDevice], ops: CpuOps, until_s: float, clock: Clock) -> Iterator[Row]:
    """One row for each case; those that time did not allow say so."""
    device = make()
    for case in op_cases():
        name = f"{case.op}: {case.words}"
        if clock() > until_s:
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
    """Of a text in chunks, then token by token."""
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


def compare_spark(make: Callable[[], CudaDevice], ops: CpuOps, until_s: float, clock: Clock) -> Iterator[Row]:
    """Logits of the embedded model on both, and the seconds of a decode step on the device."""
    folder = spark_path()
    model, packer = read_folder(folder), NativePacker(ops.level, 1)
    for name in TIMED:
        with Checkpoint.open(folder) as checkpoint:
            weights = load_weights(checkpoint, model, format_choice(name), packer)
        for kv in KVKind:
            case = f"spark logits: {name}, K and V {kv.name.lower()}"
            if clock() > until_s:
                yield {"case": case, "not_run": "no time left"}
                continue
            device = make()
            own = StepMemory(model.program, weights.matrices, weights.vectors, kv, STEP_SIZES)
            moved = placed(weights, device)
            memory = StepMemory(model.program, moved.matrices, moved.vectors, kv, STEP_SIZES, device)
            forward = device.compile(model.program, memory)
            row = compared(logits(model, forward, memory), logits(model, ops.compile(model.program, own), own))
            step_s = timed(lambda forward=forward: forward(StepSizes(1, 1, 1)), clock)
            yield {"case": case, **row, "decode_step_s": step_s}
            device.close()
    packer.close()


def compare_weights(device: CudaDevice) -> Iterator[Row]:
    """Of a vocabulary of 128 k."""
    rows = 4 * numbers(3, 128_000)
    moved = device.put(rows)
    for temperature in (1.0, 0.2):
        expected = np.stack([weigh(row, temperature) for row in rows])
        found = compared(device.get(device.weigh(moved, temperature)), expected)
        yield {"case": f"weights for sampling, temperature {temperature:g}", **found}


def timed(call: Callable[[], object], clock: Clock, rounds: int = ROUNDS) -> float:
    """Median seconds of one call, which waits for the device."""
    call()
    taken = []
    for _ in range(rounds):
        before = clock()
        call()
        taken.append(clock() - before)
    return statistics.median(taken)


def timings(device: CudaDevice, clock: Clock, sizes: dict[str, tuple[int, int]], launches: int = 200) -> Iterator[Row]:
    """A launch among many; a product with one row, and the bytes of weights that it reads a second."""
    x = device.put(np.ones((1, 64), np.float32))
    recorder = device.recorder()
    for _ in range(launches):
        recorder.record(registry()["scale"], (x, 1.0))
    calls = recorder.calls()
    yield {
        "what": "one launch among many",
        "seconds": timed(lambda: (device.run(calls), device.wait()), clock) / launches,
    }
    for name, weight_format in TIMED.items():
        for size, (rows, columns) in sizes.items():
            with device.lent():
                weight = any_weight(rows, columns, weight_format)
                inputs, row = _Inputs(device), (np.zeros((1, rows), np.float32), numbers(1, columns))
                recorder = device.recorder()
                recorder.record(registry()["linear"], tuple(there(device, inputs, each) for each in (*row, weight)))
                product = recorder.calls()
                seconds = timed(lambda product=product: (device.run(product), device.wait()), clock)
            rate = weight.total_bytes / seconds
            yield {"what": f"{size}, {name}, one row", "seconds": seconds, "bytes_per_s": rate}


def any_weight(rows: int, columns: int, weight_format: WeightFormat) -> PackedWeight:
    """Of bytes that mean nothing: packing gigabytes would take longer than everything else here."""
    data = np.random.default_rng(1).integers(0, 256, weight_format.data_bytes(rows, columns), np.uint8)
    scales = np.full(weight_format.scale_bytes(rows, columns) // 2, 0x3C00, np.uint16)
    return PackedWeight(weight_format, rows, columns, data, scales if scales.size else None)


def report(found: Row) -> str:
    """As Markdown."""
    compared_rows = [row for row in found["cases"] if "different" in row]
    wrong = [row for row in compared_rows if row["different"]]
    failed, left = ([row for row in found["cases"] if key in row] for key in ("failed", "not_run"))
    device = found["device"]
    lines = [
        f"# {device['name']}\n",
        f"Compute capability {device['capability'][0]}.{device['capability'][1]}, driver {device['driver_version']}, "
        f"{device['total_bytes'] / 1e9:.1f} GB. Compared with the CPU's level {found['cpu_level']}.\n",
        f"{len(compared_rows)} cases compared, {len(wrong)} differ, {len(failed)} failed, {len(left)} not run.\n",
        *(f"- differs: {row['case']}: {row['different']} of {row['bytes']} bytes" for row in wrong),
        *(f"- failed: {row['case']}: {row['failed']}" for row in failed),
        *(f"- not run: {row['case']}" for row in left),
        "\n| what | time | rate |\n| --- | --- | --- |",
    ]
    for row in found["times"]:
        rate = f"{row['bytes_per_s'] / 1e9:,.1f} GB/s" if "bytes_per_s" in row else ""
        lines.append(f"| {row['what']} | {1e6 * row['seconds']:,.1f} us | {rate} |")
    return "\n".join(lines) + "\n"


def measure(make: Callable[[], CudaDevice], clock: Clock, seconds: float, sizes: dict[str, tuple[int, int]]) -> Row:
    """All of it. make: opens the device anew."""
    started = clock()
    level = next(level for level in SAME_BITS if level in available_levels())
    device, opened = make(), clock()
    device.close()
    device, again = make(), clock()
    facts = device.facts
    ops = CpuOps(level, 4)
    times: list[Row] = [
        {"what": "open a device, first time", "seconds": opened - started},
        {"what": "open a device, second time", "seconds": again - opened},
    ]
    cases = list(compare_weights(device))
    times += timings(device, clock, sizes)
    device.close()
    cases += compare_ops(make, ops, started + 0.5 * seconds, clock)
    cases += compare_spark(make, ops, started + seconds, clock)
    times += [
        {"what": row["case"].replace("logits", "decode step"), "seconds": row["decode_step_s"]}
        for row in cases
        if "decode_step_s" in row
    ]
    ops.close()
    names = ("name", "capability", "multiprocessors", "driver_version", "free_bytes", "total_bytes")
    return {
        "device": {name: getattr(facts, name) for name in names},
        "cpu_level": level,
        "seconds": clock() - started,
        "cases": cases,
        "times": times,
    }


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description="Compare and time a CUDA device.")
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=300.0, help="after which no further case is begun")
    asked = parser.parse_args()
    try:
        found = measure(lambda: CudaDevice(asked.device), time.perf_counter, asked.seconds, PRODUCTS)
    except TwostrokeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / "measure.json").write_text(json.dumps(found, indent=1) + "\n")
    (asked.out / "measure.md").write_text(report(found))
    print(report(found))
    return int(any(row.get("different") or "failed" in row for row in found["cases"]))


if __name__ == "__main__":
    sys.exit(main())
