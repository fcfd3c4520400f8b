"""The ledger and explain on the embedded model: parts are compared with a clock outside, and causes are deliberate."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from twostroke.assembly import engine as assemble
from twostroke.assembly.find import find_model
from twostroke.cost.explain.explanation import CauseKind, Explanation
from twostroke.cost.history.record import RequestRecord, StepRecord
from twostroke.cost.history.record_json import read_lines
from twostroke.engine.async_engine import AsyncEngine
from twostroke.llm import LLM
from twostroke.runner.runner import ModelRunner
from twostroke.types.output import Delta, Prompt
from twostroke.types.plan import Plan
from twostroke.types.result import StepResult
from twostroke.types.sampling.sampling_params import SamplingParams

SMALL = {"kv_memory": "4MB", "context": 1024, "threads": 1, "max_step_tokens": 128, "max_sequences": 4}


def prompt(name: str, length: int, answer: int, seed: int = 0) -> Prompt:
    ids = tuple(100 + (seed * 131 + i * 17 + i * i * (seed + 1)) % 3000 for i in range(length))
    return Prompt(ids, SamplingParams(temperature=0.0, max_tokens=answer, ignore_eos=True), name)


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM("spark", **SMALL) as made:
        made.engine.generate([prompt("warm", 200, 20, 99)])
        yield made


def avoidable(found: Explanation) -> list[CauseKind]:
    """The kinds, those with most seconds first, without the effect of other programs on this machine."""
    kinds = [cause.kind for cause in found.causes if not cause.kind.is_work]
    return [kind for kind in kinds if kind is not CauseKind.BUSY]


def cause_of(llm: LLM, name: str, kind: CauseKind) -> tuple[str, tuple[str, ...]]:
    (found,) = llm.explain(name)
    return next((cause.text, cause.who) for cause in found.causes if cause.kind is kind)


def test_parts_add_up_to_what_an_outside_clock_sees(llm: LLM) -> None:
    """Six requests run at once in four places. A clock outside is read before and after the times that the parts cover:
    from the arrival to the last token, which is computed after the token before it was seen."""
    prompts = [prompt(f"sum{i}", 20 + 40 * i, 60 + 10 * i, i) for i in range(6)]
    began_s, first_s, ended = time.perf_counter(), 0.0, 0
    seen_s: dict[str, float] = {}
    for delta in llm.engine.stream(prompts):
        now_s = time.perf_counter()
        first_s = first_s or now_s
        if delta.finish_reason is not None:
            assert delta.timings is not None and delta.timings.parts is not None
            total_s = delta.timings.parts.total_s
            assert total_s == pytest.approx(delta.timings.e2e_s, rel=1e-9)
            assert seen_s[delta.request_id] - first_s <= total_s <= now_s - began_s
            ended += 1
        seen_s[delta.request_id] = now_s
    assert ended == 6


def test_parts_add_up_with_many_tasks_and_slow_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second reader takes its first piece at once, and the rest long after its request has ended."""
    heart = assemble.build_heart(find_model("spark", SMALL), None, lambda sentence: None)
    engine = AsyncEngine(heart.stepper)
    begun = {f"task{number}": threading.Event() for number in range(8)}
    compute = ModelRunner.execute

    def execute(runner: ModelRunner, plan: Plan) -> StepResult:
        for each in plan.sequences:
            if each.num_output_tokens >= 2:  # otherwise all pieces may come at once, and none is unread
                begun[each.request.group_id].wait(60)
        return compute(runner, plan)

    async def ask(number: int) -> None:
        name, began_s, last = f"task{number}", time.perf_counter(), None
        async for delta in engine.stream(prompt(name, 60, 80, number)):
            last, taken_s = delta, time.perf_counter()
            if number % 2 and not begun[name].is_set():
                begun[name].set()
                while not heart.session.ledger.accounts.find(name):
                    await asyncio.sleep(0.001)
                await asyncio.sleep(time.perf_counter() - began_s)
            begun[name].set()
        assert last is not None and last.timings is not None and last.timings.parts is not None
        assert last.timings.parts.total_s <= taken_s - began_s
        (account,) = heart.session.ledger.accounts.find(name)
        assert account.parts == last.timings.parts
        if number % 2:
            assert account.unread_s > 0

    monkeypatch.setattr(ModelRunner, "execute", execute)

    async def main() -> None:
        await engine.start()
        await asyncio.gather(*map(ask, range(8)))
        (stalled,) = heart.explainer.explain("task7")
        assert CauseKind.CLIENT in avoidable(stalled)
        await engine.stop()

    with heart:
        asyncio.run(main())


def test_a_full_batch_is_named_with_the_requests_in_it(llm: LLM) -> None:
    busy = [prompt(f"busy{i}", 30, 60, i) for i in range(4)]
    llm.engine.generate([*busy, prompt("late", 20, 4, 7)])
    (found,) = llm.explain("late")
    assert avoidable(found)[0] is CauseKind.QUEUE and found.verdict == "slow to start"
    text, who = cause_of(llm, "late", CauseKind.QUEUE)
    assert "places of the batch" in text and set(who) >= {"busy0/0", "busy3/0"}


def test_a_long_prompt_that_stretches_gaps_is_named(llm: LLM) -> None:
    victim = llm.engine.stream([prompt("victim", 20, 60, 1)])
    seen: list[Delta] = [next(victim) for _ in range(10)]
    with closing(llm.engine.stream([prompt("long", 800, 2, 2)])) as long:
        next(long)
        seen += victim
        list(long)
    assert seen[-1].num_output_tokens == 60
    text, who = cause_of(llm, "victim", CauseKind.STRETCHED)
    assert who == ("long/0",) and "long (" in text and "the gap after token" in text


def test_preemption_is_named_with_by_whom() -> None:
    with LLM("spark", **{**SMALL, "kv_memory": "1MB", "kv_format": "bf16", "context": 320}) as llm:
        llm.engine.generate([prompt("old", 150, 160, 1), prompt("young", 120, 160, 2)])
        (found,) = llm.explain("young")
        text, who = cause_of(llm, "young", CauseKind.PREEMPTED)
    assert who == ("old/0",) and "put back" in text and found.verdict == "slow to stream"


def test_a_changed_beginning_is_named_with_its_position(llm: LLM) -> None:
    first = prompt("base", 600, 2, 5)
    llm.engine.generate([first])
    ids = list(first.token_ids)
    ids[37] = 99
    llm.engine.generate([Prompt(tuple(ids), first.params, "changed")])
    (found,) = llm.explain("changed")
    text, _ = cause_of(llm, "changed", CauseKind.PREFIX)
    assert "differs from a cached prompt at position 37" in text and "32 of 600" in text
    assert avoidable(found)[0] is CauseKind.PREFIX


def test_a_reader_that_sleeps_is_named(llm: LLM) -> None:
    began_s, paused_s = time.monotonic(), 0.0
    for _ in llm.engine.stream([prompt("sleepy", 20, 12, 3)]):
        pause_s = max(0.02, (time.monotonic() - began_s - paused_s) / 4)  # the pauses together are longer than all else
        time.sleep(pause_s)
        paused_s += pause_s
    (found,) = llm.explain("sleepy")
    assert avoidable(found)[0] is CauseKind.CLIENT and found.verdict == "slow to stream"
    assert found.parts_s["client_stall_s"] >= 11 * 0.02


def test_a_trace_holds_every_step_and_every_end(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    with LLM("spark", **SMALL, trace=str(path)) as llm:
        outputs = llm.engine.generate([prompt(f"t{i}", 100 + i, 10, i) for i in range(6)])
        assert not path.exists()
    records = list(read_lines(path.read_text().splitlines(), ""))
    steps = [record for record in records if isinstance(record, StepRecord)]
    ends = [record for record in records if isinstance(record, RequestRecord)]
    assert [step.step_id for step in steps] == list(range(1, len(steps) + 1))
    assert all(step.predicted is not None and step.model_s > 0 for step in steps)
    assert {end.request_id for end in ends} == {f"{output.request_id}/0" for output in outputs}
    made = [each for step in steps for each in step.sequences if each.segment.samples]
    assert len(made) == sum(end.num_output_tokens for end in ends) == 60
    for end in ends:
        assert sum(end.parts_s.values()) == pytest.approx(end.finished_s - end.arrival_s)
