"""The simulator knows the phase encode: its time passes in pieces next to streams, else in the step that needs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.scheduler.fakes import LineCost
from tests.vision.folders import smolvlm
from twostroke.cli.main import main
from twostroke.cost.encode_cost import EncodeCost
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.lab.sim.clock import VirtualClock
from twostroke.lab.sim.images import PIECES_S, EncodingExecutor, SimulatedImages
from twostroke.lab.sim.predicted import PredictedExecutor
from twostroke.lab.sim.prompts import heart_request
from twostroke.lab.sim.setup import ReplicaSetup
from twostroke.lab.workload.request import WorkloadRequest
from twostroke.types.plan import Plan
from twostroke.types.result import StepResult

IMAGES = SimulatedImages((16, 16), 36, EncodeCost(LineCost(row_s=0.01), 4), 8)
ENCODE_S = IMAGES.cost.seconds(16)


class Noted(EncodingExecutor):
    """Keeps every step."""

    steps: list[tuple[Plan, StepResult]]

    def execute(self, plan: Plan) -> StepResult:
        result = super().execute(plan)
        self.steps.append((plan, result))
        return result


def run(*asked: WorkloadRequest) -> tuple[list[tuple[Plan, StepResult]], float]:
    """Steps until all requests end; those with a prompt of 50 tokens show images. -> the steps, the seconds."""
    clock, steps = VirtualClock(), list[tuple[Plan, StepResult]]()
    setup = ReplicaSetup(LineCost(), 200, SchedulerLimits(64, 4), 1024, 1, images=IMAGES)  # type: ignore[arg-type]
    _, scheduler = setup.heart()
    executor = Noted(PredictedExecutor(LineCost(), clock), IMAGES, clock)  # type: ignore[arg-type]
    executor.steps = steps
    for number, each in enumerate(asked):
        scheduler.add(IMAGES.shown_by(heart_request(each, number, str(number))))
    while (plan := scheduler.schedule(clock())) is not None:
        scheduler.commit(plan, executor.execute(plan), clock())
    return steps, clock()


def test_alone_an_encode_takes_its_time_in_the_step_that_needs_it() -> None:
    steps, seconds = run(WorkloadRequest(0.0, 50, 3))
    plain, without = run(WorkloadRequest(0.0, 30, 3))
    assert sum(result.encode_s for _, result in steps) == pytest.approx(2 * ENCODE_S)
    assert not any(result.encode_s for _, result in plain) and seconds > without + 1.9 * ENCODE_S
    assert all(plan.encode is None for plan, _ in steps)


def test_next_to_a_stream_it_is_done_in_pieces() -> None:
    steps, _ = run(WorkloadRequest(0.0, 30, 60), WorkloadRequest(0.0, 50, 3))
    pieces = [(plan, result) for plan, result in steps if plan.encode is not None]
    assert len(pieces) > 2 and sum(result.encode_s for _, result in steps) == pytest.approx(2 * ENCODE_S)
    piece_s = ENCODE_S / IMAGES.pieces
    assert all(0 < result.encode_s <= PIECES_S + piece_s for _, result in pieces)
    assert all(any(each.samples for each in plan.sequences) for plan, _ in pieces)


def test_the_command_counts_encodes(tmp_path: Path) -> None:
    smolvlm(tmp_path)
    words = ["simulate", "--model", str(tmp_path), "--hardware", "h100-sxm", "--rate", "20", "--json"]
    words += ["--requests", "20", "--prompt", "300", "--output", "8", "--context", "1024"]
    seen, blind = (
        json.loads(CliRunner().invoke(main, [*words, *more], catch_exceptions=False).stdout)
        for more in (["--image", "64x64"], [])
    )
    assert _ttft_s(seen) > _ttft_s(blind) > 0
    wrong = CliRunner().invoke(main, [*words, "--image", "64"])
    assert wrong.exit_code == 2 and "WIDTHxHEIGHT" in wrong.output


def _ttft_s(report: Any) -> float:
    return float(report["figures"]["ttft"]["p50"])
