"""Many tasks and one step thread: no stream waits for a slow reader, and no pages outlive the reader of their
stream."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from dataclasses import replace
from functools import partial

import pytest

from tests.engine.fakes import bench
from tests.engine.shells.running import hold, is_quiet, running, until
from twostroke.cost.history.accounts import Accounts
from twostroke.engine.answers.reader_watch import ReaderWatch
from twostroke.engine.async_engine import AsyncEngine
from twostroke.engine.sync_engine import SyncEngine
from twostroke.types.errors import ContextLengthExceeded, InvalidRequest
from twostroke.types.output import Delta, Timings
from twostroke.types.recorded.parts import TimeParts
from twostroke.types.request import FinishReason


def test_twenty_at_once_give_what_each_gets_alone() -> None:
    made = bench()
    prompts = [
        made.prompt(f"q{i}", f"answer {i} é🙂", max_tokens=20 + i, n=1 + i % 3, stop=("🙂a",) if i % 4 == 0 else ())
        for i in range(20)
    ]
    alone = [output for prompt in prompts for output in SyncEngine(made.stepper).generate([prompt])]

    async def main() -> None:
        async with running(made) as engine:
            together = await asyncio.gather(*(engine.generate(prompt) for prompt in prompts))
            for one, other in zip(together, alone, strict=True):
                assert [c.text for c in one.completions] == [c.text for c in other.completions]
                assert [c.token_ids for c in one.completions] == [c.token_ids for c in other.completions]
            await until(lambda: is_quiet(made, engine))

    asyncio.run(main())
    assert made.faults == []


def test_streamed_text_is_the_text_with_one_finish_for_each() -> None:
    made = bench()
    prompt = made.prompt("q", "naïve 你好", n=3, max_tokens=12)
    whole = SyncEngine(made.stepper).generate([prompt])[0]

    async def main() -> None:
        async with running(made) as engine:
            pieces = [delta async for delta in engine.stream(prompt)]
            for index in range(3):
                own = [piece for piece in pieces if piece.index == index]
                assert "".join(piece.text for piece in own) == whole.completions[index].text
                assert [piece.finish_reason for piece in own if piece.finish_reason] == [FinishReason.LENGTH]
                assert own[-1].finish_reason is FinishReason.LENGTH

    asyncio.run(main())


def test_wrong_prompts_raise_before_the_first_piece() -> None:
    made = bench()

    async def main() -> None:
        async with running(made) as engine:
            with pytest.raises(ContextLengthExceeded):
                await anext(aiter(engine.stream(made.prompt("q", "a", max_tokens=10_000))))
            with pytest.raises(ContextLengthExceeded):
                engine.check(made.prompt("q", "a", max_tokens=10_000))
            named = replace(made.prompt("q", "a"), request_id="same")
            async with aclosing(engine.stream(named)) as first:
                await anext(first)
                with pytest.raises(InvalidRequest, match="same"):
                    await anext(aiter(engine.stream(named)))
            await until(lambda: is_quiet(made, engine))
            again = replace(named, params=replace(named.params, max_tokens=2))
            assert (await engine.generate(again)).request_id == "same"

    asyncio.run(main())


def test_a_slow_reader_holds_up_no_other_stream() -> None:
    made = bench()

    async def main() -> None:
        async with running(made) as engine:
            slow = aiter(engine.stream(made.prompt("slow", "abc", max_tokens=100)))
            first = await anext(slow)
            await asyncio.gather(*(engine.generate(made.prompt(f"q{i}", "xyz", max_tokens=30)) for i in range(5)))
            await until(lambda: is_quiet(made, engine))  # the slow request's work is done, whether it was read or not
            rest = [delta async for delta in slow]
            assert sum(len(delta.token_ids) for delta in [first, *rest]) == 100

    asyncio.run(main())


def test_a_reader_that_is_behind_gets_pieces_together() -> None:
    made = bench()
    prompt = made.prompt("q", "naïve 你好 " * 30, max_tokens=200, ignore_eos=True, logprobs=1)
    whole = SyncEngine(made.stepper).generate([prompt])[0].completions[0]

    async def main() -> None:
        async with running(made) as engine:
            pieces: list[Delta] = []
            async for delta in engine.stream(prompt):
                pieces.append(delta)
                if len(pieces) == 1:
                    await until(lambda: made.is_empty() and not engine.gauges().running)
            assert len(pieces) <= 4 and max(len(piece.token_ids) for piece in pieces) <= 300
            assert "".join(piece.text for piece in pieces) == whole.text
            assert tuple(token for piece in pieces for token in piece.token_ids) == whole.token_ids
            assert tuple(each for piece in pieces for each in piece.logprobs) == whole.logprobs
            assert [piece.finish_reason for piece in pieces][:-1] == [None] * (len(pieces) - 1)
            assert pieces[-1].num_output_tokens == whole.num_output_tokens

    asyncio.run(main())


def test_a_reader_that_is_behind_is_late_from_the_last_piece_on() -> None:
    """Pieces that were joined were unread from the first one on, but the engine still worked until the last one."""
    now, accounts = [0.0], Accounts(8)
    watch = ReaderWatch(lambda: now[0], accounts)
    parts = Timings(0.0, 0.0, 1.0, 6.0, parts=TimeParts(decode_s=6.0))
    watch.taken(1.0, 1.0, Delta("q", 0, "a", (1,)))
    now[0] = 8.0
    watch.back()
    last = watch.taken(2.0, 6.0, Delta("q", 0, "b", (2, 3), finish_reason=FinishReason.LENGTH, timings=parts))
    assert last.timings is not None and last.timings.parts is not None
    assert (last.timings.parts.client_stall_s, last.timings.parts.total_s) == (2.0, 8.0)
    assert watch._unread_s == 6.0


def test_a_loop_that_is_behind_wakes_each_reader_once() -> None:
    made = bench()

    async def main() -> None:
        async with running(made) as engine:
            woken: list[str] = []
            readers = [
                engine.open(made.prompt(f"q{i}", "abcdef", max_tokens=6), partial(woken.append, f"q{i}"))
                for i in (1, 2)
            ]

            def num_ended() -> int:
                posts = [each for post in engine._posts.values() for each in list(post)]
                return sum(delta.finish_reason is not None for _, mail in posts for _, delta in mail)

            while num_ended() < len(readers):
                time.sleep(0.001)  # the loop does nothing in this time
            await until(lambda: bool(woken))
            assert sorted(woken) == ["q1", "q2"]
            for reader in readers:
                piece = reader.take()
                assert piece is not None and len(piece.token_ids) == 6 and reader.done
                reader.close()

    asyncio.run(main())


def test_an_idle_engine_takes_no_steps_and_wakes_up() -> None:
    made = bench()

    async def main() -> None:
        async with running(made) as engine:
            for _ in range(3):
                await engine.generate(made.prompt("q", "abc", max_tokens=2))
                await until(lambda: is_quiet(made, engine))
                steps = made.executor.num_steps
                await asyncio.sleep(0.02)
                assert made.executor.num_steps == steps

    asyncio.run(main())


def test_readers_on_two_loops() -> None:
    made = bench()
    engine = AsyncEngine(made.stepper)
    texts: list[str] = []

    async def use() -> None:
        output = await engine.generate(made.prompt("q", "abc", stop=("c",)))
        texts.append(output.text)

    async def main() -> None:
        await engine.start()
        await asyncio.gather(use(), asyncio.to_thread(lambda: asyncio.run(use())))
        await engine.stop()

    asyncio.run(main())
    assert texts == ["ab", "ab"]


def test_a_parked_request_rests_until_it_goes_on_and_its_text_is_the_same() -> None:
    made = bench()
    prompt = made.prompt("q", "a parked answer", n=2, max_tokens=14)
    whole = SyncEngine(made.stepper).generate([prompt])[0]

    async def main() -> None:
        held = True
        hold(made, lambda: held)
        async with running(made) as engine:
            news = asyncio.Event()
            reader = engine.open(await engine.prepare(prompt), news.set)
            await until(lambda: made.executor.num_steps >= 3)
            reader.park(True)
            held = False
            other = await engine.generate(made.prompt("p", "another answer", max_tokens=20))
            assert len(other.completions[0].token_ids) == 20
            pieces = list(iter(reader.take, None))
            assert not any(piece.finish_reason for piece in pieces), "nothing was computed for it meanwhile"
            assert engine.gauges().running == 0 and engine.gauges().pages_used == 0
            reader.park(False)
            while not reader.done:
                reader.rest()
                news.clear()
                pieces += iter(reader.take, None)
                if not reader.done:
                    await news.wait()
            for index in range(2):
                text = "".join(piece.text for piece in pieces if piece.index == index)
                assert text == whole.completions[index].text
            reader.park(True)  # not needed any more
            reader.close()
            await until(lambda: is_quiet(made, engine))

    asyncio.run(main())
