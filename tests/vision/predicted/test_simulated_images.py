"""The simulator has the phase encode. Its time passes in pieces next to streams, else in the step that needs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec import structs

from tests.scheduler.fakes import LineCost
from tests.vision.folders import smolvlm
from tests.vision.predicted.costs import PartsCost, RowCost, encode_cost_of
from twostroke.cli.main import main
from twostroke.cost.encode_pieces import EncodePiece
from twostroke.cost.span_pieces import SpanCost
from twostroke.engine.scheduler.limits.gap_limiter import GapRule
from twostroke.engine.scheduler.limits.image_turns import UNBOUND_S
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.lab.sim.clock import VirtualClock
from twostroke.lab.sim.fleet.fleet import Fleet, FleetOutcome, FleetPlan
from twostroke.lab.sim.fleet.routing import LeastLoaded
from twostroke.lab.sim.fleet.transfer import Link
from twostroke.lab.sim.images import EncodingExecutor, SimulatedImages
from twostroke.lab.sim.predicted import PredictedExecutor
from twostroke.lab.sim.prompts import heart_request
from twostroke.lab.sim.setup import ReplicaSetup
from twostroke.lab.workload.request import WorkloadRequest
from twostroke.types.encode import PieceKind, PieceTime
from twostroke.types.plan import Plan, Role
from twostroke.types.result import StepResult

IMAGES = SimulatedImages((16, 16), 36, encode_cost_of(RowCost(0.0, 0.003, 0.0), 4, layers=8))
ROW_S = 0.001
"""The time that a step takes for each of its rows."""
ENCODE_S = IMAGES.cost.seconds(16)


class Noted(EncodingExecutor):
    """Keeps every step."""

    steps: list[tuple[Plan, StepResult]]

    def execute(self, plan: Plan) -> StepResult:
        result = super().execute(plan)
        self.steps.append((plan, result))
        return result


LARGE = SimulatedImages((1024,), 1028, encode_cost_of(RowCost(0.0, 0.00125, 0.0), 32, layers=8))
"""An image of 32,768 patches, whose encode takes 84 s."""


WRONG = {PieceKind.PATCHES: 2.5, PieceKind.PRODUCTS: 0.5, PieceKind.ATTENTION: 0.07, PieceKind.HEAD: 0.25}
"""Factors by which a cost model may be wrong: those of a guessed one, measured with Qwen3-VL's tower."""


class Misjudged(Noted):
    """Pieces take other times than predicted, by kind."""

    def _time(self, piece: EncodePiece) -> PieceTime:
        return PieceTime(piece.kind, piece.seconds, WRONG[piece.kind] * piece.seconds)


def run(
    *asked: WorkloadRequest,
    images: SimulatedImages = IMAGES,
    rule: GapRule | None = None,
    step_tokens: int = 64,
    machine: type[Noted] = Noted,
    context: int = 2048,
    spans: SpanCost | None = None,
) -> tuple[list[tuple[Plan, StepResult]], float, list[float]]:
    """Runs steps until all requests end; requests with a prompt of 50 tokens or more have images. Returns the steps,
    the seconds, and those of each step. spans: the cost of spans that are computed in pieces."""
    clock, steps, lengths = VirtualClock(), list[tuple[Plan, StepResult]](), list[float]()
    limits, cost = SchedulerLimits(step_tokens, 4), LineCost(row_s=ROW_S)
    setup = ReplicaSetup(cost, 999, limits, context, 1, images=images, gap_rule=rule)  # type: ignore[arg-type]
    _, scheduler = setup.heart()
    scheduler.spans.cost = spans
    executor = machine(PredictedExecutor(cost, clock), images, clock)  # type: ignore[arg-type]
    executor.steps = steps
    later = [images.shown_by(heart_request(each, number, str(number))) for number, each in enumerate(asked)]
    while True:
        while later and later[0].arrival_s <= clock():
            scheduler.add(later.pop(0))
        if (plan := scheduler.schedule(clock())) is None:
            break
        begin_s = clock()
        scheduler.commit(plan, executor.execute(plan), clock())
        lengths.append(clock() - begin_s)
    return steps, clock(), lengths


def test_alone_an_encode_takes_its_time_in_the_step_that_needs_it() -> None:
    steps, seconds, _ = run(WorkloadRequest(0.0, 50, 3))
    plain, without, _ = run(WorkloadRequest(0.0, 30, 3))
    assert sum(result.encode_s for _, result in steps) == pytest.approx(2 * ENCODE_S)
    assert not any(result.encode_s for _, result in plain) and seconds > without + 1.9 * ENCODE_S
    assert all(plan.encode is None for plan, _ in steps)


def test_next_to_a_stream_it_is_done_in_pieces() -> None:
    steps, _, _ = run(WorkloadRequest(0.0, 30, 60), WorkloadRequest(0.0, 50, 3))
    pieces = [(plan, result) for plan, result in steps if plan.encode is not None]
    assert len(pieces) > 2 and sum(result.encode_s for _, result in steps) == pytest.approx(2 * ENCODE_S)
    assert all(0 < result.encode_s <= UNBOUND_S * 1.0001 for _, result in pieces)
    assert all(any(each.samples for each in plan.sequences) for plan, _ in pieces)


def test_no_gap_grows_beyond_the_rule_while_a_large_image_is_encoded() -> None:
    """In predicted seconds, every step with a stream keeps 250 ms, and most of them use what the stream leaves."""
    rule = GapRule()
    steps, _, lengths = run(WorkloadRequest(0.0, 30, 500), WorkloadRequest(0.2, 1040, 3), images=LARGE, rule=rule)
    beside = [seconds for (plan, _), seconds in zip(steps, lengths, strict=True) if plan.encode is not None]
    assert len(beside) > 300 and all(each <= rule.least_s for each in lengths)
    assert sum(beside) > 0.8 * rule.least_s * len(beside)
    assert sum(result.encodes.pieces for _, result in steps) > len(beside)
    assert sum(result.encode_s for _, result in steps) == pytest.approx(LARGE.cost.seconds(1024))


def test_no_gap_grows_beyond_the_rule_where_each_kind_of_piece_takes_another_time_than_predicted() -> None:
    """A step may end the attention of a layer and go on with its products, whose predictions err by other factors."""
    rule = GapRule()
    cost = encode_cost_of(PartsCost(0.0002, 3e-7), 4, layers=8)
    images = SimulatedImages((4096,), 4100, cost)
    asked = WorkloadRequest(0.0, 30, 900), WorkloadRequest(0.2, 4110, 3)
    steps, _, lengths = run(*asked, images=images, rule=rule, machine=Misjudged, context=8192)
    beside = [seconds for (plan, _), seconds in zip(steps, lengths, strict=True) if plan.encode is not None]
    kinds = [len({each.kind for each in result.encodes.times}) for _, result in steps]
    assert max(kinds) > 1 and all(each <= rule.least_s for each in lengths)
    assert len(beside) > 30 and sum(beside) > 0.75 * rule.least_s * len(beside), "the time is used"


class Crowded(Noted):
    """What a step computes next to pieces of an image takes 80 ms longer than without them: the pieces leave nothing in
    the caches."""

    def execute(self, plan: Plan) -> StepResult:
        result = super().execute(plan)
        if plan.encode is not None:
            self._clock.advance(0.08)
        return result


def test_what_sequences_take_next_to_pieces_is_learned() -> None:
    """The first steps with pieces are longer than planned, and no later ones."""
    rule = GapRule()
    asked = WorkloadRequest(0.0, 30, 500), WorkloadRequest(0.2, 1040, 3)
    steps, _, lengths = run(*asked, images=LARGE, rule=rule, machine=Crowded)
    pairs = zip(steps, lengths, strict=True)
    beside = [seconds for (plan, _), seconds in pairs if plan.encode and plan.sequences[0].role is Role.DECODE]
    assert max(beside[:2]) > rule.least_s and all(each <= rule.least_s for each in beside[2:])
    assert len(beside) > 300 and sum(beside) > 0.7 * rule.least_s * len(beside)


def test_an_encode_and_a_prompt_share_what_a_stream_leaves() -> None:
    """Neither waits for the end of the other, and the rule is kept."""
    rule = GapRule()
    asked = WorkloadRequest(0.0, 30, 600), WorkloadRequest(0.2, 1040, 3), WorkloadRequest(0.2, 1000, 3)
    steps, _, lengths = run(*asked, images=LARGE, rule=rule)
    both = [
        plan
        for plan, result in steps
        if result.encodes.pieces and any(each.request.group_id == "2" for each in plan.sequences)
    ]
    assert len(both) > 10 and all(each <= rule.least_s for each in lengths)


def test_the_command_counts_encodes(tmp_path: Path) -> None:
    smolvlm(tmp_path)
    words = ["simulate", "--model", str(tmp_path), "--hardware", "h100-sxm", "--rate", "20", "--json"]
    words += ["--requests", "20", "--prompt", "300", "--output", "8", "--context", "1024"]
    seen, blind = (
        json.loads(CliRunner().invoke(main, [*words, *more], catch_exceptions=False).stdout)
        for more in (["--image", "64x64"], [])
    )
    assert _ttft_s(seen) > _ttft_s(blind) > 0
    for more, said in ((["--image", "64"], "WIDTHxHEIGHT"), (["--encoder-weights", "int16"], "without --image")):
        wrong = CliRunner().invoke(main, [*words, *more])
        assert wrong.exit_code == 2 and said in wrong.output


def test_the_command_counts_encodes_of_ranks(tmp_path: Path) -> None:
    smolvlm(tmp_path)
    words = ["simulate", "--model", str(tmp_path), "--hardware", "h100-sxm", "--requests", "4", "--rate", "2", "--json"]
    words += ["--exchange-time", "40us", "--exchange-rate", "10Gbit/s", "--tensor-parallel", "2"]
    plain, seeing = (
        json.loads(CliRunner().invoke(main, [*words, *more], catch_exceptions=False).stdout)
        for more in ([], ["--image", "64x64"])
    )
    assert _ttft_s(seeing) > _ttft_s(plain)
    refused = CliRunner().invoke(main, [*words[:-2], "--pipeline-parallel", "2", "--image", "64x64"])
    assert refused.exit_code == 2 and "not simulated with stages" in refused.output


def _ttft_s(report: Any) -> float:
    return float(report["figures"]["ttft"]["p50"])


def fleet(encoders: int, count: int = 12, link: float = 1e12) -> FleetOutcome:
    """A stream that goes on, and prompts with images of their own next to it."""
    images = structs.replace(IMAGES, row_bytes=1000)
    limits, cost = SchedulerLimits(64, 16), LineCost(row_s=ROW_S)
    setup = ReplicaSetup(cost, 999, limits, 2048, 1000, images=images, gap_rule=GapRule())  # type: ignore[arg-type]
    asked = [WorkloadRequest(0.0, 30, 600), *(WorkloadRequest(0.1 + place, 60, 4) for place in range(count))]
    return Fleet(FleetPlan(setup, link=Link(link), encoders=encoders), LeastLoaded()).run(asked)


def test_an_encoder_of_a_fleet_takes_encodes_from_the_steps_of_streams() -> None:
    alone, helped, slow = fleet(0), fleet(1), fleet(1, link=10.0)
    assert alone.traffic.transfers == slow.traffic.transfers == 0, "over such a link each encodes for itself"
    assert helped.traffic.transfers == 12 and helped.traffic.bytes == 12 * 32 * 1000
    assert all(each.error == "" for each in helped.seen) and len(helped.members) == 2
    busy = {member.replica.name: member.replica.busy_s for member in helped.members}
    assert busy["e0"] == pytest.approx(12 * 2 * ENCODE_S)
    assert busy["r0"] < alone.members[0].replica.busy_s - busy["e0"] / 2
    first = [[each.times_s[0] - each.asked.arrival_s for each in outcome.seen[1:]] for outcome in (helped, alone)]
    assert sum(first[0]) < sum(first[1])


def test_the_command_has_encoders(tmp_path: Path) -> None:
    smolvlm(tmp_path)
    words = ["simulate", "--model", str(tmp_path), "--hardware", "h100-sxm", "--rate", "20", "--json"]
    words += ["--requests", "20", "--prompt", "300", "--output", "8", "--context", "1024", "--encoders", "2"]
    found = json.loads(CliRunner().invoke(main, [*words, "--image", "64x64"], catch_exceptions=False).stdout)
    assert found["setup"]["encoders"] == 2 and len(found["fleet"]["replicas"]) == 3
    wrong = CliRunner().invoke(main, words)
    assert wrong.exit_code == 2 and "--encoders belongs to --image" in wrong.output
