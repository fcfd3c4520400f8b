"""The whole plan of one model: its predicted speed and memory on one machine, the machines of the catalogue that
suffice, and the assumptions. `as_json` returns the plan as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from twostroke.cost.memory import KEPT_FREE_SHARE
from twostroke.engine.scheduler.limits.chunk_sizer import KEPT_SHARE, MIN_CHUNK_TOKENS
from twostroke.lab.planner.ask import Ask
from twostroke.lab.planner.choose import Candidate, candidates, lacking, require_possible
from twostroke.lab.planner.expect import Expectation, Phase, Room, expect, step_budget
from twostroke.lab.planner.images import PlannedImage
from twostroke.lab.planner.published import figures_for
from twostroke.lab.planner.savings import Saving, savings
from twostroke.lab.planner.target import Target
from twostroke.ops.program.model import Model
from twostroke.types.objectives import ITL_SHARE
from twostroke.types.spec.formats import PAGE_TOKENS
from twostroke.types.spec.hardware import HardwareSpec
from twostroke.types.spec.hardware_catalogue import CATALOGUE

SCHEMA = 2
"""The version of the JSON. Since version 2, load.itl_s and a candidate's itl_s are the 95th percentile of a request's
gaps, and mean_itl_s is their mean."""


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """The plan of one model on one machine, the target. lacks: sentences about what the target has too little of for
    the user's request, such as memory; empty where it suffices. images: the images of each prompt."""

    source: str
    spec: Model
    ask: Ask
    expectation: Expectation
    lacks: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    savings: tuple[Saving, ...]
    round_figures: tuple[str, ...]
    assumptions: tuple[str, ...]
    images: tuple[PlannedImage, ...] = ()


def make_plan(
    source: str, spec: Model, ask: Ask, target: Target, known: Sequence[HardwareSpec] = CATALOGUE
) -> ModelPlan:
    """Makes the plan. Raises ConfigError that names the objective, where no hardware can do what is asked."""
    expectation = expect(spec, ask, target)
    found = candidates(spec, ask, known)
    require_possible(spec, ask, found, expectation)
    said = figures_for(spec, ask.weights, expectation.room.weight_bytes)
    assumptions = (*_assumptions(spec, ask, target, expectation.room), *target.assumptions)
    return ModelPlan(
        *(source, spec, ask, expectation, lacking(ask, expectation), tuple(found), savings(spec, ask, target)),
        *(tuple(said), assumptions),
    )


def _assumptions(spec: Model, ask: Ask, target: Target, room: Room) -> list[str]:
    windows = sum(1 for window in spec.windows if window)
    bits = 8 * room.weight_bytes / room.parameters
    said = [
        f"requests: {ask.prompt_tokens:,} tokens in, {ask.output_tokens:,} out, {ask.concurrency} at a time, each "
        "followed by the next at once (closed loop); no two share a prefix",
        f"weights {ask.weights} ({bits:.2f} bits each with scales), K and V "
        f"{ask.kv_words}, in pages of {PAGE_TOKENS} positions; int8 and int4 weights meet activations rounded to int8",
        f"prompts are read in steps of at most {step_budget(ask, target):,} tokens, decoding streams in the same steps",
        f"ITL is what {ITL_SHARE:.0%} of a request's own gaps do not pass, as in `bench serve` and the scheduler: each "
        "other stream reads one prompt while a request writes its answer, and a gap with one of its chunks lasts that "
        "step",
        f"{KEPT_FREE_SHARE:.0%} of the memory is left free; the rest, less weights and buffers, holds K and V",
        "weights are read once in a step for all streams, K and V once for each stream, in the middle of its answer",
        "queues are those of the closed loop alone; network, tokenizer and clients cost nothing",
    ]
    if ask.adapters:
        said.append(
            f"every request uses an adapter of rank {ask.adapter_rank} on all products of the layers, one of "
            f"{ask.adapters} that are asked for equally often"
        )
    if ask.itl_s is not None and ask.concurrency > 1:
        said.append(
            f"--itl sizes chunks next to streams as `serve --itl` does: to {KEPT_SHARE:.0%} of it where "
            f"{MIN_CHUNK_TOKENS} tokens or more allow that"
        )
    if windows:
        said.append(
            f"{windows} of {spec.num_layers} layers see a window: it bounds what is read, and what is kept of a "
            "sequence (the window, the chunk that is computed, and a page)"
        )
    if ask.price_per_hour is not None:
        said.append("the hourly price is paid for the whole machine, and it is busy all the hour")
    return said


def plan_json(plan: ModelPlan) -> dict[str, Any]:
    """Returns the plan as plain values in seconds, bytes and tokens a second. Where the meaning of a field changes, the
    number "schema" is raised."""
    expectation, ask = plan.expectation, plan.ask
    load, prices = expectation.load, expectation.prices
    return {
        "schema": SCHEMA,
        "model": plan.source,
        "architecture": plan.spec.architecture,
        "ask": asdict(ask),
        "hardware": {
            "name": expectation.target.name,
            "title": expectation.target.title,
            "memory_bytes": expectation.target.memory_bytes,
            "read_bytes_per_s": expectation.target.read_bytes_per_s,
            "peak_ops_per_s": expectation.target.peak_ops_per_s(ask.arithmetic),
        },
        "memory": {
            **asdict(expectation.room),
            "needed_bytes": expectation.room.needed_bytes,
            "reserve_bytes": expectation.room.reserve_bytes,
            "fits": expectation.room.sequences > 0,
        },
        "prefill": _phase_json(expectation.prefill),
        "decode_one": _phase_json(expectation.decode_one),
        "decode": _phase_json(expectation.decode),
        "ttft_alone_s": expectation.ttft_alone_s,
        "load": None if load is None else asdict(load),
        "prices": None if prices is None else {**asdict(prices), "ratio": prices.ratio},
        "images": [image.as_json() for image in plan.images],
        "misses": list(plan.lacks),
        "catalogue": [_candidate_json(each) for each in plan.candidates],
        "savings": [asdict(each) for each in plan.savings],
        "round_figures": list(plan.round_figures),
        "assumptions": list(plan.assumptions),
    }


def _phase_json(phase: Phase) -> dict[str, Any]:
    return {
        **asdict(phase),
        "intensity_flops_per_byte": phase.intensity_flops_per_byte,
        "side": phase.side,
    }


def _candidate_json(candidate: Candidate) -> dict[str, Any]:
    expectation = candidate.expectation
    load = expectation.load
    return {
        "name": candidate.hardware.name,
        "title": expectation.target.title,
        "does": candidate.does,
        "misses": list(candidate.lacks),
        "sequences": expectation.room.sequences,
        "ttft_s": None if load is None else load.ttft_s,
        "itl_s": None if load is None else load.itl_s,
        "output_tokens_per_s": None if load is None else load.output_tokens_per_s,
        "source": candidate.hardware.source,
        "note": candidate.hardware.note,
    }
