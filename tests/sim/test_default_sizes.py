"""Eight users in a closed loop: the default, without any flag, is as good as the best fixed size of a step."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any

import pytest

from tests.tiers import fewer, thinned
from twostroke.cost.model_cost import step_cost
from twostroke.cost.shape import Segment
from twostroke.engine.scheduler.limits.gap_limiter import GAP_DECODE_STEPS, LEAST_GAP_S, GapRule
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.lab.bench.checkpoints import SHAPES
from twostroke.lab.sim.fleet.fleet import Fleet, FleetPlan
from twostroke.lab.sim.fleet.routing import LeastLoaded
from twostroke.lab.sim.setup import ReplicaSetup
from twostroke.lab.workload.draws import Draws
from twostroke.lab.workload.objectives import Objectives, met
from twostroke.lab.workload.request import WorkloadRequest
from twostroke.models.common.registry import read_model
from twostroke.models.common.work import work_of
from twostroke.types.spec.formats import KVKind
from twostroke.types.spec.hardware import HardwareClass, HardwareSpec

TWO_CORES = HardwareSpec("test", "two cores", HardwareClass.CPU, 0, 3.75e10, 0.13e12, 0.5e12, 1.3e12, "a test")
THREE_B = {
    **SHAPES["llama-3.2-1b"],
    "hidden_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 24,
    "head_dim": 128,
}
MODELS: dict[str, dict[str, Any]] = {"0.5b": SHAPES["qwen2.5-0.5b"], "1b": SHAPES["llama-3.2-1b"], "3b": THREE_B}
SIZES = (32, 48, 64, 96, 128, 256, 512)
USERS = 8


@dataclass(frozen=True)
class Found:
    good_share: float
    requests_per_s: float
    longest_gap_s: float


def questions(seed: int, count: int) -> list[WorkloadRequest]:
    """Questions with log-normal sizes: medians of 384 and 64 tokens."""
    dice = Draws(seed, "lengths")

    def length(median: int, most: int) -> int:
        return max(1, min(most, round(median * math.exp(0.5 * dice.normal()))))

    return [WorkloadRequest(0.0, length(384, 3000), length(64, 400)) for _ in range(count)]


def run(setup: ReplicaSetup, wanted: Objectives) -> Found:
    """The mean of three draws of the load."""
    good, rates, gaps = [], [], []
    for seed in (1, 2, 3):
        outcome = Fleet(FleetPlan(setup), LeastLoaded()).run(questions(seed, 80), users=USERS)
        seen = [each.observation() for each in outcome.seen]
        good += [met(each, wanted) for each in seen]
        rates.append(len(seen) / outcome.end_s)
        gaps += [b - a for each in seen for a, b in zip(each.times_s, each.times_s[1:], strict=False)]
    return Found(mean(good), mean(rates), max(gaps))


@pytest.mark.parametrize(
    ("model", "weights"), thinned(list(itertools.product(MODELS, ["int8", "int4"])), "sizes", fewer(6, quick=1))
)
def test_the_default_is_within_a_tenth_of_the_best_fixed_size_and_keeps_the_rule(model: str, weights: str) -> None:
    spec = read_model({**MODELS[model], "hidden_act": "silu", "torch_dtype": "bfloat16"})
    cost = step_cost(work_of(spec, weights, KVKind.BF16), TWO_CORES)
    decode_s = cost.predict([Segment.decode(400)] * USERS).seconds
    prompt_s = cost.predict([Segment.prefill(0, 512, True)]).seconds
    wanted = Objectives(max(4.0, 2.75 * prompt_s), max(0.3, GAP_DECODE_STEPS * decode_s))
    fixed = ReplicaSetup(cost, 4000, SchedulerLimits(512, USERS), 8192, spec.kv_bytes_per_token(KVKind.BF16))
    found = {size: run(replace(fixed, limits=SchedulerLimits(size, USERS)), wanted) for size in SIZES}
    default = run(replace(fixed, gap_rule=GapRule()), wanted)
    assert default.good_share >= 0.9 * max(each.good_share for each in found.values())
    assert default.requests_per_s >= 0.98 * found[512].requests_per_s
    longest_decode_s = cost.predict([Segment.decode(1000)] * USERS).seconds
    assert default.longest_gap_s <= max(LEAST_GAP_S, GAP_DECODE_STEPS * longest_decode_s)
    assert found[512].good_share < 0.5 * default.good_share, "what the engine did without the rule"
