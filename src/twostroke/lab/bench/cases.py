"""The workloads (cases) that engines are compared on, and for each the rate that the machine could reach at most."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from twostroke.backends.cpu.limits import Limits
from twostroke.cost.step_work import WorkCounter
from twostroke.cost.work import Work
from twostroke.ops.program.model import Model
from twostroke.ops.program.op import StoredFormats
from twostroke.ops.program.work_table import work_table
from twostroke.ops.quant.formats import STORED, WEIGHT_NAMES, format_choice
from twostroke.types.spec.formats import KVKind, WeightFormat, WeightKind

SHORT_PROMPT = 128
"""The most tokens of a prompt whose prefill counts as short. Its case is measured five times, because one prefill takes
only some tenths of a second."""


@dataclass(frozen=True, slots=True)
class Case:
    """One workload that an engine's driver runs by one command. higher: True where more is better (tokens a second),
    False for seconds and bytes. times: how often the case is measured before another engine is; the median counts.
    Cases that take less time than the fluctuations of the machine's speed are measured several times. busy: the number
    of programs that each keep a core busy during the case."""

    name: str
    command: str
    arguments: dict[str, int]
    unit: str = "tok/s"
    higher: bool = True
    times: int = 1
    busy: int = 0


def prefill(tokens: int) -> Case:
    """Returns the case that measures the prefill of one prompt of `tokens` tokens."""
    return Case(f"prefill {tokens}", "prefill", {"tokens": tokens}, times=5 if tokens <= SHORT_PROMPT else 1)


def decode(batch: int, context: int, new_tokens: int = 64) -> Case:
    """Returns the case that measures the decoding of `batch` streams, which all begin at this context."""
    name = f"decode {batch} x {context}"
    return Case(name, "decode", {"batch": batch, "context": context, "new_tokens": new_tokens})


def beside_busy(case: Case, programs: int = 1) -> Case:
    """Returns the case for a machine whose cores other programs use as well. Its figures are compared with the limit of
    a machine without such programs."""
    beside = "a busy program" if programs == 1 else f"{programs} busy programs"
    return replace(case, name=f"{case.name} beside {beside}", busy=programs)


def gap(context: int, new_tokens: int = 32) -> Case:
    """Returns the case that measures the gaps between the tokens of one stream. Its figure is the gap that 95% of them
    do not exceed."""
    arguments = {"context": context, "new_tokens": new_tokens}
    return Case(f"p95 of gaps 1 x {context}", "gap", arguments, "s", higher=False)


BESIDE_BUSY = beside_busy(decode(1, 512, new_tokens=32))
"""The case of decoding next to a busy program. It has fewer tokens than other cases: an engine whose threads wait for
each other takes seconds for one token."""
GAP_BESIDE_BUSY = beside_busy(gap(512))
CACHED = Case("cached prompt 512", "cached", {"tokens": 512}, "s", higher=False)
START = Case("start to first token", "start", {}, "s", higher=False)
COLD_START = Case("the same, files not in memory", "start", {}, "s", higher=False)
MEMORY = Case("peak memory", "memory", {}, "bytes", higher=False)
ERROR = Case("error beside float32", "logprobs", {}, "nats", higher=False)
KL = Case("KL beside float32", "logprobs", {}, "nats", higher=False)
SAME = Case("same best token as float32", "logprobs", {}, "share")
BITS = Case("bits of all weights", "weight_bytes", {}, "bits", higher=False)
FIDELITY = (ERROR, KL, SAME, BITS)
"""The figures that are measured of a published checkpoint in addition to its speed; fidelity.py defines each."""
STANDARD: tuple[Case, ...] = (
    *(prefill(tokens) for tokens in (128, 512, 2048)),
    *(decode(batch, 512) for batch in (1, 4, 8, 16, 32)),
    decode(1, 4096),
    BESIDE_BUSY,
    GAP_BESIDE_BUSY,
    CACHED,
)
NARROW: tuple[Case, ...] = (decode(16, 512), decode(32, 512), decode(1, 4096))
"""Cases in which K and V are a large part of the bytes read. This engine is measured once more in these cases with K
and V in int8."""
QUICK: tuple[Case, ...] = (
    prefill(128),
    prefill(512),
    decode(1, 512),
    decode(8, 512),
    decode(16, 512),
    BESIDE_BUSY,
    GAP_BESIDE_BUSY,
    CACHED,
)


def with_kv(case: Case, kv: KVKind) -> Case:
    """Returns the case with the format of K and V in its name. This engine keeps K and V in this format; other engines
    keep their own."""
    return replace(case, name=f"{case.name}, K and V {kv.name.lower()}")


def is_file(weights: str) -> bool:
    """Returns whether `weights` names a type of GGUF files. Then all engines read the same file."""
    return weights not in WEIGHT_NAMES


@dataclass(frozen=True, slots=True)
class Bound:
    """The roofline of a case: the rate, in tokens a second, that the machine could reach at most. words: names what
    limits it."""

    tokens_per_s: float
    words: str


def bound(case: Case, spec: Model, chosen: WeightFormat | None, kv: KVKind, limits: Limits) -> Bound | None:
    """Returns the roofline of a case, for these formats of weights and of K and V; None for a case that is neither
    prefill nor decode.

    chosen: the format of the weights; None for weights in the formats of a file.
    """
    stored = format_choice(STORED)
    counter = WorkCounter(work_table(spec, StoredFormats(stored if chosen is None else lambda weight: chosen, kv)))
    rate, words = limits.f32_flops_per_s, f"float32 products, {limits.f32_flops_per_s / 1e9:,.0f} GFLOP/s"
    if chosen is None or chosen.kind.arithmetic in (WeightKind.INT8, WeightKind.INT4):
        rate, words = limits.int8_ops_per_s, f"int8 products, {limits.int8_ops_per_s / 1e9:,.0f} GOP/s"
    if case.command == "prefill":
        tokens = case.arguments["tokens"]
        return Bound(tokens * rate / _products(counter, tokens, 1).flops, words)
    if case.command != "decode":
        return None
    batch, middle = case.arguments["batch"], case.arguments["context"] + case.arguments["new_tokens"] // 2
    products = _products(counter, batch, batch)
    kv_bytes = counter.attention(next(counter.decode_counts([middle] * batch, 1))).kv_bytes
    has_states, has_experts = counter.table.sequence.kv_bytes > 0, bool(counter.table.banks)
    what = ("weights, chosen experts" if has_experts else "weights") + " and K and V" + " and states" * has_states
    memory_s = (products.weight_bytes + kv_bytes) / limits.read_bytes_per_s
    products_s = products.flops / rate
    if products_s > memory_s:
        return Bound(batch / products_s, words)
    return Bound(batch / memory_s, f"reading {what}, {limits.read_bytes_per_s / 1e9:.1f} GB/s")


def _products(counter: WorkCounter, rows: int, logit_rows: int) -> Work:
    """Returns the work of a step's matrix products (layers and head). Only the experts that `rows` rows choose on
    average are counted."""
    return counter.weights(rows) + counter.head(logit_rows)


def shown(value: float, unit: str) -> str:
    """Returns a figure with its unit as a short text."""
    if unit == "share":
        return f"{value:.1%}"
    if unit == "bits":
        return f"{value:.2f}"
    if unit == "nats":
        return f"{value:.4f}"
    if unit == "bytes":
        return f"{value / 1e9:.2f} GB"
    if unit == "s":
        return f"{1e3 * value:,.1f} ms" if value < 1 else f"{value:.2f} s"
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def as_json(case: Case) -> dict[str, Any]:
    """Returns the case as plain values."""
    return {
        "name": case.name,
        "command": case.command,
        "arguments": case.arguments,
        "unit": case.unit,
        "busy": case.busy,
    }
