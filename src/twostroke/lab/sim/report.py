"""The result of a simulation as text and as JSON: latencies and rates as `bench serve` reports them, and the figures of
the replicas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from twostroke.engine.disk.contract import DiskCounts
from twostroke.lab.sim.fleet.fleet import FleetOutcome
from twostroke.lab.sim.fleet.routing import Member
from twostroke.lab.workload.definitions import ToolFigures, other_tools
from twostroke.lab.workload.figures import Figures, figures
from twostroke.lab.workload.figures_text import figures_text
from twostroke.lab.workload.objectives import Objectives

MOST_NAMED_REPLICAS = 8


@dataclass(frozen=True, slots=True)
class ReplicaFigures:
    """The figures of one replica. busy_share: the share of its lifetime in which it computed steps. The lifetime lasts
    from its start to its end, or to the end of the simulation. hit_share: the share of prompt tokens at first admission
    that was found in the cache."""

    name: str
    requests: int
    steps: int
    busy_share: float
    preemptions: int
    hit_share: float


@dataclass(frozen=True, slots=True)
class SimulationReport:
    """The report of one simulation. title: model and machine. setup: settings as plain values. computed_s: the seconds
    that the simulation took."""

    title: str
    load: str
    setup: Mapping[str, Any]
    figures: Figures
    tools: tuple[ToolFigures, ...]
    replicas: tuple[ReplicaFigures, ...]
    outcome: FleetOutcome
    computed_s: float

    @property
    def times_real_time(self) -> float:
        """The simulated seconds for each second that the simulation took."""
        return self.outcome.end_s / self.computed_s if self.computed_s > 0 else 0.0

    def as_json(self) -> dict[str, Any]:
        """Returns the report as plain values."""
        outcome = self.outcome
        return {
            "title": self.title,
            "load": self.load,
            "setup": dict(self.setup),
            "simulated_s": outcome.end_s,
            "computed_s": self.computed_s,
            "times_real_time": self.times_real_time,
            "figures": self.figures.as_json(),
            "other_tools": [tool.as_json() for tool in self.tools],
            "fleet": {
                "replicas": [asdict(each) for each in self.replicas],
                "replica_s": outcome.replica_s,
                "most_replicas": max(count for _, count in outcome.scaling),
                "scaling": [list(each) for each in outcome.scaling],
                "kv_transfers": asdict(outcome.traffic),
                "recomputed_tokens": outcome.recomputed_tokens,
                **({} if self._disk is None else {"disk": msgspec.to_builtins(self._disk)}),
            },
        }

    @property
    def _disk(self) -> DiskCounts | None:
        counts = [member.replica.disk_counts for member in self.outcome.members]
        found = [each for each in counts if each is not None]
        names = DiskCounts.__struct_fields__
        return DiskCounts(*(sum(getattr(each, name) for each in found) for name in names)) if found else None

    def text(self) -> str:
        """Returns the report as several lines of text."""
        lines = [
            self.title,
            self.load,
            f"simulated {self.outcome.end_s:,.1f} s in {self.computed_s:,.2f} s: {self.times_real_time:,.0f} times as "
            "fast as real time",
            "",
            figures_text(self.figures, self.tools),
            "",
            *self._fleet_lines(),
        ]
        return "\n".join(lines)

    def _fleet_lines(self) -> list[str]:
        outcome = self.outcome
        busy = sum(member.replica.busy_s for member in outcome.members)
        lines = [
            f"{len(self.replicas)} replica{'s' if len(self.replicas) > 1 else ''}, {outcome.replica_s / 3600:,.2f} "
            f"replica hours, {busy / outcome.replica_s if outcome.replica_s else 0:.1%} of them busy"
        ]
        shown = self.replicas if len(self.replicas) <= MOST_NAMED_REPLICAS else ()
        lines += [
            f"  {each.name:<6}{each.requests:>8,} requests{each.steps:>10,} steps{each.busy_share:>8.1%} busy"
            f"{each.hit_share:>8.1%} of prompt tokens cached{each.preemptions:>6,} preemptions"
            for each in shown
        ]
        if outcome.traffic.transfers:
            traffic = outcome.traffic
            lines.append(
                f"{traffic.transfers:,} KV transfers, {traffic.bytes / 1e9:,.2f} GB, on average "
                f"{1e3 * traffic.on_the_way_s / traffic.transfers:.2f} ms on the way after "
                f"{1e3 * traffic.wait_s / traffic.transfers:.2f} ms of waiting for a link"
            )
        if (disk := self._disk) is not None:
            lines.append(
                f"disk: {disk.read_tokens:,} tokens of prompts read in {disk.read_bytes / 1e9:,.2f} GB, "
                f"{disk.written_bytes / 1e9:,.2f} GB written, {disk.refused:,} readings not worth it"
            )
        if len(outcome.scaling) > 1:
            most = max(count for _, count in outcome.scaling)
            lines.append(f"scaled {len(outcome.scaling) - 1:,} times, to at most {most} replicas")
        return lines


def make_report(
    title: str, load: str, setup: Mapping[str, Any], outcome: FleetOutcome, objectives: Objectives, computed_s: float
) -> SimulationReport:
    """Makes the report of one run."""
    seen = [each.observation() for each in outcome.seen]
    return SimulationReport(
        title,
        load,
        setup,
        figures(seen, objectives),
        other_tools(seen, objectives),
        tuple(_figures_of(member, outcome.end_s) for member in outcome.members),
        outcome,
        computed_s,
    )


def _figures_of(member: Member, end_s: float) -> ReplicaFigures:
    replica = member.replica
    gauges = replica.scheduler.gauges()
    paid_s = (end_s if member.to_s is None else member.to_s) - member.from_s
    return ReplicaFigures(
        replica.name,
        member.served,
        replica.steps,
        replica.busy_s / paid_s if paid_s > 0 else 0.0,
        gauges.preemptions_total,
        gauges.prefix_hit_tokens / gauges.prefix_query_tokens if gauges.prefix_query_tokens else 0.0,
    )
