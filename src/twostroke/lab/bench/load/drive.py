"""Decides when requests are sent: in a closed loop when a user has the answer to the last request, in an open loop at
each request's arrival time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from twostroke.lab.workload.observation import Observation
from twostroke.lab.workload.request import WorkloadRequest

Ask = Callable[[int, WorkloadRequest, float], Awaitable[Observation]]
"""Called with (index, request, intended_s). Sends the request now and returns its observation."""


@dataclass(slots=True)
class Progress:
    """The state of a run so far. cut: the number of requests whose answers were given up when the run was stopped."""

    total: int
    seen: list[Observation] = field(default_factory=list)
    sent: int = 0
    cut: int = 0

    @property
    def under_way(self) -> int:
        """The number of requests that were sent and have no complete observation yet."""
        return self.sent - len(self.seen) - self.cut


class Drive:
    """One run. now_s: returns seconds since its beginning. stop: once this event is set, nothing more is sent or
    awaited."""

    def __init__(self, ask: Ask, now_s: Callable[[], float], progress: Progress, stop: asyncio.Event) -> None:
        self._ask, self._now_s, self._progress, self._stop = ask, now_s, progress, stop

    async def users(self, requests: Sequence[WorkloadRequest], count: int, until_s: float | None = None) -> None:
        """Runs a closed loop: each of `count` users takes the next request when its last one is answered.

        until_s: the time from which no request is sent, in seconds since the beginning.
        """
        waiting = iter(enumerate(requests))

        async def user() -> None:
            for index, request in waiting:
                if until_s is not None and self._now_s() >= until_s:
                    return
                await self._observe(index, request, self._now_s())

        await self._all([asyncio.create_task(user()) for _ in range(count)])

    async def timetable(self, requests: Sequence[WorkloadRequest], until_s: float | None = None) -> None:
        """Runs an open loop: each request is sent at its arrival time, however slow the answers are."""
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
        """Waits until `time_s`. Returns False where the run was stopped before."""
        left_s = time_s - self._now_s()
        if left_s > 0:
            try:
                await asyncio.wait_for(self._stop.wait(), left_s)
            except TimeoutError:
                pass
        return not self._stop.is_set()

    async def _all(self, tasks: list[asyncio.Task[None]]) -> None:
        """Waits until all tasks are done or the run is stopped. Raises what a task raised."""
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
