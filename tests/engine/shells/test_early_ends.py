"""Streams that end early: closed, cancelled, aborted, by a fault, and with the engine. No pages outlive them."""

from __future__ import annotations

import asyncio
import threading
from contextlib import aclosing
from dataclasses import replace

import pytest

from tests.engine.fakes import bench
from tests.engine.shells.running import hold, is_quiet, running, slow_down, until
from twostroke.engine.async_engine import AsyncEngine
from twostroke.engine.core import STEP_FAULT
from twostroke.types.errors import EngineStopped
from twostroke.types.output import Delta
from twostroke.types.plan import Plan
from twostroke.types.request import FinishReason


def test_closing_a_stream_frees_its_pages_before_the_next_plan() -> None:
    made = bench()
    planned: list[set[str]] = []
    gate = threading.Event()

    def look(plan: Plan) -> None:
        planned.append({s.request.group_id for s in plan.sequences})
        if len(planned) >= 5:
            gate.wait(60)

    made.executor.before = look

    async def main() -> None:
        async with running(made) as engine:
            async with aclosing(engine.stream(replace(made.prompt("q", "a"), request_id="gone"))) as stream:
                await anext(stream)
                await until(lambda: len(planned) >= 5)
            # The engine is closed while step 5 runs, so step 6 must not contain the request.
            gate.set()
            await until(lambda: is_quiet(made, engine))
            assert len(planned) == 5

    asyncio.run(main())


def test_a_cancelled_task_frees_its_pages() -> None:
    made, cancelled = bench(), threading.Event()
    hold(made, lambda: not cancelled.is_set())

    async def main() -> None:
        async with running(made) as engine:
            tasks = [asyncio.create_task(engine.generate(made.prompt(f"q{i}", "abc", n=2))) for i in range(5)]
            await until(lambda: engine.gauges().running > 0 and len(engine._streams) == 5)
            for task in tasks[1:]:
                task.cancel()
            await asyncio.sleep(0)
            cancelled.set()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert [isinstance(result, asyncio.CancelledError) for result in results] == [False, *[True] * 4]
            await until(lambda: is_quiet(made, engine))

    asyncio.run(main())
    reasons = [finished.reason for finished, _ in made.observer.finished]
    assert reasons.count(FinishReason.LENGTH) == 2
    assert set(reasons) == {FinishReason.LENGTH, FinishReason.ABORT}


def test_abort_by_id_ends_the_stream() -> None:
    made, aborted = bench(), threading.Event()
    hold(made, lambda: not aborted.is_set())

    async def main() -> None:
        async with running(made) as engine:
            seen: list[Delta] = []
            async for delta in engine.stream(replace(made.prompt("q", "abc", n=2), request_id="x")):
                seen.append(delta)
                if len(seen) == 1:
                    engine.abort("x")
                    aborted.set()
            assert [d.finish_reason for d in seen if d.finish_reason] == [FinishReason.ABORT] * 2
            engine.abort("x")
            engine.abort("never seen")
            await until(lambda: is_quiet(made, engine))
            assert engine.alive

    asyncio.run(main())


@pytest.mark.parametrize("reason", [FinishReason.ERROR, FinishReason.ABORT])
def test_the_text_before_a_fault_is_a_piece_of_its_own(reason: FinishReason) -> None:
    """A fault is raised where its piece is taken, because text that was joined with it would be lost."""
    text, more = Delta("q", 0, "he", (1,)), Delta("q", 0, "llo", (2,))
    both = text.followed_by(more)
    assert both is not None and both.text == "hello" and both.token_ids == (1, 2)
    assert both.followed_by(Delta("q", 0, "", finish_reason=reason, error="why")) is None
    ended = both.followed_by(Delta("q", 0, "!", (3,), finish_reason=FinishReason.STOP))
    assert ended is not None and ended.text == "hello!" and ended.finish_reason is FinishReason.STOP


def test_a_fault_ends_its_plan_and_the_engine_goes_on() -> None:
    made = bench()

    def fail_once(plan: Plan) -> None:
        if made.executor.num_steps == 3:
            raise RuntimeError("secret")

    made.executor.before = fail_once

    async def main() -> None:
        async with running(made) as engine:
            prompt = made.prompt("q", "abc", max_tokens=6)
            broken = (await engine.generate(prompt)).completions[0]
            assert (broken.finish_reason, broken.error) == (FinishReason.ERROR, STEP_FAULT)
            assert (await engine.generate(prompt)).completions[0].finish_reason is FinishReason.LENGTH
            assert engine.alive
            await until(lambda: is_quiet(made, engine))

    asyncio.run(main())
    assert [str(fault) for fault in made.faults] == ["secret"]


def test_three_faults_in_a_row_end_the_engine() -> None:
    made = bench()

    def fail(plan: Plan) -> None:
        raise RuntimeError("broken")

    made.executor.before = fail

    async def main() -> None:
        async with running(made) as engine:
            prompts = [made.prompt(f"q{i}", "abc" * 9, max_tokens=6) for i in range(2)]
            for _ in range(2):
                assert (await engine.generate(prompts[0])).completions[0].finish_reason is FinishReason.ERROR
            outcome = (await asyncio.gather(engine.generate(prompts[1]), return_exceptions=True))[0]
            assert isinstance(outcome, EngineStopped)
            await until(lambda: not engine.alive)
            with pytest.raises(EngineStopped):
                await engine.generate(prompts[0])
            assert made.is_empty()

    asyncio.run(main())
    assert [type(fault) for fault in made.faults] == [RuntimeError] * 3 + [EngineStopped]


def test_stop_ends_open_streams_and_the_thread() -> None:
    made = bench()

    async def main() -> None:
        engine = AsyncEngine(made.stepper)
        hold(made, lambda: engine.alive)
        assert not engine.alive
        with pytest.raises(EngineStopped):
            await engine.generate(made.prompt("q", "abc"))
        await engine.start()
        with pytest.raises(EngineStopped):
            await engine.start()
        stream = aiter(engine.stream(made.prompt("q", "abc")))
        await anext(stream)
        await engine.stop()
        with pytest.raises(EngineStopped):
            async for _ in stream:
                pass
        assert not engine.alive
        await engine.stop()

    asyncio.run(main())
    assert made.is_empty()
    assert not any(thread.name == "engine-steps" for thread in threading.enumerate())


def test_a_loop_that_died_leaves_nothing_behind() -> None:
    made = bench()
    engine = AsyncEngine(made.stepper)
    loop = asyncio.new_event_loop()
    slow_down(made)

    async def begin() -> object:
        await engine.start()
        stream = aiter(engine.stream(made.prompt("q", "abc")))
        await anext(stream)
        return stream

    kept = loop.run_until_complete(begin())  # kept, so that only the end of the loop can be noticed
    loop.close()

    async def main() -> None:
        await until(lambda: is_quiet(made, engine))
        assert (await engine.generate(made.prompt("r", "xy", max_tokens=2))).completions[0].num_output_tokens == 2
        await engine.stop()

    asyncio.run(main())
    assert kept is not None
