"""The figures of the simulator do not drift: a change of its speed leaves them as they were.

Where a change of policy is intended, the expected digests change with it, and the change names this. Loads are drawn
without logarithms, and times are compared to the nanosecond, because Python versions do not add floats alike in the
last bit.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from dataclasses import asdict, replace

import pytest

from tests.sim.machines import setup
from tests.tiers import fewer, rest_daily, thinned
from twostroke.cost.history.record_json import record_line
from twostroke.engine.scheduler.limits.gap_limiter import GapRule
from twostroke.lab.sim.fleet.autoscale import Autoscale
from twostroke.lab.sim.fleet.fleet import Fleet, FleetOutcome, FleetPlan
from twostroke.lab.sim.fleet.routing import LeastLoaded, PrefixAffinity
from twostroke.lab.sim.recorder import StepRecorder
from twostroke.lab.sim.report import make_report
from twostroke.lab.workload.objectives import Objectives
from twostroke.lab.workload.request import WorkloadRequest
from twostroke.types.objectives import LatencyObjectives

FRACTION = re.compile(r"-?\d+(\.\d+(e[+-]?\d+)?|e[+-]?\d+)")


def load(seed: int, count: int, gap_ms: int) -> list[WorkloadRequest]:
    """Bursts and pauses, shared beginnings, short and long answers, some of them batch work."""
    dice = random.Random(seed)
    found, now_ms = [], 0
    for _ in range(count):
        now_ms += dice.choice([0, 1, gap_ms, 3 * gap_ms])
        prompt, blocks = dice.randint(1, 300), ()
        if dice.randrange(2):
            blocks = tuple(dice.choice([(0, 1, 2, 3), (0, 1, 7, 8), (5, 6)]))[: prompt // 16]
        output = dice.choice([1, 2, dice.randint(1, 40), dice.randint(40, 200)])
        priority = dice.choice([0, 0, 0, 1])
        found.append(WorkloadRequest(now_ms / 1024, prompt, output, blocks, 16, priority=priority))
    return found


def digest(outcome: FleetOutcome, recorder: StepRecorder | None) -> str:
    """A digest of the report, each token's time, the replicas' counters, and each record where there are some."""
    text: list[str] = []
    report = make_report("a test", "a load", {}, outcome, Objectives(ttft_s=0.1, itl_s=0.02), 1.0)
    text.append(json.dumps(report.as_json(), sort_keys=True))
    for seen in outcome.seen:
        text.append(repr((seen.times_s, seen.ended_s, seen.cached_tokens, seen.preemptions, seen.error)))
    for member in outcome.members:
        replica = member.replica
        gauges = asdict(replica.scheduler.gauges()).items()  # names of adapters are no figures, and neither are guesses
        counts = {name: value for name, value in gauges if not isinstance(value, frozenset) and name != "guesses"}
        text.append(repr((replica.steps, replica.busy_s, counts)))
    for records in recorder.records.values() if recorder is not None else ():
        text += map(record_line, records)
    whole = FRACTION.sub(lambda found: f"{round(float(found[0]), 9) + 0.0:.9f}", "\n".join(text))
    return hashlib.sha256(whole.encode()).hexdigest()[:20]


TIGHT = setup(num_pages=60, step_tokens=64, sequences=8)
WIDE = setup(num_pages=2000, step_tokens=256, sequences=64, machine="h100-sxm")
KEPT = replace(setup(num_pages=400), promised=LatencyObjectives(0.1, 0.02))
EVEN = replace(setup(num_pages=400, step_tokens=256), gap_rule=GapRule(0.002, 3))
SCALED = Autoscale(1, 5, 4.0, 0.05, 0.1, 0.5)

CASES: dict[str, tuple[FleetPlan, list[WorkloadRequest], str, str]] = {
    "tight": (FleetPlan(TIGHT), load(1, 120, 20), "d7b1332f484634e7d76d", "e851404beeb575463424"),
    "full": (FleetPlan(WIDE), load(2, 300, 1), "fade7252c401022cd6fb", "601e671978a918e43936"),
    "objectives": (FleetPlan(KEPT), load(3, 200, 2), "df8405bc05b98468530c", "07a90df8ebfa9fb66df7"),
    "gaps": (FleetPlan(EVEN), load(7, 200, 20), "89bf380c27a267653b2f", "ffd77788ddc8a5977aad"),
    "fleet": (FleetPlan(TIGHT, 3), load(4, 150, 4), "9b835e1c92a55e4ced27", "e1c05c95e901112f3982"),
    "split": (FleetPlan(TIGHT, 2, 2), load(5, 100, 8), "fb6831eced0bfa920892", "0b427787883854dd0e19"),
    "scaled": (FleetPlan(TIGHT, autoscale=SCALED), load(6, 200, 10), "386586931907553e75e7", "660c4bec49192ddbc7f4"),
}
"""name: (what runs, load, digest of the whole run, digest of a run that keeps records)."""


@pytest.mark.parametrize("name", rest_daily(CASES, thinned(list(CASES), "figures", fewer(4, quick=1))))
def test_figures_and_records_are_those_that_were(name: str) -> None:
    plan, asked, expected, expected_records = CASES[name]
    recorder = StepRecorder()
    assert digest(Fleet(plan, PrefixAffinity()).run(asked), None) == expected
    assert digest(Fleet(plan, LeastLoaded(), recorder).run(asked), recorder) == expected_records


def test_the_cases_hold_what_is_hard() -> None:
    """They contain preemptions, evictions, cached prefixes and refusals. Without them the digests would prove
    little."""
    tight = Fleet(CASES["tight"][0], LeastLoaded()).run(CASES["tight"][1])
    gauges = tight.members[0].replica.scheduler.gauges()
    assert gauges.preemptions_total > 0 and gauges.prefix_hit_tokens > 0
    full = Fleet(CASES["full"][0], LeastLoaded()).run(CASES["full"][1])
    assert sum(len(seen.times_s) for seen in full.seen) / full.members[0].replica.steps > 20
    kept = Fleet(CASES["objectives"][0], LeastLoaded()).run(CASES["objectives"][1])
    assert any(seen.error for seen in kept.seen) and any(seen.times_s for seen in kept.seen)
    scaled = Fleet(CASES["scaled"][0], LeastLoaded()).run(CASES["scaled"][1])
    assert len(scaled.scaling) > 3


def test_the_default_rule_shortens_the_gaps_of_streams() -> None:
    """The same load runs with the rule, and with steps that are filled."""
    longest_s = []
    for rule in (EVEN.gap_rule, None):
        plan = FleetPlan(replace(EVEN, gap_rule=rule))
        seen = Fleet(plan, LeastLoaded()).run(CASES["gaps"][1]).seen
        longest_s.append(max(b - a for each in seen for a, b in zip(each.times_s, each.times_s[1:], strict=False)))
    assert longest_s[0] < 0.6 * longest_s[1]
