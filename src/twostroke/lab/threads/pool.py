"""Simulates the jobs of the native thread pool: how threads take tasks, poll and then sleep, and the pauses of a quota.

It follows csrc/generic/machine/pool.cpp. Other programs on the machine are not simulated.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

from twostroke.assembly.machine.topology import Cpu
from twostroke.lab.threads.machine import PoolJob, PoolMachine

SPIN_S = 900e-6
"""Seconds that a worker polls for the next job (kSpinNs) before it sleeps."""
NOTICE_S, WAKE_S = 0.5e-6, 50e-6
"""NOTICE_S: seconds until a polling worker has seen a new job. WAKE_S: seconds until a sleeping one has a core."""
TAKE_S, LOOK_S = 0.2e-6, 0.1e-6
"""TAKE_S: seconds to take one task by compare-and-swap. LOOK_S: seconds to look once at another thread's share of
tasks."""
PERIOD_S = 0.1
"""The period, in seconds, after which Linux renews a CPU quota."""
CALLER = 0
SHORTEST_S = 1e-12
"""A time counts as reached when it is at most this many seconds away, because sums of times are not exact."""
SMALLEST = 1e-9
"""A task counts as done when at most this part of it is left, because sums of steps are not exact."""


@dataclass(slots=True)
class Clock:
    """Simulated seconds, and the processor seconds that all threads used. quota: the cores that the quota allows; None
    for no limit. As soon as the quota's share of a period is used, all threads wait for the next period."""

    quota: float | None
    now: float = 0.0
    used: float = 0.0
    period: int = 0
    period_used: float = 0.0

    def pass_by(self, seconds: float, awake: int) -> None:
        """Advances the simulated time so that each of `awake` threads can compute for `seconds`. With a quota, pauses
        are added when the threads have used up their share of a period."""
        left = seconds
        while self.quota is not None:
            ends = (self.period + 1) * PERIOD_S
            share = max(0.0, self.quota * PERIOD_S - self.period_used) / awake
            step = max(0.0, min(left, share, ends - self.now))
            self._advance(step, awake)
            left -= step
            if left <= 0:
                return
            self.now, self.period, self.period_used = max(self.now, ends), self.period + 1, 0.0
        self._advance(left, awake)

    def _advance(self, seconds: float, awake: int) -> None:
        self.now += seconds
        self.used += seconds * awake
        self.period_used += seconds * awake


@dataclass(slots=True)
class SimulatedPool:
    """A pool whose threads run on the hardware threads `places`; the first is the caller's."""

    machine: PoolMachine
    places: tuple[Cpu, ...]
    clock: Clock = field(init=False)
    _idle_since: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self.clock = Clock(self.machine.topology.quota)
        self._idle_since = [0.0] * len(self.places)

    def run(self, jobs: Iterable[PoolJob], between_s: float) -> None:
        """Runs one job after the other. between_s: the seconds of the caller's own work before each of them."""
        for job in jobs:
            self._alone(between_s)
            if len(self.places) == 1 or job.tasks <= 1:
                self._alone(job.tasks / self.machine.speeds(self.places[:1], job)[0])
            else:
                _Job(self.machine, self.places, job, self.clock, self._idle_since).run()

    def _alone(self, seconds: float) -> None:
        """Lets the caller work alone for `seconds`. The other threads poll until they sleep."""
        left = seconds
        while left > 0:
            polling = until_sleep(self._idle_since[1:], self.clock.now)
            step = min([left, *polling])
            self.clock.pass_by(step, 1 + len(polling))
            left -= step


def until_sleep(idle_since: Iterable[float], now: float) -> list[float]:
    """Returns, for each thread that still polls, the seconds until it sleeps."""
    return [since + SPIN_S - now for since in idle_since if since + SPIN_S - now > SHORTEST_S]


class _Job:
    """One parallel job while it is simulated. Each thread will take a task at a known time, works on a task, or has
    found no more tasks."""

    def __init__(
        self, machine: PoolMachine, places: tuple[Cpu, ...], job: PoolJob, clock: Clock, idle_since: list[float]
    ) -> None:
        self._machine, self._places, self._job = machine, places, job
        self._clock, self._idle_since = clock, idle_since
        count = len(places)
        self._shares = [[job.tasks * t // count, job.tasks * (t + 1) // count] for t in range(count)]
        self._left, self._passed = job.tasks, 0.0
        self._working: dict[int, float] = {}  # thread -> the share of its task that remains, 1 at first
        self._ready = [(self._arrives(thread), thread, True) for thread in range(count)]
        heapq.heapify(self._ready)

    def run(self) -> None:
        """Simulates the job until all its tasks are done and the calling thread has noticed that they are done."""
        last = CALLER
        while self._left:
            self._meet_ready()
            threads = list(self._working)
            speeds = self._machine.speeds([self._places[thread] for thread in threads], self._job) if threads else []
            ends = [self._working[thread] / speed for thread, speed in zip(threads, speeds, strict=True)]
            comes = [self._ready[0][0] - self._clock.now] if self._ready else []
            busy, polling = self._awake()
            self._pass_by(min(ends + comes + polling), busy + len(polling))
            for thread, speed in zip(threads, speeds, strict=True):
                self._working[thread] -= self._passed * speed
                if self._working[thread] <= SMALLEST:
                    del self._working[thread]
                    self._left -= 1
                    heapq.heappush(self._ready, (self._clock.now, thread, True))
                    last = thread
        for _, thread, _ in self._ready:
            self._idle_since[thread] = self._clock.now
        if last != CALLER:
            self._clock.pass_by(NOTICE_S, len(self._places))

    def _arrives(self, thread: int) -> float:
        if thread == CALLER:
            return self._clock.now
        polls = self._clock.now - self._idle_since[thread] <= SPIN_S
        return self._clock.now + (NOTICE_S if polls else WAKE_S)

    def _meet_ready(self) -> None:
        """Advances each simulated thread whose waiting time is over. A thread without a task takes one; a thread that
        has taken one begins to work on it."""
        while self._ready and self._ready[0][0] <= self._clock.now:
            _, thread, claims = heapq.heappop(self._ready)
            if claims:
                self._claim(thread)
            else:
                self._working[thread] = 1.0

    def _claim(self, thread: int) -> None:
        """Takes the first task of the thread's own share, or the last of another share. Looking at a share that is
        empty takes time."""
        count = len(self._shares)
        for looks in range(count):
            share = self._shares[(thread + looks) % count]
            if share[0] < share[1]:
                share[0 if looks == 0 else 1] += 1 if looks == 0 else -1
                heapq.heappush(self._ready, (self._clock.now + TAKE_S + looks * LOOK_S, thread, False))
                return
        self._idle_since[thread] = self._clock.now

    def _pass_by(self, seconds: float, awake: int) -> None:
        before, self._passed = self._clock.now, seconds
        self._clock.pass_by(seconds, awake)
        late = self._clock.now - before - seconds
        if late > SHORTEST_S:  # a quota stopped all threads, also those that were about to come
            self._ready = [(time + late, thread, claims) for time, thread, claims in self._ready]

    def _awake(self) -> tuple[int, list[float]]:
        """Returns (the number of threads that work or will take a task, the caller included; the seconds until each of
        the other threads that still poll will sleep)."""
        busy = {CALLER, *self._working, *(thread for _, thread, _ in self._ready)}
        idle = (since for thread, since in enumerate(self._idle_since) if thread not in busy)
        return len(busy), until_sleep(idle, self._clock.now)
