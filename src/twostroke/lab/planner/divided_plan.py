"""The plan of a model that several processes hold together: the memory of each, the sequences that fit, the time of
steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from msgspec import structs

from twostroke.cost.memory import KEPT_FREE_SHARE, MemoryNeeds
from twostroke.cost.pipeline import RoundCost, StageTimes
from twostroke.cost.shape import Segment, StepCost, StepPrediction
from twostroke.lab.planner.ask import Ask
from twostroke.lab.planner.closed_loop import Load, closed_loop, decoding
from twostroke.lab.planner.images import PlannedImage
from twostroke.lab.planner.target import Target
from twostroke.models.common.divided import ParallelPlan, cost_of, stage_costs
from twostroke.models.common.needs import EngineSizes, memory_needs
from twostroke.ops.passes.division import MOST_RANKS, PIPELINE, TENSOR, Division
from twostroke.ops.program.model import Model
from twostroke.ops.quant.formats import format_choice
from twostroke.types.errors import ConfigError, OutOfMemory

MOST_LISTED = 8
"""The most ranks whose memory is computed for each. With more ranks only the leader's is computed, which needs as much
as any."""
MOST_TRIED = 6
"""For ranks and for stages, at most this many numbers of processes are tried. The first is the smallest whose memory
holds the weights."""


@dataclass(frozen=True, slots=True)
class PartPlan:
    """The memory of one rank's or stage's part, in bytes. kv_bytes_per_token: the bytes in layers that keep every
    position.

    sequence_bytes: K, V and states of one sequence as long as the context. meetings: how often processes wait for one
    another in a step. row_bytes, logit_row_bytes: the bytes sent for each row, and for each row that needs logits.
    decode_sent_bytes, prefill_sent_bytes: the bytes sent in a decode step and in a prefill step of the plan.
    encoder_bytes: the image encoder and the rows that it keeps; 0 where the part has none.
    """

    name: str
    weight_bytes: int
    kv_bytes_per_token: int
    window_bytes_per_sequence: int
    state_bytes: int
    sequence_bytes: int
    activation_bytes: int
    table_bytes: int
    process_bytes: int
    meetings: int
    row_bytes: int
    logit_row_bytes: int
    decode_sent_bytes: int
    prefill_sent_bytes: int
    encoder_bytes: int = 0

    @property
    def needed_bytes(self) -> int:
        """The bytes that the process needs with one sequence."""
        fixed = self.weight_bytes + self.activation_bytes + self.table_bytes + self.process_bytes + self.encoder_bytes
        return fixed + self.sequence_bytes


@dataclass(frozen=True, slots=True)
class DividedStep:
    """A predicted step of a model that is divided among processes (ranks or stages). exchange_s: the part of its
    seconds in which they exchange rows."""

    name: str
    rows: int
    seconds: float
    exchange_s: float

    @classmethod
    def of(cls, name: str, rows: int, found: StepPrediction) -> DividedStep:
        """Returns the step that `found` predicts for several processes. rows: the rows of the step."""
        return cls(name, rows, found.seconds, sum(part.seconds for part in found.parts if part.name == "exchange"))


@dataclass(frozen=True, slots=True)
class DividedPlan:
    """The plan over several processes. target: the machine of each process. sequences: how many sequences of the asked
    context fit. whole_sequences: how many fit where one process with this memory has the whole model. images: the
    images of each prompt."""

    source: str
    ask: Ask
    target: Target
    divided: ParallelPlan
    parts: tuple[PartPlan, ...]
    steps: tuple[DividedStep, ...]
    load: Load
    sequences: int
    whole_sequences: int
    assumptions: tuple[str, ...]
    images: tuple[PlannedImage, ...] = ()

    @property
    def sent_copies(self) -> int:
        """How often the rows of an image are sent: once to each other rank, or in a pipeline once, to the stage with
        the first layers."""
        division = self.divided.division
        return 1 if division.way == PIPELINE else division.count - 1


def make_divided_plan(source: str, spec: Model, ask: Ask, target: Target, divided: ParallelPlan) -> DividedPlan:
    """Makes the plan. target: the machine of each process. Raises ConfigError where the model cannot be divided in this
    way. Raises OutOfMemory where not one sequence fits, with the numbers of processes that would suffice."""
    division, step_tokens = divided.division, max(target.step_tokens, ask.concurrency)
    sizes = EngineSizes(ask.weights, ask.kv_kind, ask.context_tokens, ask.concurrency, step_tokens)
    needs = _needs(spec, division, sizes, ask.encoder_bytes)
    sequences = _sequences(needs, target.memory_bytes)
    if not sequences:
        raise _too_big(spec, needs, sizes, target.memory_bytes, divided.division, ask.encoder_bytes)
    chunk, streams = min(ask.prompt_tokens, step_tokens), max(1, min(ask.concurrency, sequences))
    cost, whole = cost_of(spec, ask.weights, ask.kv_kind, target.machine, divided), memory_needs(spec, [spec], sizes)
    prompt = cost.predict([Segment.prefill(0, chunk, chunk == ask.prompt_tokens, ask.one_adapter)])
    steps = [DividedStep.of("prefill", chunk, prompt)]
    steps += [DividedStep.of("decode", n, cost.predict(decoding(ask, n))) for n in sorted({1, streams})]
    seeing = ask.encoder_bytes > 0
    parts = [
        _part_plan(spec, name, part, division, sizes, (streams, chunk))
        for name, part in _named_parts(spec, division, seeing)
    ]
    if seeing:
        place = division.leader if len(parts) == division.count else 0
        parts[place] = replace(parts[place], encoder_bytes=ask.encoder_bytes)
    return DividedPlan(
        source,
        ask,
        target,
        divided,
        tuple(parts),
        tuple(steps),
        closed_loop(ask, _loop_cost(spec, ask, target, divided, cost), step_tokens, streams),
        sequences,
        whole_sequences=_sequences(_with_encoder(whole, whole, ask.encoder_bytes), target.memory_bytes),
        assumptions=(*_assumptions(divided, ask), *target.assumptions),
    )


def _loop_cost(spec: Model, ask: Ask, target: Target, divided: ParallelPlan, cost: StepCost) -> StepCost:
    """Returns the cost model for the closed loop, in which each user sends the next request when the answer is
    complete. The step time that it predicts is how long a stream waits for its next token."""
    stages = stage_costs(spec, ask.weights, ask.kv_kind, target.machine, divided)
    return RoundCost(cost, StageTimes(stages)) if stages else cost


def _named_parts(spec: Model, division: Division, seeing: bool) -> Iterator[tuple[str, Model]]:
    """Yields the name and the model of each rank's or stage's part. Where there are too many ranks to list, one entry
    stands for all of them; if `seeing`, the leader's entry comes before it. seeing: whether the leader has an image
    encoder."""
    if division.way == TENSOR and division.count > MOST_LISTED:
        if seeing:
            yield f"{division.noun} {division.leader}", division.own(spec)
        yield f"each {'other ' if seeing else ''}{division.noun}", division.own(spec)
        return
    for rank in range(division.count):
        yield f"{division.noun} {rank}", division.part(spec, rank)


def _part_plan(
    spec: Model, name: str, part: Model, division: Division, sizes: EngineSizes, rows: tuple[int, int]
) -> PartPlan:
    needs, exchange = memory_needs(spec, [part], sizes), division.exchange_of(part, format_choice(sizes.weights))
    caches, (streams, chunk) = needs.caches, rows
    return PartPlan(
        name=name,
        weight_bytes=needs.weight_bytes,
        kv_bytes_per_token=caches.growing_bytes,
        window_bytes_per_sequence=caches.window_bytes(sizes.context_tokens),
        state_bytes=caches.state_bytes,
        sequence_bytes=caches.sequence_bytes(sizes.context_tokens),
        activation_bytes=needs.buffer_bytes,
        table_bytes=needs.table_bytes,
        process_bytes=needs.process_bytes,
        meetings=exchange.meetings_of(1),
        row_bytes=exchange.row_bytes,
        logit_row_bytes=exchange.logit_row_bytes,
        decode_sent_bytes=exchange.bytes_of(streams, streams),
        prefill_sent_bytes=exchange.bytes_of(chunk, 1),
    )


def _sequences(needs: MemoryNeeds, memory_bytes: int) -> int:
    left = int(memory_bytes * (1 - KEPT_FREE_SHARE)) - needs.fixed_bytes
    return max(0, left // needs.caches.sequence_bytes(needs.caches.context_tokens))


def _needs(spec: Model, division: Division, sizes: EngineSizes, encoder_bytes: int) -> MemoryNeeds:
    """Returns the memory needs of the process that needs the most. The leader also holds the image encoder."""
    needs = memory_needs(spec, division.parts(spec), sizes)
    return _with_encoder(needs, memory_needs(spec, [division.own(spec)], sizes), encoder_bytes)


def _with_encoder(needs: MemoryNeeds, own: MemoryNeeds, encoder_bytes: int) -> MemoryNeeds:
    """Returns `needs`, the memory needs of the largest process, raised where the leader with the image encoder needs
    more. own: the leader's needs without the encoder."""
    more = max(0, own.fixed_bytes + encoder_bytes - needs.fixed_bytes)
    return structs.replace(needs, buffer_bytes=needs.buffer_bytes + more)


def _too_big(
    spec: Model, needs: MemoryNeeds, sizes: EngineSizes, memory_bytes: int, division: Division, encoder_bytes: int
) -> OutOfMemory:
    caches = needs.caches
    sequence = caches.sequence_bytes(caches.context_tokens)
    room = (sizes, memory_bytes, encoder_bytes)
    would_do = [each.option for way in (TENSOR, PIPELINE) for each in _smallest(spec, way, *room)]
    beside = f" with the image encoder ({_gb(encoder_bytes)})" if encoder_bytes else ""
    return OutOfMemory(
        f"The model does not fit with {division.option}: the largest {division.noun} needs "
        f"{_gb(needs.fixed_bytes + sequence)} with one sequence, and may take {_gb(memory_bytes)} less "
        f"{KEPT_FREE_SHARE:.0%}.",
        why=f"weights {_gb(needs.weight_bytes)}, activations{beside} {_gb(needs.buffer_bytes)}, tables "
        f"{_gb(needs.table_bytes)}, the process itself {_gb(needs.process_bytes)}, a sequence {_gb(sequence)}.",
        fix=f"These counts would do: {' or '.join(would_do)}."
        if would_do
        else "No count of ranks or stages would do: use smaller weights, a shorter --context or more memory.",
    )


def _smallest(spec: Model, way: str, sizes: EngineSizes, memory_bytes: int, encoder_bytes: int) -> Iterator[Division]:
    """Yields the division into the fewest processes whose parts fit into memory, or nothing. way: ranks or stages."""
    whole = memory_needs(spec, [spec], sizes)
    room = int(memory_bytes * (1 - KEPT_FREE_SHARE)) - whole.process_bytes
    if room <= 0:
        return
    tried = 0
    for count in range(max(2, -(-whole.weight_bytes // room)), MOST_RANKS + 1):
        division = Division(way, count)
        try:
            needs = _needs(spec, division, sizes, encoder_bytes)
        except ConfigError:
            continue
        tried += 1
        if _sequences(needs, memory_bytes):
            yield division
            return
        if tried == MOST_TRIED:
            return


def _assumptions(divided: ParallelPlan, ask: Ask) -> Iterator[str]:
    count, link = divided.division.count, divided.link
    sent = "float32 numbers, and int8 codes where nothing but a product with an integer matrix reads them"
    yield f"weights {ask.weights}, K and V {ask.kv_words}; what processes exchange are {sent}"
    yield (
        f"a meeting takes {1e6 * link.meeting_s:,.3g} us, and each process sends {link.bytes_per_s / 1e9:,.4g} GB/s: "
        f"{link.source}; sending a plan to the others is not counted"
    )
    if divided.division.way == PIPELINE:
        yield (
            f"a step passes through the stages one after the other, and {count} are under way at a time; that chunks "
            "of one prompt may follow one another is not counted"
        )
    else:
        yield "ranks compute at the same time; that those of one machine share its bandwidth is not counted"
    if ask.encoder_bytes:
        leader = f"{divided.division.noun} {divided.division.leader}"
        yield f"{leader} encodes images, while the others wait; encodes are in no figure of several requests at a time"
        if divided.division.way == TENSOR:
            yield "ranks of one machine encode with the threads of all, which is faster than the seconds given here"


def _gb(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.2f} GB" if num_bytes >= 1e7 else f"{num_bytes / 1e6:.2f} MB"
