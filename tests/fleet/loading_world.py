"""Random models, requests and processes around `Loading`, and what a server does with its actions, in virtual time."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from twostroke.distributed.fleet.loading import Loading, LoadingRules, ModelState, Refuse, Start, Stop

RULES = LoadingRules(load_wait_s=120.0, max_wait_s=10.0, failed_s=5.0)
CODES = (2, 3, 4, 5, 1, -9, -11)


@dataclass
class Job:
    """One request. run_s: how long it runs. came_s: the time of its arrival. ends_s: the time of its end, while it
    runs. outcome: served, refused or left."""

    model: str
    came_s: float
    run_s: float
    ends_s: float | None = None
    outcome: str = ""


@dataclass
class Process:
    """One process. ready_s: the time at which its load is over. code: the exit code with which the load ends instead.
    dies_s: the time at which it crashes. stopping: whether it ends when nothing runs in it."""

    ready_s: float
    code: int | None = None
    dies_s: float = float("inf")
    stopping: bool = False
    gone_s: float | None = None


@dataclass
class World:
    """A schedule. faults: how often a load fails and a process dies. Each step checks the laws."""

    seed: int
    faults: float = 0.0
    pinned: bool = True
    now: float = 0.0
    jobs: list[Job] = field(default_factory=list)
    done: list[Job] = field(default_factory=list)
    processes: dict[str, Process] = field(default_factory=dict)
    longest_wait_s: float = 0.0
    most_bytes: int = 0
    starts: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.loading = Loading(room_bytes=100, rules=RULES)
        for index in range(self.chance.randint(2, 5)):
            keep_s = self.chance.choice((float("inf"), 0.0, 1.0, 20.0))
            pinned = self.pinned and not index and self.chance.random() < 0.2
            size = self.chance.randint(10, 60)
            self.loading.add(f"m{index}", size, keep_s, pinned=pinned, load_s=self.chance.choice((0.2, 1.0, 4.0)))

    def run(self, requests: int) -> World:
        """Runs until all requests have come and ended."""
        names = [model.name for model in self.loading]
        times = sorted(self.chance.uniform(0, 40) for _ in range(requests))
        while times or self.jobs:
            if times and (times[0] <= self.now or not self.jobs):
                self.now = max(self.now, times.pop(0))
                self._something_comes(self.chance.choice(names))
            self._turn()
            self.now += self.chance.choice((0.1, 0.4, 1.2))
            assert self.now < 2000, f"a request waits for ever: {self.jobs}"
        return self

    def _something_comes(self, name: str) -> None:
        what = self.chance.random()
        if what < 0.85:
            self.jobs.append(Job(name, self.now, self.chance.choice((0.05, 0.5, 3.0))))
        elif what < 0.9:
            self.loading.want(name, self.now, gentle=self.chance.random() < 0.5)
        elif what < 0.95:
            self.loading.unload(name, self.now)
        else:
            self.loading.keep(name, self.chance.choice((0.0, 2.0, float("inf"))))

    def _turn(self) -> None:
        self._processes_go_on()
        for model in self.loading:
            self.loading.observe(model.name, self._count(model.name), self.now)
        for action in self.loading.tick(self.now):
            if isinstance(action, Start):
                self._start(action.name)
            elif isinstance(action, Stop):
                self._stop(action.name)
            else:
                self._refuse(action)
        self._place()
        self._check()

    def _count(self, name: str) -> int:
        return sum(job.model == name for job in self.jobs)

    def _running(self, name: str) -> list[Job]:
        return [job for job in self.jobs if job.model == name and job.ends_s is not None]

    def _start(self, name: str) -> None:
        assert name not in self.processes, "a model has one process"
        loads = [each for each in self.processes if self.loading[each].state is ModelState.LOADING]
        assert not loads, "one load at a time"
        model = self.loading[name]
        code = self.chance.choice(CODES) if self.chance.random() < self.faults else None
        dies_s = self.now + self.chance.uniform(0, 20) if self.chance.random() < self.faults else float("inf")
        self.processes[name] = Process(self.now + model.load_s * self.chance.uniform(0.5, 2), code, dies_s)
        self.starts += 1

    def _stop(self, name: str) -> None:
        model = self.loading[name]
        assert not model.pinned or model.unloading, "a pinned model leaves only where a user says so"
        self.processes[name].stopping = True

    def _refuse(self, refuse: Refuse) -> None:
        assert not self._running(refuse.name), "what runs is not refused"
        for job in [job for job in self.jobs if job.model == refuse.name]:
            self._end(job, "refused")

    def _end(self, job: Job, outcome: str) -> None:
        assert not job.outcome, "a request ends once"
        job.outcome = outcome
        self.jobs.remove(job)
        self.done.append(job)

    def _processes_go_on(self) -> None:
        for name, process in list(self.processes.items()):
            for job in self._running(name):
                if job.ends_s is not None and self.now >= job.ends_s:
                    self._end(job, "served")
            loading = self.loading[name].state is ModelState.LOADING
            if loading and self.now >= process.ready_s:
                if process.code is not None:
                    self._gone(name, process.code)
                    continue
                self.loading.ready(name, self.now)
            if self.now >= process.dies_s:
                self._gone(name, -9)
            elif process.stopping and not self._running(name):
                process.gone_s = process.gone_s or self.now + self.chance.uniform(0, 1)
                if self.now >= process.gone_s:
                    self._gone(name, 0)

    def _gone(self, name: str, code: int) -> None:
        del self.processes[name]
        for job in self._running(name):
            job.ends_s = None  # it goes on in the next process
        self.loading.observe(name, self._count(name), self.now)
        self.loading.ended(name, self.now, code, "its words")

    def _place(self) -> None:
        for job in self.jobs:
            process = self.processes.get(job.model)
            ready = process is not None and not process.stopping
            if ready and self.loading[job.model].state is ModelState.READY and job.ends_s is None:
                job.ends_s = self.now + job.run_s
                self.longest_wait_s = max(self.longest_wait_s, self.now - job.came_s)

    def _check(self) -> None:
        used = sum(self.loading[name].need_bytes for name in self.processes)
        self.most_bytes = max(self.most_bytes, used)
        assert used <= self.loading.room_bytes, "more memory than there is"
        assert {model.name for model in self.loading if model.has_process} == set(self.processes)
