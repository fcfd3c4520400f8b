"""Measures how many times faster than real time the simulator is, in processor time, with a digest of its results.

    python -m tools.measure_simulator_speed [--seconds 60] [--only NAME] [--profile FILE]

The digest covers each token's time, each request's fate, and the replicas' counters. Two versions of the simulator that
print the same digests gave the same results to the last bit. Compare versions in alternation, on one core.
"""

from __future__ import annotations

import argparse
import cProfile
import hashlib
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from twostroke.lab.planner.target import named_target
from twostroke.lab.sim.fleet import Fleet, FleetOutcome, FleetPlan
from twostroke.lab.sim.garbage import seldom_collected
from twostroke.lab.sim.routing import LeastLoaded
from twostroke.lab.sim.setup import ReplicaSetup, Sizes, replica_setup
from twostroke.lab.workload.synthetic import NAMED, Load
from twostroke.models.common.registry import read_model
from twostroke.types.spec.formats import KVKind

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
    "rms_norm_eps": 1e-5,
    "torch_dtype": "bfloat16",
    "num_key_value_heads": 8,
}
M8B = {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32}
M70B = {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64}

CASES: dict[str, tuple[dict[str, Any], str, str, float]] = {
    "8b-h100-quiet": (M8B, "h100-sxm", "steady-chat", 2.0),
    "8b-h100-chat": (M8B, "h100-sxm", "steady-chat", 20.0),
    "8b-h100-agents": (M8B, "h100-sxm", "shared-prefix-agents", 20.0),
    "8b-h100-full": (M8B, "h100-sxm", "steady-chat", 60.0),
    "70b-8xh100-chat": (M70B, "8xh100-sxm", "steady-chat", 10.0),
}
"""name: (shape, machine, workload, requests a second). In the full case all 64 places are taken."""


def one_replica(shape: dict[str, Any], machine: str) -> ReplicaSetup:
    """The setup of one replica, as `twostroke simulate` sizes it."""
    target = named_target(machine)
    spec = read_model({**LLAMA, **shape})
    return replica_setup(spec, "bf16", KVKind.BF16, target.machine, target.memory_bytes, Sizes(target.step_tokens, 64))


def digest(outcome: FleetOutcome) -> str:
    """Returns a digest of all results of a simulation."""
    found = hashlib.sha256()
    for seen in outcome.seen:
        found.update(repr((seen.times_s, seen.ended_s, seen.cached_tokens, seen.preemptions, seen.error)).encode())
    for member in outcome.members:
        replica = member.replica
        found.update(repr((replica.steps, replica.clock.now_s, asdict(replica.scheduler.gauges()))).encode())
    return found.hexdigest()[:16]


def run(name: str, seconds: float) -> tuple[FleetOutcome, Callable[[], FleetOutcome]]:
    """Returns the outcome of one case, and a function that simulates the case again."""
    shape, machine, workload, rate = CASES[name]
    load = NAMED[workload](Load(rate, round(rate * seconds)))
    plan = FleetPlan(one_replica(shape, machine))

    def simulate() -> FleetOutcome:
        with seldom_collected():  # as `twostroke simulate`
            return Fleet(plan, LeastLoaded()).run(load)

    return simulate(), simulate


def main() -> None:
    """Print one line for each case."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="that are simulated of each")
    parser.add_argument("--only", choices=CASES, action="append")
    parser.add_argument("--rounds", type=int, default=3, help="the fastest counts")
    parser.add_argument("--profile", type=Path, default=None)
    asked = parser.parse_args()
    for name in asked.only or CASES:
        outcome, simulate = run(name, asked.seconds)
        best_s = float("inf")
        for _ in range(asked.rounds):
            began_s = time.process_time()
            simulate()
            best_s = min(best_s, time.process_time() - began_s)
        if asked.profile is not None:
            profile = cProfile.Profile()
            profile.runcall(simulate)
            profile.dump_stats(asked.profile)
        (member,) = outcome.members
        at_a_time = sum(len(seen.times_s) for seen in outcome.seen) / member.replica.steps
        print(
            f"{name}: {outcome.end_s / best_s:,.0f} times real time, {best_s:.2f} s for {outcome.end_s:.0f} s, "
            f"{member.replica.steps:,} steps, {at_a_time:.1f} tokens a step, digest {digest(outcome)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
