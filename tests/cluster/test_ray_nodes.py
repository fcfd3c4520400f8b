"""Replicas that Ray keeps: the logic with a small fake of Ray, and one test with Ray itself where it is installed."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from twostroke.assembly.settings.env import no_usage_reports, process_environment
from twostroke.distributed.cluster import ray_nodes
from twostroke.distributed.cluster.front import FrontStepper
from twostroke.distributed.cluster.link import secret_key
from twostroke.distributed.cluster.ray_nodes import RayNodes, RayReplicas, ReplicaKeeper, load_ray
from twostroke.types.errors import ConfigError, EngineStopped

WORDS = ("spark", "--threads", "1", "--kv-memory", "8MB")
State = tuple[tuple[str, int], int | None]


@dataclass(eq=False)
class FakeActor:
    """name, host: the arguments with which it was made. states: its answers; an exception while it is not there."""

    name: str
    host: str
    says: State | Exception
    closed: bool = False
    killed: bool = False

    def __getattr__(self, method: str) -> Any:
        return type("Method", (), {"remote": staticmethod(lambda: (self, method))})


@dataclass
class FakeRay:
    """The five calls of Ray that the code uses."""

    fails: bool = False
    actors: list[FakeActor] = field(default_factory=list)
    began: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    shut: int = 0

    def init(self, **settings: Any) -> None:
        self.began = settings

    def remote(self, **options: Any) -> Callable[[type], Any]:
        self.options = options

        def make(name: str, host: str, asked: RayReplicas) -> FakeActor:
            self.actors.append(FakeActor(name, host, (("127.0.0.1", 9000 + len(self.actors)), None)))
            return self.actors[-1]

        def wrap(actor: type) -> Any:
            assert actor is ReplicaKeeper
            return type("Remote", (), {"remote": staticmethod(make)})

        return wrap

    def get(self, asked: Any, timeout: float) -> Any:
        if isinstance(asked, list):
            return [self.get(each, timeout) for each in asked]
        actor, method = asked
        if method == "close":
            actor.closed = True
            return None
        if self.fails:
            raise TimeoutError("no machine has room")
        if isinstance(actor.says, Exception):
            raise actor.says
        return actor.says

    def kill(self, actor: FakeActor) -> None:
        actor.killed = True

    def shutdown(self) -> None:
        self.shut += 1


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_nodes, "WATCH_S", 0.01)


def asked(count: int = 2) -> RayReplicas:
    return RayReplicas(count, WORDS, "a secret", process_environment, 1)


def wait_until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    until_s = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until_s
        time.sleep(0.01)


def test_replicas_start_somewhere_and_all_end() -> None:
    ray = FakeRay()
    nodes = RayNodes(ray, asked(3), None, print)
    nodes.start()
    assert nodes.addresses == [("127.0.0.1", 9000), ("127.0.0.1", 9001), ("127.0.0.1", 9002)]
    assert [(each.name, each.host) for each in ray.actors] == [(f"replica-{i}", "127.0.0.1") for i in range(3)]
    assert ray.options == {"num_cpus": 1, "max_restarts": -1, "scheduling_strategy": "SPREAD"}
    assert ray.began["num_cpus"] == 3 and nodes.failed is None
    nodes.close()
    assert all(each.closed and each.killed for each in ray.actors) and ray.shut == 1


def test_a_replica_that_starts_elsewhere_gets_its_new_address_into_the_same_list() -> None:
    ray, said = FakeRay(), list[str]()
    nodes = RayNodes(ray, asked(), "10.0.0.1:6379", said.append)
    nodes.start()
    live = nodes.addresses
    assert ray.began == {"address": "10.0.0.1:6379"} and ray.actors[0].host == ""
    ray.actors[1].says = ConnectionError("gone")
    wait_until(lambda: any("replica-1 is not there" in text for text in said))
    assert live[1] == ("127.0.0.1", 9001), "its last address stays until there is another one"
    ray.actors[1].says = (("10.0.0.9", 7000), None)
    wait_until(lambda: live[1] == ("10.0.0.9", 7000))
    ray.actors[0].says = (live[0], 3)
    time.sleep(0.05)
    assert nodes.failed is None, "one may still run"
    ray.actors[1].says = (live[1], 3)
    wait_until(lambda: nodes.failed == 3)
    nodes.close()


def test_a_cluster_without_room_is_said_once_and_nothing_is_left() -> None:
    ray = FakeRay(fails=True)
    with pytest.raises(EngineStopped, match=r"no machine has room.*Ask for fewer"):
        RayNodes(ray, asked(), None, print).start()
    assert all(each.killed for each in ray.actors) and ray.shut == 1


def test_without_ray_one_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"Ray is not installed here.*twostroke\[ray\].*--replicas"):
        load_ray()


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed: pip install twostroke[ray]")
def test_ray_starts_replicas_and_a_lost_keeper_again(monkeypatch: pytest.MonkeyPatch) -> None:
    no_usage_reports()
    nodes = RayNodes(load_ray(), asked(), None, print)
    nodes.start()
    front = FrontStepper(nodes.addresses, 16, secret_key("a secret"), time.monotonic, print, lambda text: None)
    try:
        assert [each["state"] for each in front.look(60.0)] == ["ready", "ready"]
        before = list(nodes.addresses)
        actor = nodes._actors[0]
        os.kill(load_ray().get(actor.__ray_call__.remote(lambda _: os.getpid())), signal.SIGKILL)
        wait_until(lambda: nodes.addresses[0] != before[0], 60.0)
        assert nodes.addresses[1] == before[1]
        wait_until(lambda: [each["state"] for each in front.look(1.0)] == ["ready", "ready"], 60.0)
    finally:
        front.close()
        nodes.close()
    assert not any(thread.name == "ray-watch" for thread in threading.enumerate())
