"""An AsyncEngine over the table model while a test uses it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.engine.fakes import Bench
from twostroke.engine.async_engine import AsyncEngine
from twostroke.types.plan import Plan


@asynccontextmanager
async def running(made: Bench) -> AsyncIterator[AsyncEngine]:
    engine = AsyncEngine(made.stepper)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


def slow_down(made: Bench) -> None:
    """Makes steps take two milliseconds and more, so that requests still run when the test looks at them."""
    made.executor.before = lambda plan: time.sleep(0.002)


def hold(made: Bench, held: Callable[[], bool]) -> None:
    """The third step and later ones begin only when `held` is false. So no request ends before, however late the event
    loop is."""

    def wait(plan: Plan) -> None:
        while made.executor.num_steps >= 3 and held():
            time.sleep(0.001)

    made.executor.before = wait


def is_quiet(made: Bench, engine: AsyncEngine) -> bool:
    gauges = engine.gauges()
    return made.is_empty() and not (gauges.running or gauges.waiting or gauges.pages_used)
