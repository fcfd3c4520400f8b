"""The closed loop: `concurrency` requests run all the time, and each is followed by the next at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twostroke.cost.shape import Segment, StepCost
from twostroke.engine.scheduler.limits.chunk_sizer import KEPT_SHARE, ChunkSizer
from twostroke.engine.scheduler.limits.gap_limiter import GapRule
from twostroke.lab.planner.ask import Ask
from twostroke.lab.workload.summary import counted_percentile
from twostroke.types.objectives import ITL_SHARE
from twostroke.types.spec.formats import PAGE_TOKENS


@dataclass(frozen=True, slots=True)
class Load:
    """The predicted latencies and rates of a closed loop, in which the same number of requests is always running.

    itl_s: the value that 95% of a request's gaps do not exceed, as `bench serve` and the scheduler define the
    objective. longest_gap_s: the longest gap of a request. prefill_gap_share: the share of its gaps that contain
    another prompt's chunk.
    """

    streams: int
    ttft_s: float
    itl_s: float
    mean_itl_s: float
    longest_gap_s: float
    prefill_gap_share: float
    requests_per_s: float
    input_tokens_per_s: float
    output_tokens_per_s: float


def decoding(ask: Ask, streams: int) -> list[Segment]:
    """Returns the segments of a step in which `streams` streams decode in the middle of their answers. They use the
    expected number of different adapters."""
    position, different = ask.prompt_tokens + ask.output_tokens // 2, ask.adapters_of(streams)
    if not different:
        return [Segment.decode(position)] * streams
    return [Segment.decode(position, index % different) for index in range(streams)]


def prompt_steps_s(ask: Ask, cost: StepCost, step_tokens: int, others: int) -> list[float]:
    """Returns the seconds of each step that computes a chunk of one prompt, while `others` streams decode in the same
    steps.

    The engine's own rule sizes the chunks. A chunk is as long as the ITL objective allows, or without an objective as
    long as the default rule allows.
    """
    streams = decoding(ask, others)

    def seconds(segments: Sequence[Segment]) -> float:
        return cost.predict(segments).seconds

    sizer = ChunkSizer(seconds, PAGE_TOKENS)
    bound_s = None
    if others:
        bound_s = KEPT_SHARE * (GapRule().bound_s(seconds, streams) if ask.itl_s is None else ask.itl_s)
    found: list[float] = []
    start, rows = 0, step_tokens - others
    while start < ask.prompt_tokens:
        left = ask.prompt_tokens - start
        rows = min(rows, left)  # rows that did not fit before do not fit after a longer context
        if bound_s is None:
            found.append(seconds([*streams, Segment.prefill(start, rows, rows == left, ask.one_adapter)]))
        else:
            chunk = sizer.chunk(streams, start, rows, left, bound_s, ask.one_adapter)
            rows = chunk.num_tokens
            found.append(chunk.seconds)
        start += rows
    return found


def closed_loop(ask: Ask, cost: StepCost, step_tokens: int, streams: int) -> Load:
    """Returns the latencies and rates of a closed loop in which `streams` requests run together. In one round every
    stream reads one prompt and writes one answer.

    A step with a chunk of one prompt is also a decode step for the other streams. So a prompt of n chunks stretches
    (streams - 1) * n gaps of each stream, at most all of them. The other gaps are plain decode steps.
    """
    others = streams - 1
    steps_s = prompt_steps_s(ask, cost, step_tokens, others)
    prompt_s, chunk_gaps = sum(steps_s), others * len(steps_s)
    decode_s = cost.predict(decoding(ask, streams)).seconds
    gaps = max(1, ask.output_tokens - 1)
    plain = max(0, gaps - chunk_gaps)
    kinds = [(decode_s, plain), *((step_s, others) for step_s in steps_s)]
    turn_s = streams * prompt_s + plain * decode_s
    mean_s = (turn_s - prompt_s) / gaps if chunk_gaps <= gaps else prompt_s / len(steps_s)
    rate = streams / turn_s
    # By Little's law, a user whose answer is not being written waits for its first token.
    ttft_s = ask.concurrency / rate - gaps * mean_s
    longest_s = max(value for value, count in kinds if count)
    return Load(
        *(streams, ttft_s, counted_percentile(kinds, ITL_SHARE), mean_s, longest_s),
        *(min(1.0, chunk_gaps / gaps), rate, rate * ask.prompt_tokens, rate * ask.output_tokens),
    )
