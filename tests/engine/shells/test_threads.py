"""One LLM in several threads: the same answers as alone, fair turns, nothing left over. There is no timed assertion."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.engine.fakes import bench
from twostroke.engine import turns as turns_module
from twostroke.engine.sync_engine import SyncEngine
from twostroke.engine.turns import FairLock
from twostroke.llm import LLM
from twostroke.types.errors import EngineStopped
from twostroke.types.request import FinishReason
from twostroke.types.sampling.sampling_params import SamplingParams

THREADS = 6
PATIENCE_S = 60.0  # a hang fails the test instead of blocking the run


def at_once(functions: list[Callable[[], Any]]) -> list[Any]:
    begin = threading.Barrier(len(functions))
    found: dict[int, Any] = {}

    def run(place: int) -> None:
        begin.wait(PATIENCE_S)
        try:
            found[place] = functions[place]()
        except BaseException as error:
            found[place] = error

    # Daemons: a thread that hangs must not keep the test from failing.
    threads = [threading.Thread(target=run, args=(place,), daemon=True) for place in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    errors = [value for value in found.values() if isinstance(value, BaseException)]
    assert not errors, errors
    return [found[place] for place in range(len(functions))]


def test_threads_share_one_model_and_get_what_each_gets_alone() -> None:
    texts = [f"Say something about the number {number}." for number in range(THREADS)]
    params = SamplingParams(temperature=0.8, seed=3, max_tokens=24)
    with LLM("spark", threads=2) as llm:
        alone = [llm.generate(text, params)[0].text for text in texts]
        rounds = at_once([lambda text=text: [llm.generate(text, params)[0].text for _ in range(3)] for text in texts])
        streamed = at_once([lambda text=text: "".join(d.text for d in llm.stream(text, params)) for text in texts])
    assert rounds == [[text] * 3 for text in alone]
    assert streamed == alone


def test_steps_are_shared_and_no_stream_waits_for_anothers_end() -> None:
    made = bench()
    engine = SyncEngine(made.stepper)
    prompts = [made.prompt(f"question {i}", "abcdefgh", max_tokens=40) for i in range(THREADS)]
    everybody_has_one = threading.Barrier(THREADS)

    def read(place: int) -> int:
        stream = engine.stream([prompts[place]])
        first = next(stream)
        everybody_has_one.wait(PATIENCE_S)  # this fails where one thread's stream waits until another's has ended
        return first.num_output_tokens + sum(1 for _ in stream)

    at_once([lambda place=place: read(place) for place in range(THREADS)])
    assert made.is_empty()
    assert made.executor.num_steps < THREADS * 40, "a step serves the requests of all threads"


def test_a_stream_that_one_thread_gives_up_leaves_the_others_alone() -> None:
    made = bench()
    engine = SyncEngine(made.stepper)
    prompts = [made.prompt(f"question {i}", "abcdefgh", max_tokens=40) for i in range(THREADS)]

    def read(place: int) -> FinishReason | None:
        stream = engine.stream([prompts[place]])
        if place % 2:
            next(stream)
            stream.close()  # type: ignore[attr-defined]
            return None
        return list(stream)[-1].finish_reason

    found = at_once([lambda place=place: read(place) for place in range(THREADS)])
    assert found == [FinishReason.LENGTH, None] * (THREADS // 2)
    assert made.is_empty()


def test_a_stream_that_is_collected_in_the_middle_of_a_step_is_ended_after_it() -> None:
    made = bench()
    engine = SyncEngine(made.stepper)
    dropped = [engine.stream([made.prompt("dropped", "abc", max_tokens=40)])]
    next(dropped[0])

    def drop(_plan: object) -> None:
        dropped.clear()
        gc.collect()

    made.executor.before = drop
    assert len(engine.generate([made.prompt("kept", "abc", max_tokens=5)])[0].completions[0].token_ids) == 5
    assert made.is_empty()


def test_closing_ends_the_answers_of_other_threads() -> None:
    made = bench()
    engine = SyncEngine(made.stepper)
    stepping, go_on = threading.Event(), threading.Event()

    def wait(_plan: object) -> None:
        stepping.set()
        go_on.wait(PATIENCE_S)

    made.executor.before = wait
    prompt = made.prompt("question", "abc", max_tokens=40)
    with ThreadPoolExecutor(2) as pool:
        answer = pool.submit(engine.generate, [prompt])
        assert stepping.wait(PATIENCE_S)
        closing = pool.submit(engine.stop)
        go_on.set()
        closing.result(PATIENCE_S)
        with pytest.raises(EngineStopped, match="closed"):
            answer.result(PATIENCE_S)
    with pytest.raises(EngineStopped, match="closed"):
        engine.generate([prompt])
    assert made.is_empty()


def test_turns_are_given_in_the_order_of_asking() -> None:
    turns, order = FairLock(), []
    begun = [threading.Event() for _ in range(4)]

    def take(place: int) -> None:
        begun[place].set()
        with turns:
            order.append(place)

    with ThreadPoolExecutor(4) as pool:
        with turns:
            for place in range(4):
                pool.submit(take, place)
                assert begun[place].wait(PATIENCE_S)
                while len(turns._queue) <= place:
                    pass
    assert order == [0, 1, 2, 3]


def test_an_interrupted_waiter_gives_its_place_up(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = FairLock()

    class Gate:
        def acquire(self) -> None:
            raise KeyboardInterrupt

    place = turns_module._Place
    with turns:
        monkeypatch.setattr(turns_module, "_Place", lambda: place(gate=Gate()))
        with pytest.raises(KeyboardInterrupt), turns:
            pass
        monkeypatch.undo()
        assert not turns._queue and turns._held
    with turns:
        pass
    assert not turns._held
