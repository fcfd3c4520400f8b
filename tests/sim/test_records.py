"""Records of simulated steps: a well-formed Chrome trace, and a replay that gives the same times again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.sim.machines import cost_of, setup
from twostroke.cost.history.perfetto import trace
from twostroke.cost.history.record import RequestRecord, StepRecord
from twostroke.cost.history.record_json import Record, header_line, read_lines, record_line
from twostroke.lab.sim.fleet.fleet import Fleet, FleetOutcome, FleetPlan
from twostroke.lab.sim.fleet.routing import LeastLoaded
from twostroke.lab.sim.recorder import StepRecorder
from twostroke.lab.sim.replay import step_errors, workload_of
from twostroke.lab.workload.request import WorkloadRequest
from twostroke.lab.workload.synthetic import NAMED, Load
from twostroke.types.errors import ConfigError


def recorded(load: list[WorkloadRequest], **sizes: Any) -> tuple[FleetOutcome, StepRecorder]:
    recorder = StepRecorder()
    return Fleet(FleetPlan(setup(**sizes)), LeastLoaded(), recorder).run(load), recorder


@pytest.fixture(scope="module")
def crowded() -> tuple[FleetOutcome, StepRecorder]:
    """A pool so small that requests are preempted."""
    load = [WorkloadRequest(0.001 * number, 100, 120) for number in range(12)]
    return recorded(load, num_pages=60)


def test_lanes_hold_steps_and_requests(crowded: tuple[FleetOutcome, StepRecorder]) -> None:
    outcome, recorder = crowded
    assert outcome.members[0].replica.scheduler.gauges().preemptions_total > 0
    events = trace(recorder.records)["traceEvents"]
    lanes = {each["tid"]: each["args"]["name"] for each in events if each["name"] == "thread_name"}
    assert sorted(lanes.values()) == sorted(["steps", *(str(number) for number in range(12))])
    slices = [each for each in events if each["ph"] == "X"]
    for lane in lanes:
        own = sorted((each["ts"], each["ts"] + each["dur"]) for each in slices if each["tid"] == lane)
        assert all(end <= begin + 0.002 for (_, end), (begin, _) in zip(own, own[1:], strict=False)), "slices overlap"
    steps = [each for each in slices if each["tid"] == 0]
    assert len(steps) == outcome.members[0].replica.steps
    named = {each["name"] for each in slices if each["tid"]}
    assert named == {"queued", "prefill", "decode", "computed again"}
    assert (
        sum(each["name"] == "preempted" for each in events)
        == outcome.members[0].replica.scheduler.gauges().preemptions_total
    )
    assert min(each["ts"] for each in events if "ts" in each) == 0.0


def test_slices_add_up_to_a_request(crowded: tuple[FleetOutcome, StepRecorder]) -> None:
    outcome, recorder = crowded
    events = trace(recorder.records)["traceEvents"]
    decoded = sum(each["args"]["tokens"] for each in events if each["ph"] == "X" and each["name"] == "decode")
    prefills = sum(
        isinstance(record, StepRecord)
        and sum(part.segment.samples for part in record.sequences if not part.num_output_tokens)
        for record in recorder.records["r0"]
    )
    again = sum(
        part.segment.samples
        for record in recorder.records["r0"]
        if isinstance(record, StepRecord)
        for part in record.sequences
        if part.num_output_tokens and (part.num_recomputed_tokens or part.segment.num_tokens > 1)
    )
    assert decoded + prefills + again == sum(len(seen.times_s) for seen in outcome.seen)


@pytest.mark.parametrize("name", sorted(NAMED))
def test_a_replay_of_records_gives_the_same_times(name: str) -> None:
    load = NAMED[name](Load(20.0, 40, 5, 0.2))
    outcome, recorder = recorded(load, num_pages=2000)
    lines = [header_line(), *(record_line(record) for record in recorder.records["r0"])]
    again = workload_of(read_lines(lines, "steps"), "steps")
    begin_s = load[0].arrival_s
    assert [(each.prompt_tokens, each.output_tokens, each.priority) for each in again] == [
        (each.prompt_tokens, each.output_tokens, each.priority) for each in load
    ]
    replayed, _ = recorded(again, num_pages=2000)
    for first, second in zip(outcome.seen, replayed.seen, strict=True):
        assert second.cached_tokens == first.cached_tokens
        assert [time_s + begin_s for time_s in second.times_s] == pytest.approx(first.times_s, abs=1e-6)


def test_prompts_that_were_scored_are_scored_again_in_the_replay() -> None:
    shared = tuple(range(6))
    load = [
        WorkloadRequest(0.0, 100, 3, shared, 16),
        WorkloadRequest(0.5, 100, 0, shared, 16, scored=True),  # an evaluation, which asks only for log probabilities
        WorkloadRequest(1.0, 96, 4, shared, 16, scored=True),
        WorkloadRequest(1.5, 100, 2, shared, 16),
    ]
    outcome, recorder = recorded(load, num_pages=200, step_tokens=64)
    records = recorder.records["r0"]
    rows = [
        (part.request_id, part.segment.scored)
        for record in records
        if isinstance(record, StepRecord)
        for part in record.sequences
        if part.segment.scored
    ]
    assert sum(scored for name, scored in rows if name == "1") == 99 and len(rows) == 4, "two chunks each"
    assert [seen.cached_tokens for seen in outcome.seen] == [0, 0, 0, 96]
    again = workload_of(read_lines([header_line(), *map(record_line, records)], "steps"), "steps")
    assert [(each.prompt_tokens, each.output_tokens, each.scored) for each in again] == [
        (each.prompt_tokens, each.output_tokens, each.scored) for each in load
    ]
    replayed, once_more = recorded(again, num_pages=200, step_tokens=64)
    assert [seen.cached_tokens for seen in replayed.seen] == [seen.cached_tokens for seen in outcome.seen]
    for first, second in zip(outcome.seen, replayed.seen, strict=True):
        assert second.times_s == pytest.approx(first.times_s) and second.ended_s == pytest.approx(first.ended_s)
    arguments = [event["args"] for event in trace(once_more.records)["traceEvents"] if "args" in event]
    assert sum(each.get("scored_rows", 0) for each in arguments) == 99 + 95


def test_a_file_of_version_1_says_nothing_of_scores_and_is_replayed_without() -> None:
    _, recorder = recorded([WorkloadRequest(0.0, 40, 3), WorkloadRequest(0.1, 40, 0, scored=True)])
    lines = [json.loads(record_line(record)) for record in recorder.records["r0"]]
    for line in lines:
        line["sequences"] = [row[:6] for row in line.get("sequences", [])]
    old = ['{"twostroke_steps": 1}', *map(json.dumps, lines)]
    again = workload_of(read_lines(old, "steps"), "steps")
    assert [(each.output_tokens, each.scored) for each in again] == [(3, False)]


def test_a_scored_prompt_is_read_where_prompts_are_read_and_scored_once() -> None:
    load = [WorkloadRequest(0.0, 80, 5, scored=True), WorkloadRequest(0.1, 80, 0, scored=True)]
    recorder = StepRecorder()
    plan = FleetPlan(setup(), decoders=1)
    outcome = Fleet(plan, LeastLoaded(), recorder).run(load)
    assert [len(seen.times_s) for seen in outcome.seen] == [5, 0] and not any(seen.error for seen in outcome.seen)
    scored = sum(
        part.segment.scored
        for records in recorder.records.values()
        for record in records
        if isinstance(record, StepRecord)
        for part in record.sequences
    )
    assert scored == 2 * 79


def test_records_without_ended_requests_are_replayed_from_their_steps() -> None:
    _, recorder = recorded([WorkloadRequest(0.0, 100, 10), WorkloadRequest(0.001, 30, 4)])
    steps: list[Record] = [record for record in recorder.records["r0"] if isinstance(record, StepRecord)]
    assert [(each.prompt_tokens, each.output_tokens) for each in workload_of(steps, "steps")] == [(100, 10), (30, 4)]
    with pytest.raises(ConfigError, match="no request was answered"):
        workload_of([], "steps")


def test_step_errors_are_none_for_the_model_itself_and_large_for_another() -> None:
    _, recorder = recorded([WorkloadRequest(0.0, 100, 10), WorkloadRequest(0.001, 30, 4)])
    same = step_errors(recorder.records["r0"], cost_of("measured"))
    assert same.decode is not None and same.mixed is not None
    assert abs(same.total) < 1e-9 and same.decode.high < 1e-9
    assert step_errors(recorder.records["r0"], cost_of("h100-sxm")).total < -0.05


def test_the_parts_of_a_simulated_request_add_up(crowded: tuple[FleetOutcome, StepRecorder]) -> None:
    ended = [record for record in crowded[1].records["r0"] if isinstance(record, RequestRecord)]
    assert len(ended) == 12
    for record in ended:
        assert sum(record.parts_s.values()) == pytest.approx(record.finished_s - record.arrival_s)
    assert any(record.parts_s["preempted_s"] > 0 for record in ended)
