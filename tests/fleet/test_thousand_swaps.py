"""A thousand swaps of two models of which one fits: nothing accumulates, neither in decisions nor in processes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from twostroke.distributed.cluster.model_process import ModelProcess, ProcessEnd
from twostroke.distributed.fleet.loading import Loading, LoadingRules, Start, Stop

SWAPS = 1000
ROOM, NEED = 100, 60
LOAD_S, LEAVE_S = 2.0, 0.5


class TwoModels:
    """Two models whose requests come in turn, in virtual time. Each one leaves for the other. All times are sums of
    eighths of a second, so they are exact."""

    def __init__(self) -> None:
        self.loading, self.now, self.loaded = Loading(ROOM, LoadingRules()), 0.0, ""
        for name in "ab":
            self.loading.add(name, NEED, load_s=LOAD_S)
        self.longest_wait_s = 0.0

    def swap(self, name: str) -> None:
        """One request for this model, from its arrival to its end."""
        came_s, gone_s, ready_s = self.now, None, None
        self.loading.observe(name, 1, self.now)
        while self.loaded != name:
            for action in self.loading.tick(self.now):
                if isinstance(action, Stop):
                    assert action.name == self.loaded != name and gone_s is None
                    gone_s = self.now + LEAVE_S
                else:
                    assert action == Start(name) and not self.loaded and ready_s is None
                    ready_s = self.now + LOAD_S
            self.now += 0.125
            if gone_s is not None and self.loaded and self.now >= gone_s:
                self.loading.ended(self.loaded, self.now)
                self.loaded = ""
            if ready_s is not None and self.now >= ready_s:
                self.loading.ready(name, self.now)
                self.loaded = name
            assert self.loading.used_bytes <= ROOM
            assert self.now - came_s < 60, "it waits for ever"
        self.longest_wait_s = max(self.longest_wait_s, self.now - came_s)
        self.now += 0.25
        self.loading.observe(name, 0, self.now)
        assert self.loading.tick(self.now) == []

    def picture(self) -> list[tuple[object, ...]]:
        """Returns all stored facts of each model. Times are measured from the present moment."""
        return [
            tuple(
                round(self.now - value, 6) if field.endswith("_since_s") or field == "begun_s" else value
                for field in model.__slots__
                if (value := getattr(model, field)) is not None
            )
            for model in self.loading
        ]


def test_the_decisions_of_the_last_swap_are_those_of_the_tenth() -> None:
    models = TwoModels()
    pictures = []
    for number in range(SWAPS):
        models.swap("ab"[number % 2])
        pictures.append(models.picture())
    assert models.longest_wait_s < LoadingRules().turn_loads * LOAD_S + LEAVE_S + LOAD_S + 1
    assert pictures[-2:] == pictures[10:12]
    assert len(list(models.loading)) == 2


def _held() -> tuple[int, int, list[str]]:
    """Descriptors, threads and children of this process."""
    children = [path.read_text() for path in sorted(Path("/proc/self/task").glob("*/children"))]
    return len(os.listdir("/proc/self/fd")), threading.active_count(), sorted(filter(None, children))


@pytest.mark.slow
@pytest.mark.parametrize("command", [["/bin/true"], ["/no/such/program"]], ids=["ends", "does-not-start"])
def test_a_thousand_processes_leave_no_descriptor_thread_or_child(command: list[str]) -> None:
    ends: list[ProcessEnd] = []
    heard: Callable[[object], None] = lambda news: ends.append(news) if isinstance(news, ProcessEnd) else None  # noqa: E731
    before = _held()
    for number in range(1, SWAPS + 1):
        process = ModelProcess("one", lambda listening, report: command, {}, heard)
        process.close()
        assert len(ends) == number
    assert _held() == before
    assert len({each.code for each in ends}) <= 2  # it may end before it is asked to
