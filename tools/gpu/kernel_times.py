"""Measures how long each op of a model takes by itself on a device. All calls of one kind run layer after layer, again
and again, between two waits. So launches overlap as in a step, and weights come from memory, because each layer has its
own."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tools.gpu.step_inputs import write_step
from tools.gpu.weights_there import any_weights

from twostroke.backends.cuda.device import CudaDevice
from twostroke.models.common.registry import read_model
from twostroke.ops.attention.token_weights import exponent_scale
from twostroke.ops.device_memory import ALIGNMENT
from twostroke.ops.products.feed_forward import FeedForward
from twostroke.ops.products.linear_add import LinearAdd
from twostroke.ops.products.linear_silu import LinearSilu
from twostroke.ops.program.model import Model
from twostroke.ops.program.op import FormatChoice, Op, OpCost, StoredFormats
from twostroke.ops.program.values import Size, Weight
from twostroke.ops.step_memory import MemorySizes, StepMemory, StepSizes
from twostroke.runner.device.rows import SAMPLE_INPUT, SAMPLE_RESULT
from twostroke.types.errors import OutOfMemory
from twostroke.types.spec.formats import PAGE_TOKENS, KVKind

Row = dict[str, Any]
TARGET_S = 0.004
"""How long the calls between two waits take together, about, in seconds."""
BATCHES, MOST_REPEATS = 3, 200
SAMPLED: dict[str, dict[str, int]] = {
    "greedy": {"top_p": 1 << 53},
    "top-k 50, top-p 0.95": {"drawn": 1, "top_k": 50, "top_p": int(0.95 * 2**53)},
    "top-p 0.95": {"drawn": 1, "top_p": int(0.95 * 2**53)},
}
"""The settings of sampling that are timed: fields of SAMPLE_INPUT by name of the setting."""


@dataclass(frozen=True)
class Table:
    """One model in one pair of formats. layers: the layers of the whole model; the config has fewer, but enough to be
    larger than a cache. rows: the rows of a step; up to `streams` rows belong to as many sequences, more rows are one
    prompt. contexts: the contexts of attention; all other ops use the first one. ops: the ops that are timed; None for
    all."""

    name: str
    config: dict[str, Any]
    layers: int
    formats: FormatChoice
    kv: KVKind
    rows: tuple[int, ...] = (1, 8, 16, 64, 512, 2048)
    contexts: tuple[int, ...] = (512, 4096, 16384)
    streams: int = 64
    pool_tokens: int = 64 * 4096
    ops: tuple[str, ...] | None = None


@dataclass
class Group:
    """Calls of one kind in the order of the layers. copies: the number of calls in the whole model for each call of the
    list."""

    copies: float
    calls: list[Op] = field(default_factory=list)


def groups_of(model: Model, layers: int) -> dict[str, Group]:
    """Returns the program's calls, grouped by their names in the table."""
    found: dict[str, Group] = {}
    for call in model.program.calls:
        for each in _apart(call):
            is_head = each.result is not None and each.result.rows is Size.LOGIT_ROWS
            roles = [item.role for item in each.operands() if isinstance(item, Weight)]
            name = " ".join(("head:" * is_head + each.NAME, *roles))
            found.setdefault(name, Group(0.0)).calls.append(each)
    for group in found.values():
        many = len(group.calls) >= model.num_layers
        group.copies = layers / model.num_layers if many else 1.0
    return found


def _apart(call: Op) -> tuple[Op, ...]:
    if not isinstance(call, FeedForward):
        return (call,)
    return (LinearSilu(call.middle, call.x, call.gate_up), LinearAdd(call.out, call.middle, call.down))


def work_of(call: Op, formats: StoredFormats, sizes: StepSizes, context: int) -> tuple[float, float]:
    """Returns the FLOPs and the bytes of one call. For experts, the bytes are of those that rows with random choices
    would use."""
    cost: OpCost = call.cost(formats)
    is_head = call.result is not None and call.result.rows is Size.LOGIT_ROWS
    rows = sizes.logit_rows if is_head else sizes.tokens
    each = sizes.tokens // sizes.sequences
    pairs = sizes.sequences * sum(range(context - each + 1, context + 1))
    work = cost.once + cost.per_row.times(rows) + cost.per_pair.times(pairs)
    work += cost.per_position.times(sizes.sequences * context) + cost.per_sequence.times(sizes.sequences)
    num_bytes = float(work.total_bytes)
    for item in call.operands() if call.experts_of_a_row else ():
        if isinstance(item, Weight):
            met = 1.0 - (1.0 - call.experts_of_a_row / item.experts) ** rows
            num_bytes += met * formats.weight_bytes(item)
    return float(work.flops), num_bytes


@dataclass
class Timer:
    """Measures the seconds that a device takes for calls."""

    device: CudaDevice
    clock: Callable[[], float]

    def of(self, start: Callable[[], object]) -> float:
        """Returns the seconds of one call of `start`, measured over as many calls as fit into TARGET_S."""
        once = self._batch(start, 1)
        if once > 0.25:
            return once
        repeats = max(1, min(MOST_REPEATS, int(TARGET_S / max(self._batch(start, 1), 1e-9))))
        return statistics.median(self._batch(start, repeats) for _ in range(BATCHES))

    def _batch(self, start: Callable[[], object], repeats: int) -> float:
        self.device.wait()
        before = self.clock()
        for _ in range(repeats):
            start()
        self.device.wait()
        return (self.clock() - before) / repeats

    def until_started(self, start: Callable[[], object]) -> float:
        """Returns the seconds until `start` returns. Its kernels are then in the stream or done."""
        taken = []
        for _ in range(BATCHES):
            self.device.wait()
            before = self.clock()
            start()
            taken.append(self.clock() - before)
        self.device.wait()
        return statistics.median(taken)


def time_kernels(
    make: Callable[[], CudaDevice], tables: tuple[Table, ...], clock: Callable[[], float], has_time: Callable[[], bool]
) -> Iterator[Row]:
    """Yields the rows of all tables: the op, the rows of the step, the context, the seconds of one call, its FLOPs and
    bytes a second."""
    for table in tables:
        if not has_time():
            yield {"case": f"kernels of {table.name}", "not_run": "no time left"}
            continue
        device = make()
        try:
            yield from _Measured(table, device, clock).rows(has_time)
        except OutOfMemory as error:
            yield {"case": f"kernels of {table.name}", "not_run": str(error)}
        finally:
            device.close()


class _Measured:
    """Measures the ops of one table on one device."""

    def __init__(self, table: Table, device: CudaDevice, clock: Callable[[], float]) -> None:
        self.table, self.device, self.timer = table, device, Timer(device, clock)
        self.model = model = read_model(table.config)
        there = any_weights(model, table.formats, device)
        sizes = MemorySizes(
            table.pool_tokens // PAGE_TOKENS, max(*table.contexts, *table.rows), max(table.rows), table.streams
        )
        self.memory = StepMemory(model.program, there.matrices, there.vectors, table.kv, sizes, device)
        self.formats, self.groups = StoredFormats(table.formats, table.kv), groups_of(model, table.layers)

    def rows(self, has_time: Callable[[], bool]) -> Iterator[Row]:
        first = self.table.contexts[0]
        for rows in self.table.rows:
            if not has_time():
                yield {"case": f"kernels of {self.table.name}, {rows} rows", "not_run": "no time left"}
                continue
            sequences = rows if rows <= self.table.streams else 1
            yield from self._step(rows, sequences, max(first, rows // sequences))
            for context in self.table.contexts[1:]:
                if context > rows // sequences and sequences * context <= self.table.pool_tokens:
                    yield from self._attention(rows, sequences, context)

    def _write(self, rows: int, sequences: int, context: int) -> StepSizes:
        sizes = write_step(self.memory, rows, sequences, context)
        self.device.upload(self.memory.inputs, self.memory.used_input_bytes(sizes))
        return sizes

    def _calls(self, calls: list[Op], sizes: StepSizes) -> Callable[[], object]:
        recorder = self.device.recorder()
        for call in calls:
            recorder.record(type(call), self.memory.operands(call, sizes))
        recorded = recorder.calls()
        return lambda: self.device.run(recorded)

    def _step(self, rows: int, sequences: int, context: int) -> Iterator[Row]:
        sizes = self._write(rows, sequences, context)
        whole = self._calls(list(self.model.program.calls), sizes)
        whole()  # so that every op meets rows as a step leaves them
        ops = self.table.ops
        for name, group in self.groups.items():
            if ops is None or name in ops:
                yield self._group(name, group, sizes, context)
        if ops is None:
            told = {"op": "all", "seconds_of_call": self.timer.of(whole)}
            yield self._row(told | {"until_started": self.timer.until_started(whole)}, rows, context)
            if sequences == rows:
                yield from self._sampling(sizes, context)

    def _attention(self, rows: int, sequences: int, context: int) -> Iterator[Row]:
        for name, group in self.groups.items():
            if name.startswith("attention"):
                sizes = self._write(rows, sequences, context)
                row = self._group(name, group, sizes, context)
                yield row | {"op": f"{name}, context {context}", "copies": 0.0}

    def _group(self, name: str, group: Group, sizes: StepSizes, context: int) -> Row:
        seconds = self.timer.of(self._calls(group.calls, sizes)) / len(group.calls)
        flops, num_bytes = work_of(group.calls[0], self.formats, sizes, context)
        told = {"op": name, "seconds_of_call": seconds, "copies": group.copies * len(group.calls)}
        return self._row(
            told | {"flops_per_s": flops / seconds, "bytes_per_s": num_bytes / seconds}, sizes.tokens, context
        )

    def _sampling(self, sizes: StepSizes, context: int) -> Iterator[Row]:
        logits = self.memory.value(self.model.program.logits, sizes)
        told = np.zeros(len(logits), SAMPLE_RESULT)
        with self.device.lent():
            inputs = self.device.inputs(ALIGNMENT)
            for what, values in SAMPLED.items():
                asked = np.zeros(len(logits), SAMPLE_INPUT)
                asked["num_top"], asked["scale"], asked["draw"] = -1, exponent_scale(1.0), 1 << 52
                for name, value in values.items():
                    asked[name] = value
                where = self.device.upload(inputs, 0, asked.view(np.uint8))
                seconds = self.timer.of(lambda w=where: self.device.sample(logits, w, SAMPLE_INPUT.itemsize, told))
                copies = float(what == "greedy")
                found = {"op": f"sample, {what}", "seconds_of_call": seconds, "copies": copies}
                yield self._row(found, sizes.tokens, context)

    def _row(self, told: Row, rows: int, context: int) -> Row:
        return {"table": self.table.name, "rows": rows, "context": context, **told}


def fewer_layers(config: dict[str, Any], layers: int) -> dict[str, Any]:
    """Returns the config with only `layers` layers."""
    return config | {"num_hidden_layers": layers}
