"""Measures what share of this machine's limits each format of weights reaches, for docs/studies/limits.md.

    python -m tools.study_limits [--shape 1b] [--weights int8 int4 Q4_K ...] [--cases streams-1 prompt-512 ...] [--json]

One layer of a shape has random weights, which are taken from a ring larger than caches, and K and V likewise. Its
products, its attention and its other ops are timed separately. All formats and cases run in turn with loops that only
read and loops that only multiply. The quickest round of each and the highest limits count, because other programs can
only slow something down. A prompt is computed in chunks of 512 rows, and the chunk in its middle stands for all.
Experts are those of a layer of a published mixture; one row chooses other experts in each call.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from tools.ab import by_turns

from twostroke.assembly.settings.env import processor_name, read_machine
from twostroke.backends.cpu import CpuOps
from twostroke.backends.cpu.limits import LimitMeter, Limits, highest_limits
from twostroke.backends.cpu.recorded import CallRecorder
from twostroke.lab.bench.cases import Bound, bound, decode, prefill
from twostroke.lab.planner.doctor.layer_step import LayerStep, last_rows, one_row_each
from twostroke.lab.planner.doctor.measure_ops import COLD_BYTES
from twostroke.lab.planner.doctor.stopwatch import Stopwatch
from twostroke.lab.planner.doctor.synthetic import LARGE, LayerShape, layers_in, pages_in, random_memory
from twostroke.ops.operands import AttentionBatch, F32Array, PackedWeight, U8Array
from twostroke.ops.quant.formats import FORMATS
from twostroke.types.spec.formats import PAGE_TOKENS, STORED_GROUP, KVKind, WeightFormat
from twostroke.weights.stored import HELD

SHAPES = {"1b": LARGE, "8b": LayerShape(4096, 14336, 32, 8, 128)}
USUAL = ("int8", "int4", "int6", "bf16", "Q4_K", "Q8_0", "Q6_K", "MXFP4")
CHUNK = 512
"""The most rows of a prompt in one step."""
NEAR_ROWS, NEAR_COLUMNS = 128, 2048
"""The shape of a matrix that stays in a second-level cache. The time of its product is the time of the arithmetic only.
"""
KV_BYTES, MOST_VARIANTS = 192 << 20, 8
MOST_BANK_BYTES = 1 << 30
"""The most bytes of all experts of a layer. Formats in which they need more are left out."""


@dataclass(frozen=True, slots=True)
class ExpertShape:
    """The experts of one layer."""

    hidden: int
    inner: int
    count: int
    chosen: int

    def bytes_read(self, chosen: WeightFormat) -> int:
        """Returns the bytes of weights that one row reads."""
        return self.chosen * sum(chosen.total_bytes(*sizes) for sizes in self.sizes)

    @property
    def sizes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The rows and columns of two matrices: gate and up joined in one, and down."""
        return (2 * self.inner, self.hidden), (self.hidden, self.inner)


EXPERTS = {"Qwen3-30B-A3B": ExpertShape(2048, 768, 128, 8), "gpt-oss-20b": ExpertShape(2880, 2880, 32, 4)}

Way = Callable[[int], float]


@dataclass(frozen=True, slots=True)
class Case:
    """The rows of one step. tokens: the tokens of the prompt; 0 for streams, which have one row each. context: the
    context of the last row."""

    name: str
    rows: int
    context: int
    tokens: int = 0

    def bound(self, spec_of: LayerShape, chosen: WeightFormat, kv: KVKind, limits: Limits) -> Bound:
        """Returns the rate of one layer that the limits allow. Raises ValueError when no limit is known."""
        asked = prefill(self.tokens) if self.tokens else decode(self.rows, self.context, 0)
        found = bound(asked, spec_of.model, chosen, kv, limits)
        if found is None:
            raise ValueError(f"no limit is known for {self.name}")
        return found

    def batch(self, variant: int, pages: int) -> AttentionBatch:
        """Returns the batch of the rows. A variant uses pages that no other variant uses. pages: the number of pages
        that exist."""
        sequences = 1 if self.tokens else self.rows
        each = -(-self.context // PAGE_TOKENS)
        table = (np.arange(sequences * each) + variant * sequences * each).astype(np.int32) % pages
        table = np.ascontiguousarray(table.reshape(sequences, each), np.int32)
        if not self.tokens:
            return one_row_each(self.context, table)
        whole = last_rows(self.rows, self.context)
        return AttentionBatch(whole.row_starts, whole.context_tokens, table)

    def variants(self, pages: int) -> int:
        """Returns the number of batches that can have pages of their own."""
        sequences = 1 if self.tokens else self.rows
        return max(1, min(MOST_VARIANTS, pages // (sequences * -(-self.context // PAGE_TOKENS))))


def streams(count: int, context: int = 512) -> Case:
    """Returns the case of `count` streams, each at the same context."""
    name = f"streams-{count}" if context == CHUNK else f"streams-{count}-at-{context}"
    return Case(name, count, context)


def prompt(tokens: int) -> Case:
    """Returns the case of one prompt, represented by the chunk in its middle."""
    return Case(f"prompt-{tokens}", min(CHUNK, tokens), (tokens + min(CHUNK, tokens)) // 2, tokens)


CASES = {
    case.name: case
    for case in (
        *(streams(count) for count in (1, 8, 16)),
        *(streams(1, context) for context in (8192, 16384)),
        *(prompt(tokens) for tokens in (512, 2048, 8192, 16384)),
    )
}


@dataclass(frozen=True, slots=True)
class Share:
    """The result of one format and case. Seconds are those of one layer and one step, or one chunk of a prompt.
    limit_s: the seconds at the lower limit, which counts the bytes of K and V for streams, and only the products for
    prompts."""

    weights: str
    kv: str
    case: str
    products_s: float
    attention_s: float
    others_s: float
    limit_s: float
    limit: str

    @property
    def seconds(self) -> float:
        """The seconds of all parts together."""
        return self.products_s + self.attention_s + self.others_s

    @property
    def share(self) -> float:
        """The share of the limit that was reached."""
        return self.limit_s / self.seconds


@dataclass(frozen=True, slots=True)
class Study:
    """near_ops_per_s: for each format, operations a second of 512 rows with a matrix that stays in a cache. experts_s:
    for each mixture and format, seconds of one row with its experts. experts_share: the share of the reading
    limit that the experts reach."""

    machine: str
    shape: str
    limits: Limits
    shares: tuple[Share, ...]
    near_ops_per_s: dict[str, float]
    experts_s: dict[str, dict[str, float]]
    experts_share: dict[str, dict[str, float]]


def format_called(name: str) -> WeightFormat:
    """Returns one of this engine's formats, or a type of GGUF files. Raises ValueError for other names."""
    if name in FORMATS:
        return FORMATS[name]
    for kind, names in HELD:
        if name in names:
            return WeightFormat(kind, STORED_GROUP)
    known = sorted({*FORMATS, *(each for _, names in HELD for each in names)})
    raise ValueError(f"no format is called {name!r}; there are {', '.join(known)}")


def known_format(name: str) -> str:
    """Returns the name of a format. Raises ArgumentTypeError for other names."""
    try:
        format_called(name)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return name


def kv_of(chosen: WeightFormat) -> KVKind:
    """Returns the usual format of K and V for weights of this format."""
    return KVKind.BF16 if chosen.kind.is_float else KVKind.INT8


class Bench:
    """Makes the ways that take turns. Each way runs native calls, and returns the seconds of the quickest of several.
    """

    def __init__(self, shape: LayerShape, formats: Sequence[WeightFormat], threads: int, watch: Stopwatch) -> None:
        self._shape, self._watch, self._numbers = shape, watch, np.random.default_rng(1)
        largest = max(sum(each.total_bytes(*sizes) for sizes in shape.matrices.values()) for each in formats)
        banks = [bank_bytes(mixture, each) for each in formats for mixture in mixtures_in(each).values()]
        self._weights = random_memory(max(COLD_BYTES + largest, *banks))
        self._pages = random_memory(KV_BYTES)
        self._ops = CpuOps(None, threads)

    def close(self) -> None:
        """Ends the threads."""
        self._ops.close()

    def products(self, chosen: WeightFormat, rows: int) -> Way:
        """Returns the way that times the four products of a layer."""
        ring = layers_in(self._weights, self._shape, chosen, self._weights.nbytes)
        step = LayerStep(self._normal, rows, self._shape, pages_in(self._pages, KVKind.BF16, self._shape))
        return self._way([partial(step.products, layer=layer) for layer in ring])

    def attention(self, kv: KVKind, case: Case) -> Way:
        """Returns the way that times the attention of one layer, over other pages in each call."""
        pages = pages_in(self._pages, kv, self._shape)
        steps = [
            LayerStep(self._normal, case.rows, self._shape, pages, case.batch(variant, pages.num_pages))
            for variant in range(case.variants(pages.num_pages))
        ]
        return self._way([step.attention for step in steps])

    def others(self, kv: KVKind, rows: int) -> Way:
        """Returns the way that times norms, positions and writing K and V."""
        return self._way([LayerStep(self._normal, rows, self._shape, pages_in(self._pages, kv, self._shape)).others])

    def near(self, chosen: WeightFormat) -> Way:
        """Returns the way that times the product of 512 rows with a matrix that stays in a cache."""
        data = self._weights[: chosen.data_bytes(NEAR_ROWS, NEAR_COLUMNS)]
        num_scales = chosen.scale_bytes(NEAR_ROWS, NEAR_COLUMNS)
        scales = self._weights[data.nbytes : data.nbytes + num_scales].view(np.uint16) if num_scales else None
        weight = PackedWeight(chosen, NEAR_ROWS, NEAR_COLUMNS, data, scales)
        x, out = self._normal(CHUNK, NEAR_COLUMNS), np.empty((CHUNK, NEAR_ROWS), np.float32)
        return self._way([lambda ops: ops.linear(out, x, weight)])

    def experts(self, chosen: WeightFormat, mixture: ExpertShape) -> Way:
        """Returns the way that times one row with the experts that it chooses, which are others in each call."""
        gate_up, down = banks_in(self._weights, mixture, chosen)
        x, out, room = (self._normal(1, mixture.hidden) for _ in range(3))
        middle, pairs = self._normal(1, mixture.inner), np.empty((1, 2), np.float32)
        turns = mixture.count // mixture.chosen
        order = self._numbers.permutation(mixture.count)[: turns * mixture.chosen].reshape(turns, mixture.chosen)
        records = []
        for numbers in order:
            routes = np.concatenate([np.full(mixture.chosen, 1 / mixture.chosen), np.sort(numbers)])
            routes = np.ascontiguousarray(routes[None, :], np.float32)
            records.append(partial(_record_experts, operands=(out, x, routes, gate_up, down, room, middle, pairs)))
        return self._way(records)

    def _way(self, records: Sequence[Callable[[CallRecorder], None]]) -> Way:
        calls = []
        for record in records:
            recorder = self._ops.recorder()
            record(recorder)
            calls.append(partial(self._ops.run, recorder.calls()))
        place = 0

        def once(_: int) -> float:
            nonlocal place
            taken, place = self._watch.times(calls, place)
            return min(taken)

        return once

    def _normal(self, *shape: int) -> F32Array:
        return self._numbers.standard_normal(shape, dtype=np.float32)


def bank_bytes(mixture: ExpertShape, chosen: WeightFormat) -> int:
    """Returns the bytes of all experts of a layer, with room for alignment."""
    return mixture.count * sum(chosen.total_bytes(*sizes) for sizes in mixture.sizes) + 4 * 64


def mixtures_in(chosen: WeightFormat) -> dict[str, ExpertShape]:
    """Returns the mixtures whose experts of a layer are not too large in the format."""
    return {title: each for title, each in EXPERTS.items() if bank_bytes(each, chosen) <= MOST_BANK_BYTES}


def banks_in(memory: U8Array, mixture: ExpertShape, chosen: WeightFormat) -> list[PackedWeight]:
    """Returns both banks of a layer. Their data is taken from the beginning of a block of memory."""
    found, at = [], 0
    for rows, columns in mixture.sizes:
        data_bytes, scale_bytes = (
            mixture.count * each(rows, columns) for each in (chosen.data_bytes, chosen.scale_bytes)
        )
        data = memory[at : at + data_bytes]
        at += -(-data_bytes // 64) * 64
        scales = memory[at : at + scale_bytes].view(np.uint16) if scale_bytes else None
        at += -(-scale_bytes // 64) * 64
        found.append(PackedWeight(chosen, rows, columns, data, scales, None, mixture.count))
    return found


def _record_experts(ops: CallRecorder, operands: tuple[Any, ...]) -> None:
    ops.experts(*operands)


def study(
    shape: str, weights: Sequence[str], cases: Sequence[Case], threads: int, rounds: int, watch: Stopwatch
) -> Study:
    """Measure all formats and cases of a shape in turn."""
    formats = {name: format_called(name) for name in weights}
    layer = SHAPES[shape]
    meter = LimitMeter(threads, watch.clock)
    found_limits: list[Limits] = []

    def limits(_: int) -> float:
        found_limits.append(meter.measure(1))
        return 0.0

    with closing(meter), closing(Bench(layer, list(formats.values()), threads, watch)) as bench:
        ways: dict[tuple[object, ...], Way] = {("limits",): limits}
        for name, chosen in formats.items():
            ways["near", name] = bench.near(chosen)
            for title, mixture in mixtures_in(chosen).items():
                ways["experts", title, name] = bench.experts(chosen, mixture)
            for case in cases:
                ways.setdefault(("products", name, case.rows), bench.products(chosen, case.rows))
                ways.setdefault(("attention", kv_of(chosen), case), bench.attention(kv_of(chosen), case))
                ways.setdefault(("others", kv_of(chosen), case.rows), bench.others(kv_of(chosen), case.rows))
        least = {key: min(times) for key, times in by_turns(ways, rounds).items()}
    highest = highest_limits(found_limits)
    shares = []
    for name, chosen in formats.items():
        kv = kv_of(chosen)
        for case in cases:
            products_s, others_s = least["products", name, case.rows], least["others", kv, case.rows]
            limit = case.bound(layer, chosen, kv, highest)
            at_limit = case.rows / limit.tokens_per_s, limit.words
            attention_s = least["attention", kv, case]
            shares.append(Share(name, kv.name.lower(), case.name, products_s, attention_s, others_s, *at_limit))
    near_ops = 2 * CHUNK * NEAR_ROWS * NEAR_COLUMNS
    near = {name: near_ops / least["near", name] for name in formats}
    experts = {
        title: {name: least["experts", title, name] for name in formats if title in mixtures_in(formats[name])}
        for title in EXPERTS
    }
    of_limit = {
        title: {
            name: EXPERTS[title].bytes_read(formats[name]) / highest.read_bytes_per_s / taken_s
            for name, taken_s in found.items()
        }
        for title, found in experts.items()
    }
    return Study(processor_name() or "unknown", shape, highest, tuple(shares), near, experts, of_limit)


def table(found: Study) -> str:
    """Returns the results as Markdown."""
    lines = [
        f"{found.machine}, a layer of the {found.shape} shape. {found.limits.words()}.",
        "",
        "| weights | K and V | case | a layer takes | share | of | products | attention | others |",
        "| --- | --- | --- | ---: | ---: | --- | ---: | ---: | ---: |",
    ]
    for each in found.shares:
        parts = [part / each.seconds for part in (each.products_s, each.attention_s, each.others_s)]
        cells = [each.weights, each.kv, each.case, f"{1e3 * each.seconds:,.3f} ms", f"{each.share:.0%}", each.limit]
        lines.append(f"| {' | '.join([*cells, *(f'{part:.0%}' for part in parts)])} |")
    lines += ["", "| 512 rows by a matrix in a cache | GOP/s | of the int8 rate |", "| --- | ---: | ---: |"]
    for name, rate in found.near_ops_per_s.items():
        lines.append(f"| {name} | {rate / 1e9:,.0f} | {rate / found.limits.int8_ops_per_s:.0%} |")
    lines += ["", "| one row of experts | weights | takes | of the reading limit |", "| --- | --- | ---: | ---: |"]
    for title, taken in found.experts_s.items():
        for name, seconds in taken.items():
            share = found.experts_share[title][name]
            lines.append(f"| {title} | {name} | {1e3 * seconds:,.3f} ms | {share:.0%} |")
    return "\n".join(lines)


def as_json(found: Study) -> str:
    """Returns the results as JSON, with each share."""
    shares = [asdict(each) | {"seconds": each.seconds, "share": each.share} for each in found.shares]
    return json.dumps(asdict(found) | {"shares": shares}, indent=1)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="1b")
    parser.add_argument("--weights", nargs="+", type=known_format, default=list(USUAL))
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--threads", type=int, default=read_machine().cores)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    cases = [CASES[name] for name in asked.cases]
    found = study(asked.shape, asked.weights, cases, asked.threads, asked.rounds, Stopwatch(time.perf_counter))
    print(as_json(found) if asked.json else table(found))


if __name__ == "__main__":
    main()
