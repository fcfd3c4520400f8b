"""A fault in one request's work ends that request alone, with the real model and with the table."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from tests.engine.fakes import bench
from tests.engine.shells.test_llm_states import folder_of
from twostroke.assembly.engine import Heart, build_sync
from twostroke.backends.cpu.health import check_kernels
from twostroke.engine.async_engine import AsyncEngine
from twostroke.engine.executor import Executor
from twostroke.engine.faults.isolate import IsolatingExecutor, joined
from twostroke.engine.step_loop import MAX_FAULTS_IN_A_ROW
from twostroke.engine.sync_engine import SyncEngine
from twostroke.types.errors import BackendError, EngineStopped, UnreadOverflow
from twostroke.types.output import Prompt
from twostroke.types.plan import Plan
from twostroke.types.recorded.exchange_spent import ExchangeSpent
from twostroke.types.request import FinishReason
from twostroke.types.result import SampledToken, StepResult
from twostroke.types.sampling.sampling_params import SamplingParams

POISON = (7, 7, 7)


@pytest.fixture(scope="module")
def spark() -> Iterator[Heart]:
    with build_sync("spark", {"kv_memory": "20MB", "threads": 1}) as built:
        yield built


class Poisoned:
    """The real executor, but a step that contains POISON fails, before or after it is computed."""

    def __init__(self, inner: object, after: bool) -> None:
        self.inner, self.after = inner, after
        self.num_steps = self.num_faults = 0

    def execute(self, plan: Plan) -> StepResult:
        self.num_steps += 1
        bad = any(s.request.prompt_token_ids == POISON for s in plan.sequences)
        if bad and not self.after:
            self.num_faults += 1
            raise BackendError("the kernel refused")
        result: StepResult = self.inner.execute(plan)  # type: ignore[attr-defined]
        if bad:
            self.num_faults += 1
            raise RuntimeError("lost")
        return result


def prompts(count: int) -> list[Prompt]:
    params = [SamplingParams(temperature=0.9, seed=i, max_tokens=12, ignore_eos=True) for i in range(count)]
    return [Prompt(tuple(range(10 + i, 40 + 7 * i)), params[i], f"r{i}") for i in range(count)]


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Heart]:
    """Layers with states next to attention. The changes of a failed step cannot be computed again in place."""
    folder = folder_of("qwen3-next", tmp_path_factory.mktemp("states"))
    options = {"kv_memory": "20MB", "threads": 1, "weights": "f32", "context": 128, "max_sequences": 8}
    with build_sync(str(folder), options) as built:
        yield built


@pytest.mark.parametrize("model", ["spark", "states"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_the_others_get_the_same_bits(model: str, after: bool, request: pytest.FixtureRequest) -> None:
    built: Heart = request.getfixturevalue(model)
    alone = [built.engine.generate([prompt])[0].completions[0].token_ids for prompt in prompts(5)]
    heard: list[BaseException] = []
    executor = built.stepper.loop.executor
    poisoned = Poisoned(executor, after)
    built.stepper.loop.forgiving.inner = IsolatingExecutor(poisoned, heard.append)
    try:
        poison = Prompt(POISON, SamplingParams(max_tokens=12), "poison")
        outputs = built.engine.generate([*prompts(3), poison, *prompts(5)[3:]])
    finally:
        built.stepper.loop.forgiving.inner = executor
    bad = outputs.pop(3).completions[0]
    assert bad.finish_reason is FinishReason.ERROR and "refused" not in (bad.error or "")
    assert [output.completions[0].token_ids for output in outputs] == alone
    assert poisoned.num_faults == 2 and len(heard) == 2
    gauges = built.stepper.gauges()
    assert (gauges.running, gauges.waiting, gauges.pages_used) == (0, 0, 0)


@pytest.mark.parametrize("fails", range(1, 30, 4))
def test_a_step_with_states_that_fails_once_costs_no_request(states: Heart, fails: int) -> None:
    """The step fails while prompts are read, or while answers are written. All requests go on from their snapshots,
    with the same bits."""
    params = [SamplingParams(temperature=0.9, seed=i, max_tokens=30, ignore_eos=True, n=1 + i % 2) for i in range(3)]
    asked = [Prompt(tuple(range(3 + i, 50 + 9 * i)), params[i]) for i in range(3)]
    alone = [[each.token_ids for each in states.engine.generate([prompt])[0].completions] for prompt in asked]
    executor, heard, steps = states.stepper.loop.executor, list[BaseException](), iter(range(1, 1000))

    class FailsOnce:
        def execute(self, plan: Plan) -> StepResult:
            """Runs the real step and then raises a fault, so the states have changed."""
            result = executor.execute(plan)
            if next(steps) == fails and len(plan.sequences) > 1:
                raise BackendError("the kernel refused")
            return result

    states.stepper.loop.forgiving.inner = IsolatingExecutor(FailsOnce(), heard.append)
    try:
        outputs = states.engine.generate(asked)
    finally:
        states.stepper.loop.forgiving.inner = executor
    assert len(heard) == 1 and [[each.token_ids for each in output.completions] for output in outputs] == alone


def test_a_poisonous_request_that_comes_again_and_again_does_not_stop_the_engine() -> None:
    made = bench()
    probes: list[int] = []

    def fail(plan: Plan) -> None:
        if any(s.request.prompt_token_ids == poison.token_ids for s in plan.sequences):
            raise BackendError("poison")

    made.executor.before = fail
    made.stepper.loop.probe = lambda: probes.append(1)
    poison, good = made.prompt("q", "abc", max_tokens=3), made.prompt("r", "xyz", max_tokens=3)
    engine = SyncEngine(made.stepper)
    for _ in range(2 * MAX_FAULTS_IN_A_ROW):
        assert engine.generate([poison])[0].completions[0].finish_reason is FinishReason.ERROR
    assert len(probes) == 2
    assert engine.generate([good])[0].completions[0].text == "xyz"


def test_where_the_probe_fails_too_the_engine_ends() -> None:
    made = bench()

    def fail(_plan: Plan) -> None:
        raise RuntimeError("broken")

    def probe() -> None:
        raise BackendError("The kernels give wrong numbers.")

    made.executor.before = fail
    made.stepper.loop.probe = probe
    engine, prompt = SyncEngine(made.stepper), made.prompt("q", "abc", max_tokens=3)
    for _ in range(MAX_FAULTS_IN_A_ROW - 1):
        engine.generate([prompt])
    with pytest.raises(EngineStopped):
        engine.generate([prompt])


def test_the_probe_believes_kernels_that_compute_and_no_others(spark: Heart) -> None:
    from twostroke.backends.cpu import CpuOps

    ops = CpuOps(None, 2)
    check_kernels(ops)
    ops.close()

    class Wrong:
        def rms_norm(self, out: object, *_rest: object) -> None:
            np.copyto(out, 1.0)  # type: ignore[call-overload]

    with pytest.raises(BackendError):
        check_kernels(Wrong())  # type: ignore[arg-type]


def test_parts_of_a_step_join() -> None:
    one, two = StepResult({"a": (SampledToken(1),)}, {}, 1.0, 0.5), StepResult({}, {"b": "no"}, 2.0, 0.25)
    assert joined([one, two]) == StepResult({"a": (SampledToken(1),)}, {"b": "no"}, 3.0, 0.75)
    undone = [StepResult({}, undone=frozenset(name)) for name in "cd"]
    assert joined([one, *undone]) == replace(one, undone=frozenset("cd"))


class Held:
    """Lets a few steps through at once, and the others when `gate` is open."""

    def __init__(self, inner: Executor, free_steps: int) -> None:
        self._inner = inner
        self._free_steps = free_steps
        self.gate = threading.Event()

    def execute(self, plan: Plan) -> StepResult:
        """Does what the inner one does."""
        self._free_steps -= 1
        if self._free_steps < 0:
            assert self.gate.wait(60)
        return self._inner.execute(plan)


def test_a_reader_that_lets_its_mail_run_over_loses_its_request_alone() -> None:
    made = bench()
    # Held, because otherwise all of the answer may come while its reader still waits for the first piece.
    held = Held(made.stepper.loop.executor, 2)
    made.stepper.loop.forgiving.inner = held
    slow, quick = made.prompt("q", "abc", max_tokens=200), made.prompt("r", "xyz", max_tokens=200)

    async def main() -> None:
        engine = AsyncEngine(made.stepper, max_unread_bytes=1400)
        await engine.start()
        stream = aiter(engine.stream(slow))
        first = await anext(stream)
        assert first.text
        held.gate.set()
        whole = await engine.generate(quick)
        assert len(whole.completions[0].token_ids) == 200
        while not made.is_empty():
            await asyncio.sleep(0.001)
        with pytest.raises(UnreadOverflow):
            async for _ in stream:
                pass
        again = await engine.generate(slow)
        assert len(again.completions[0].token_ids) == 200, "the next one is not punished"
        await engine.stop()

    asyncio.run(main())


def test_parts_of_a_step_add_up_what_was_exchanged() -> None:
    spent = ExchangeSpent(2, 100, 0.5, 0.25)
    parts = [StepResult({}, exchange=spent, model_s=1.0), StepResult({}, model_s=2.0), StepResult({}, exchange=spent)]
    assert joined(parts).exchange == spent + spent and joined(parts).model_s == 3.0
    assert joined([StepResult({}), StepResult({})]).exchange is None
