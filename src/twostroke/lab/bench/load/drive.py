"""When requests are sent: each when its user has the last answer, or each at its own time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from twostroke.lab.workload.observation import Observation
from twostroke.lab.workload.request import WorkloadRequest

Ask = Callable[[int, WorkloadRequest, float], Awaitable[Observation]]
"""(index, request, intended_s): observed from now on."""


@dataclass(slots=True)
class Progress:
    """What a run has so far. cut: requests whose answers were given up when the run was stopped."""

    total: int
    seen: list[Observation] = field(default_factory=list)
    sent: int = 0
    cut: int = 0

    @property
    def under_way(self) -> int:
        """Sent and not yet observed whole."""
        return self.sent - len(self.seen) - self.cut


class Drive:
    """One run. now_s: seconds since its beginning; stop: set it, and nothing more is sent and nothing awaited."""

    def __init__(self, ask: Ask, now_s: Callable[[], float], progress: Progress, stop: asyncio.Event) -> None:
        self._ask, self._now_s, self._progress, self._stop = ask, now_s, progress, stop

    async def users(self, requests: Sequence[WorkloadRequest], count: int, until_s: float | None = None) -> None:
        """A closed loop: each of `count` users takes the next request when the last is answered.

        until_s: no request is sent from then on.
        """
        waiting = iter(enumerate(requests))

        async def user() -> None:
            for index, request in waiting:
                if until_s is not None and self._now_s() >= until_s:
                    return
                await self._observe(index, request, self._now_s())

        await self._all([asyncio.create_task(user()) for _ in range(count)])

    async def timetable(self, requests: Sequence[WorkloadRequest], until_s: float | None = None) -> None:
        """An open loop: each request is sent at its arrival time, however slow the answers are."""
        tasks: list[asyncio.Task[None]] = []
        for index, request in enumerate(requests):
            if until_s is not None and request.arrival_s >= until_s:
                break
            if not await self._until(request.arrival_s):
                break
            tasks.append(asyncio.create_task(self._observe(index, request, request.arrival_s)))
        await self._all(tasks)

    async def _observe(self, index: int, request: WorkloadRequest, intended_s: float) -> None:
        self._progress.sent += 1
        try:
            self._progress.seen.append(await self._ask(index, request, intended_s))
        except asyncio.CancelledError:
            self._progress.cut += 1
            raise

    async def _until(self, time_s: float) -> bool:
        """Wait for the time; False where the run was stopped before."""
        left_s = time_s - self._now_s()
        if left_s > 0:
            try:
                await asyncio.wait_for(self._stop.wait(), left_s)
            except TimeoutError:
                pass
        return not self._stop.is_set()

    async def _all(self, tasks: list[asyncio.Task[None]]) -> None:
        """Wait until all tasks are done or the run is stopped; raises what a task raised."""
        if not tasks:
            return
        stopped = asyncio.create_task(self._stop.wait())
        finished = asyncio.create_task(asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION))
        try:
            await asyncio.wait([finished, stopped], return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            stopped.cancel()
            finished.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, finished, stopped, return_exceptions=True)
