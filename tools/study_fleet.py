"""Computes the figures of docs/studies/fleet.md: 10 million requests a day on 1,000 GPUs, simulated.

    python -m tools.study_fleet [--part routing|size|split|scaling] [--seconds 60] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from twostroke.lab.planner.target import named_target
from twostroke.lab.sim.autoscale import Autoscale
from twostroke.lab.sim.fleet import Fleet, FleetOutcome, FleetPlan
from twostroke.lab.sim.routers import ROUTERS, named_router
from twostroke.lab.sim.setup import ReplicaSetup, Sizes, replica_setup
from twostroke.lab.sim.transfer import Link
from twostroke.lab.workload.draws import Draws
from twostroke.lab.workload.figures import figures
from twostroke.lab.workload.objectives import Objectives
from twostroke.lab.workload.request import WorkloadRequest
from twostroke.lab.workload.summary import summary
from twostroke.lab.workload.synthetic import Load, shared_prefix_agents
from twostroke.models.common.registry import read_model
from twostroke.types.spec.formats import KVKind

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
    "rms_norm_eps": 1e-5,
    "torch_dtype": "bfloat16",
}
HARDWARE, GPUS_PER_REPLICA = "8xh100-sxm", 8
GPUS, REQUESTS_PER_DAY, PEAK = 1000, 10_000_000, 2.0
REPLICAS = GPUS // GPUS_PER_REPLICA
MEAN_PER_S = REQUESTS_PER_DAY / 86_400
OBJECTIVES = Objectives(ttft_s=1.0, itl_s=0.05, e2e_s=30.0)
TOKENS = 8.0
SLICE = 5
WARM_UP_S = 20.0
DAY_SLICE, DAY_S = 25, 480.0


def one_replica(step_tokens: int = 2048) -> ReplicaSetup:
    """Returns the setup of a replica: eight H100 that share each layer of a 70 B model in bf16."""
    target = named_target(HARDWARE)
    spec = read_model(MODEL)
    sizes = Sizes(step_tokens, 64, 32_768)
    return replica_setup(spec, "bf16", KVKind.BF16, target.machine, target.memory_bytes, sizes)


def peak_load(seconds: float, rate_per_s: float = MEAN_PER_S * PEAK / SLICE) -> list[WorkloadRequest]:
    """Returns requests of agents with common system prompts, in sessions of six turns, at the rate of the busiest hour.

    The load is a slice of a longer run, shifted to begin at 0. So sessions of all ages are there at the beginning.
    Later turns of sessions that began late come after the end of the slice and are left out.
    """
    settle_s = 60.0
    count = round(rate_per_s * (seconds + settle_s) * 1.2)
    found = shared_prefix_agents(Load(rate_per_s, count, 1, TOKENS))
    kept = [each for each in found if settle_s <= each.arrival_s < settle_s + seconds]
    return [replace(each, arrival_s=each.arrival_s - settle_s) for each in kept]


def told(outcome: FleetOutcome, computed_s: float, since_s: float) -> dict[str, Any]:
    """Returns the figures of one run as plain values. Latencies are those of requests that came after since_s, when
    caches are warm."""
    found = figures([each.observation() for each in outcome.seen if each.asked.arrival_s >= since_s], OBJECTIVES)
    second = summary([each.times_s[1] - each.times_s[0] for each in outcome.seen if len(each.times_s) > 1])
    if found.ttft is None or found.itl is None or found.e2e is None or found.good_share is None:
        raise SystemExit("nothing was answered")
    busy_s = sum(member.replica.busy_s for member in outcome.members)
    return {
        "requests": found.requests,
        "failed": found.requests - found.completed,
        "ttft_p50_ms": 1e3 * found.ttft.p50,
        "ttft_p99_ms": 1e3 * found.ttft.p99,
        "itl_p50_ms": 1e3 * found.itl.p50,
        "itl_p99_ms": 1e3 * found.itl.p99,
        "e2e_p50_s": found.e2e.p50,
        "e2e_p99_s": found.e2e.p99,
        "second_token_p99_ms": 1e3 * (second.p99 if second is not None else 0.0),
        "good_share": found.good_share,
        "cached_share": found.cached_tokens / found.prompt_tokens,
        "busy_share": busy_s / outcome.replica_s,
        "output_tokens_per_s": found.output_tokens_per_s,
        "simulated_s": outcome.end_s,
        "computed_s": computed_s,
        "replica_s": outcome.replica_s,
        "good_per_s": found.good_share * found.requests / outcome.end_s,
        "steps": sum(member.replica.steps for member in outcome.members),
        "kv_gb": outcome.traffic.bytes / 1e9,
        "kv_ms": 1e3 * outcome.traffic.on_the_way_s / max(1, outcome.traffic.transfers),
        "kv_wait_ms": 1e3 * outcome.traffic.wait_s / max(1, outcome.traffic.transfers),
        "most_replicas": max(count for _, count in outcome.scaling),
    }


def run(plan: FleetPlan, router: str, load: list[WorkloadRequest], since_s: float = WARM_UP_S) -> dict[str, Any]:
    """Simulates a plan under a router. Returns the figures."""
    began_s = time.perf_counter()
    outcome = Fleet(plan, named_router(router)).run(load)
    return told(outcome, time.perf_counter() - began_s, since_s)


def routing(seconds: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the figures of a slice under each router, and of the whole fleet under the best one."""
    load = peak_load(seconds)
    for name in ROUTERS:
        yield name, run(FleetPlan(one_replica(), REPLICAS // SLICE), name, load)
    whole = peak_load(seconds, MEAN_PER_S * PEAK)
    yield "prefix-affinity, whole fleet", run(FleetPlan(one_replica(), REPLICAS), "prefix-affinity", whole)


def size(seconds: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the figures of fleets of several sizes, down to few GPUs, under the same load."""
    load = peak_load(seconds)
    for replicas in (5, 7, 10, 15, 25):
        plan = FleetPlan(one_replica(), replicas)
        yield f"{replicas * GPUS_PER_REPLICA * SLICE} GPUs", run(plan, "prefix-affinity", load)


def split(seconds: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the figures of a pool for prompts and a pool for decoding, next to whole replicas, at a size where the
    split matters."""
    load = peak_load(seconds)
    whole = 13
    for step_tokens in (512, 2048):
        plan = FleetPlan(one_replica(step_tokens), whole)
        yield f"{whole} whole, {step_tokens} rows a step", run(plan, "prefix-affinity", load)
    for readers, gbit in ((4, 400), (5, 400), (5, 100)):
        plan = FleetPlan(one_replica(), readers, whole - readers, Link(gbit * 1e9 / 8))
        yield f"{readers} read, {whole - readers} decode, {gbit} Gbit/s", run(plan, "prefix-affinity", load)


def day(duration_s: float) -> list[WorkloadRequest]:
    """Returns a slice of the fleet's load through a shortened day. The rate rises from a quarter of the mean to the
    peak and falls again, as a sine."""
    low, high = MEAN_PER_S / 4 / DAY_SLICE, MEAN_PER_S * PEAK / DAY_SLICE
    steady = shared_prefix_agents(Load(high, round(high * duration_s), 1, TOKENS))
    draws = Draws(7, "thinning")

    def rate(at_s: float) -> float:
        return low + (high - low) * (1 - math.cos(2 * math.pi * at_s / duration_s)) / 2

    return [each for each in steady if each.arrival_s < duration_s and draws.uniform() * high < rate(each.arrival_s)]


def scaling(_seconds: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the figures of fixed fleets and of replicas that come and go, through a day of DAY_S seconds."""
    load, most = day(DAY_S), REPLICAS // DAY_SLICE
    yield f"{most} always", run(FleetPlan(one_replica(), most), "prefix-affinity", load)
    for per_replica, start_s in ((16.0, 60.0), (16.0, 5.0), (28.0, 5.0)):
        rule = Autoscale(1, most, per_replica, every_s=5.0, start_s=start_s, patience_s=20.0)
        plan = FleetPlan(one_replica(), autoscale=rule)
        yield f"one for {per_replica:g}, {start_s:g} s to start", run(plan, "prefix-affinity", load)
    yield f"{most - 1} always", run(FleetPlan(one_replica(), most - 1), "prefix-affinity", load)


PARTS: dict[str, Callable[[float], Iterator[tuple[str, dict[str, Any]]]]] = {
    "routing": routing,
    "size": size,
    "split": split,
    "scaling": scaling,
}


def main() -> None:
    """Print one line for each run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--seconds", type=float, default=40.0, help="of the peak that are simulated")
    parser.add_argument("--json", type=Path, default=None)
    asked = parser.parse_args()
    found: dict[str, dict[str, Any]] = {}
    for part in asked.part or PARTS:
        found[part] = {}
        for name, values in PARTS[part](asked.seconds):
            found[part][name] = values
            words = ", ".join(
                f"{key} {value:,.3f}" if isinstance(value, float) else f"{key} {value:,}"
                for key, value in values.items()
            )
            print(f"{part}: {name}: {words}", flush=True)
    if asked.json is not None:
        asked.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
