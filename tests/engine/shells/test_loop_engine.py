"""The engine without a step thread gives the same results as the engine with one, and ends what it must end."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.engine.fakes import Bench, bench
from twostroke.engine.loop_engine import LoopEngine
from twostroke.engine.sync_engine import SyncEngine
from twostroke.types.errors import EngineStopped, UnreadOverflow
from twostroke.types.output import Delta, GenerationOutput
from twostroke.types.request import FinishReason


class Polled:
    """The stepper of a bench, with a descriptor that can always be read."""

    def __init__(self, made: Bench) -> None:
        self.made, (self.descriptor, self.writing) = made, os.pipe()
        os.write(self.writing, b".")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.made.stepper, name)

    def fileno(self) -> int:
        return self.descriptor

    def poll(self) -> list[Delta]:
        stepper = self.made.stepper
        return stepper.step() or [] if stepper.has_work else []


@asynccontextmanager
async def running(made: Bench, **options: int) -> AsyncIterator[LoopEngine]:
    polled = Polled(made)
    engine = LoopEngine(polled, **options)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()
        os.close(polled.descriptor)
        os.close(polled.writing)


def test_it_gives_what_an_engine_with_a_thread_gives() -> None:
    made, other = bench(), bench()
    asked = [("q", "abc"), ("r", "xyz"), ("s", "one two")]

    async def main() -> list[GenerationOutput]:
        async with running(made) as engine:
            return await asyncio.gather(*[engine.generate(made.prompt(*each, max_tokens=20)) for each in asked])

    expected = SyncEngine(other.stepper).generate([other.prompt(*each, max_tokens=20) for each in asked])
    assert [each.text for each in asyncio.run(main())] == [each.text for each in expected]
    assert made.is_empty() and not made.faults


def test_a_full_mailbox_ends_its_request_while_its_other_answers_come() -> None:
    made = bench()

    async def main() -> None:
        async with running(made, max_unread_bytes=1400) as engine:
            reader = engine.open(made.prompt("q", "abc", n=2, max_tokens=200, ignore_eos=True), lambda: None)
            reader.waiting = False  # the reader is busy and does not come back
            async with asyncio.timeout(60):
                while reader.error is None:
                    await asyncio.sleep(0)
            with pytest.raises(UnreadOverflow):
                reader.take()
            assert engine.alive and made.is_empty()

    asyncio.run(main())


def test_any_thread_may_abort() -> None:
    made = bench()

    async def main() -> FinishReason | None:
        async with running(made) as engine:
            prompt = made.prompt("q", "abc", max_tokens=200, ignore_eos=True)
            pieces = engine.stream(replace(prompt, request_id="r"))
            await anext(pieces)
            threading.Thread(target=engine.abort, args=("r",)).start()
            return [each async for each in pieces][-1].finish_reason

    assert asyncio.run(main()) is FinishReason.ABORT


def test_a_fault_ends_the_engine_and_its_streams() -> None:
    made = bench()

    async def main() -> None:
        async with running(made) as engine:
            made.stepper.step = None  # type: ignore[assignment,method-assign]
            with pytest.raises(EngineStopped):
                await engine.generate(made.prompt("q", "abc"))
            assert not engine.alive
            with pytest.raises(EngineStopped):
                engine.open(made.prompt("q", "abc"), lambda: None)

    asyncio.run(main())
    assert len(made.faults) == 1
