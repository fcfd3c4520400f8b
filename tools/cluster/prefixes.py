"""Compares the prefix hits of four replicas with those of one cache of the same total size: simulated, and in
processes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tools.cluster.case import Note, Outcome
from tools.cluster.processes import bench_serve, serving
from tools.study_fleet import WARM_UP_S, one_replica, peak_load

from twostroke.lab.sim.fleet import Fleet, FleetPlan
from twostroke.lab.sim.routers import named_router
from twostroke.lab.workload.figures import Figures, figures
from twostroke.lab.workload.request import WorkloadRequest

SHARE = 0.95
REPLICAS = 4
GOAL = f"of {REPLICAS} replicas >= {SHARE:.0%} of those of one cache as large as theirs together"


@dataclass(frozen=True)
class SimulatedHits:
    """Simulates the workload shared-prefix-agents on replicas of eight H100 each, as in docs/studies/fleet.md. The one
    large cache is a replica that has the pages of all replicas. Requests of the first seconds, when caches are empty,
    do not count."""

    seconds: float = 40.0
    rate_per_s: float = 1.8
    name: str = "hits-simulated"
    goal: str = f"prefix hits {GOAL}"
    minutes: float = 0.4

    def run(self, note: Note) -> Outcome:
        """See Case."""
        load, setup = peak_load(self.seconds, self.rate_per_s * REPLICAS), one_replica()
        found = {}
        for name in ("predicted", "prefix-affinity", "least-loaded"):
            note(name)
            found[f"{name}_hits"] = self._hits(FleetPlan(setup, REPLICAS), name, load)
        note("one large cache")
        if isinstance(setup.pools, int):
            raise SystemExit("the pools of a replica are a number here")
        pools = replace(
            setup.pools, pages=tuple(replace(each, num_pages=REPLICAS * each.num_pages) for each in setup.pools.pages)
        )
        limits = replace(setup.limits, max_sequences=REPLICAS * setup.limits.max_sequences)
        found["one_cache_hits"] = self._hits(FleetPlan(replace(setup, pools=pools, limits=limits)), "predicted", load)
        found["share"] = found["predicted_hits"] / found["one_cache_hits"]
        return Outcome(found, found["share"] >= SHARE)

    def _hits(self, plan: FleetPlan, router: str, load: list[WorkloadRequest]) -> float:
        outcome = Fleet(plan, named_router(router)).run(load)
        warm = [each.observation() for each in outcome.seen if each.asked.arrival_s >= WARM_UP_S]
        return hit_share(figures(warm))


@dataclass(frozen=True)
class RealHits:
    """Sends a shorter load of shared-prefix-agents by `bench serve` to processes of one thread each. The pools are
    small, so that one pool has no room for all prefixes."""

    model: str = "spark"
    pool_mb: int = 24
    requests: int = 240
    rate_per_s: float = 12.0
    tokens_scale: float = 0.5
    name: str = "hits"
    goal: str = f"prefix hits {GOAL}"
    minutes: float = 0.9

    def run(self, note: Note) -> Outcome:
        """See Case."""
        load: tuple[str, ...] = (
            "--workload",
            "shared-prefix-agents",
            "--rate",
            f"{self.rate_per_s:g}",
            "--requests",
            str(self.requests),
        )
        load += ("--tokens-scale", f"{self.tokens_scale:g}", "--seed", "1")
        found = {}
        for name, replicas, memory_mb in (
            ("replicas", REPLICAS, self.pool_mb),
            ("one_cache", 0, REPLICAS * self.pool_mb),
        ):
            note(name)
            with serving(self.model, "--kv-memory", f"{memory_mb}MB", replicas=replicas) as server:
                report = bench_serve(server, *load)["figures"]
            found[f"{name}_hits"] = report["cached_tokens"] / report["prompt_tokens"]
            found[f"{name}_errors"] = float(sum(report["errors"].values()))
        found["share"] = found["replicas_hits"] / found["one_cache_hits"]
        return Outcome(found, found["share"] >= SHARE and not found["replicas_errors"])


def hit_share(found: Figures) -> float:
    """The share of the prompt tokens that were cached."""
    return found.cached_tokens / found.prompt_tokens
