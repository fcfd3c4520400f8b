"""What a model reaches on one target: memory, TTFT, ITL, throughput, the side of the ridge, the cost of a token."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from twostroke.cost.memory import KEPT_FREE_SHARE
from twostroke.cost.model_cost import step_cost
from twostroke.cost.shape import Segment, StepCost
from twostroke.cost.step_work import WorkCounter
from twostroke.cost.work import Work
from twostroke.lab.planner.ask import Ask
from twostroke.lab.planner.ceilings import batch_ceiling_tokens_per_s, prefill_floor_s
from twostroke.lab.planner.closed_loop import Load, closed_loop, decoding, prompt_steps_s
from twostroke.lab.planner.guessed import GuessedDecode, guessed_decode
from twostroke.lab.planner.target import Target
from twostroke.models.common.work import work_of
from twostroke.ops.program.model import Model
from twostroke.ops.program.place import place
from twostroke.ops.quant.formats import ADAPTERS

MEMORY, ARITHMETIC = "memory", "arithmetic"


@dataclass(frozen=True, slots=True)
class Room:
    """The memory that a model needs, in bytes, and what fits into it. sequences: how many sequences of the asked
    context fit next to weights and buffers; 0 where the weights do not fit.

    active_parameters: the parameters that one token uses; of experts only the chosen ones count. kv_bytes_per_token:
    the bytes of K and V in layers that keep all positions. window_bytes_per_sequence: the most bytes in layers that
    keep a window. kv_bytes_per_sequence: the bytes of both. state_bytes: the bytes of a sequence's states, which do not
    depend on its length. adapter_bytes: the bytes reserved for adapters. encoder_bytes: the memory of the image
    encoder.
    """

    parameters: int
    active_parameters: int
    weight_bytes: int
    buffer_bytes: int
    kv_bytes_per_token: int
    window_bytes_per_sequence: int
    kv_bytes_per_sequence: int
    state_bytes: int
    memory_bytes: int
    sequences: int
    adapter_bytes: int = 0
    encoder_bytes: int = 0

    @property
    def reserve_bytes(self) -> int:
        """The memory that the engine leaves to the rest of the machine."""
        return self.memory_bytes - int(self.memory_bytes * (1 - KEPT_FREE_SHARE))

    @property
    def needed_bytes(self) -> int:
        """The bytes of weights, places for adapters, the image encoder, buffers and one sequence."""
        model_bytes = self.weight_bytes + self.adapter_bytes + self.encoder_bytes
        return model_bytes + self.buffer_bytes + self.sequence_bytes

    @property
    def sequence_bytes(self) -> int:
        """The bytes of K, V and states of one sequence."""
        return self.kv_bytes_per_sequence + self.state_bytes


@dataclass(frozen=True, slots=True)
class Phase:
    """One kind of step of the planned model, such as prefill or decode, as predicted. rate_tokens_per_s: the tokens a
    second of all streams. ceiling_tokens_per_s: the rate that the machine's bandwidth and arithmetic allow.

    memory_share: the share of the predicted seconds in which memory is the bound.
    """

    name: str
    streams: int
    seconds: float
    rate_tokens_per_s: float
    ceiling_tokens_per_s: float
    work: Work
    ridge_flops_per_byte: float
    memory_share: float

    @property
    def intensity_flops_per_byte(self) -> float:
        """The FLOPs for each byte of weights and K and V. Activations stay in caches and do not count."""
        return self.work.flops / (self.work.weight_bytes + self.work.kv_bytes)

    @property
    def side(self) -> str:
        """The bound of the work, by its side of the roofline's ridge: "memory" below it, "arithmetic" above it."""
        return ARITHMETIC if self.intensity_flops_per_byte > self.ridge_flops_per_byte else MEMORY


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a million tokens, in the currency of the hourly price."""

    input_per_million: float
    output_per_million: float
    mixed_per_million: float

    @property
    def ratio(self) -> float:
        """The price of an output token divided by the price of an input token."""
        return self.output_per_million / self.input_per_million


@dataclass(frozen=True, slots=True)
class Expectation:
    """Everything that is predicted for one target. load and prices are None where no sequence fits; prices also where
    no price is known.

    prefill: one step with `prefill_tokens` of a prompt. ttft_alone_s: the seconds of all steps of the prompt. guessed:
    decode with guesses, for one stream and for all streams; empty where the user gives no acceptance rate.
    """

    target: Target
    room: Room
    prefill: Phase
    prefill_tokens: int
    decode_one: Phase
    decode: Phase
    ttft_alone_s: float
    load: Load | None
    prices: Prices | None
    guessed: tuple[GuessedDecode, ...] = ()


def step_budget(ask: Ask, target: Target) -> int:
    """Returns the rows of one step: the target's number, or twice the number of streams where that is larger."""
    return max(target.step_tokens, 2 * ask.concurrency)


@lru_cache(maxsize=8)
def _parameters(spec: Model) -> tuple[int, int]:
    """Returns the number of all parameters, and of those that one token uses."""
    return spec.parameters(), spec.plain.active_parameters


def room_for(spec: Model, ask: Ask, target: Target) -> Room:
    """Returns the memory of the model on the target. The engine leaves a share of the target's memory free."""
    budget, context = step_budget(ask, target), ask.context_tokens
    caches = spec.cache_needs(ask.kv_kind, context, ask.concurrency, budget)
    sequence_bytes = caches.sequence_bytes(context)
    weight_bytes = work_of(spec, ask.weights, ask.kv_kind).weight_bytes
    banks = [weight for weight in spec.program.weights if weight.role == ADAPTERS]
    adapter_bytes = sum(each.matrices * ask.format_for(each).total_bytes(each.rows, each.columns) for each in banks)
    buffer_bytes = place(spec.program, budget, ask.concurrency).num_bytes + spec.rope_bytes(context)
    left = int(target.memory_bytes * (1 - KEPT_FREE_SHARE)) - weight_bytes - buffer_bytes - ask.encoder_bytes
    sequences = max(0, left // sequence_bytes)
    return Room(
        *_parameters(spec),
        *(weight_bytes - adapter_bytes, buffer_bytes, caches.growing_bytes, caches.window_bytes(context)),
        *(sequence_bytes - caches.state_bytes, caches.state_bytes, target.memory_bytes, sequences, adapter_bytes),
        encoder_bytes=ask.encoder_bytes,
    )


def expect(spec: Model, ask: Ask, target: Target) -> Expectation:
    """Predicts memory, step times, TTFT, throughput and prices of a model on one target. Raises ConfigError where the
    target's measurement lacks the weight format."""
    cost = step_cost(work_of(spec, ask.weights, ask.kv_kind), target.machine)
    room = room_for(spec, ask, target)
    streams = max(1, min(ask.concurrency, room.sequences))
    budget = step_budget(ask, target)
    chunk = min(ask.prompt_tokens, budget)
    prefill = _phase(
        "prefill", spec, ask, target, cost, [Segment.prefill(0, chunk, chunk == ask.prompt_tokens, ask.one_adapter)]
    )
    decode_one, decode = (_phase("decode", spec, ask, target, cost, decoding(ask, count)) for count in (1, streams))
    alone_s = sum(prompt_steps_s(ask, cost, budget, 0))
    load = closed_loop(ask, cost, budget, streams) if room.sequences else None
    prices = None
    if ask.price_per_hour is not None and load is not None:
        prices = _prices(ask.price_per_hour, alone_s / ask.prompt_tokens, decode.seconds / streams, load)
    guessed: tuple[GuessedDecode, ...] = ()
    if ask.acceptance:
        middle = ask.prompt_tokens + ask.output_tokens // 2
        guessed = tuple(
            guessed_decode(cost, count, middle, ask.acceptance, ask.adapters_of(count))
            for count in sorted({1, streams})
        )
    return Expectation(target, room, prefill, chunk, decode_one, decode, alone_s, load, prices, guessed)


def _phase(name: str, spec: Model, ask: Ask, target: Target, cost: StepCost, segments: list[Segment]) -> Phase:
    prediction = cost.predict(segments)
    counter = WorkCounter(work_of(spec, ask.weights, ask.kv_kind))
    counts = counter.count(segments)
    work = (
        counter.weights(counts.rows)
        + counter.adapters(counts)
        + counter.head(counts.logit_rows)
        + counter.attention(counts)
    )
    kind, tokens = ask.arithmetic, counts.rows
    arithmetic = tokens / prefill_floor_s(work.flops, target.peak_ops_per_s(kind))
    streams = len(segments)
    reading = target.read_bytes_per_s * tokens / (work.weight_bytes + work.kv_bytes)
    if name == "decode":
        reading = batch_ceiling_tokens_per_s(
            target.read_bytes_per_s, work.weight_bytes, work.kv_bytes / streams, streams
        )
    memory_s = sum(part.seconds for part in prediction.parts if part.bound.value == MEMORY)
    return Phase(
        name,
        streams,
        prediction.seconds,
        tokens / prediction.seconds,
        min(arithmetic, reading),
        work,
        target.ridge_flops_per_byte(kind),
        memory_s / prediction.seconds,
    )


def _prices(per_hour: float, input_s: float, output_s: float, load: Load) -> Prices:
    million = per_hour / 3600 * 1e6
    return Prices(million * input_s, million * output_s, million / (load.input_tokens_per_s + load.output_tokens_per_s))
