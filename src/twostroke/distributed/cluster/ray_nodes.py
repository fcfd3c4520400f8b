"""Runs replicas on the machines of a Ray cluster. Ray chooses the machines and restarts replicas; no token goes through
Ray.

An actor keeps one replica, a process without Ray, as `LocalKeeper` does. Where a machine is lost, Ray starts the actor
on another machine, and its new address is added to `addresses`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twostroke.distributed.cluster.keeper import LocalKeeper
from twostroke.types.errors import ConfigError, EngineStopped

START_S = 120.0
"""The longest wait in seconds until all actors have an address. Machines may have to be started first."""
ANSWER_S, WATCH_S, CLOSE_S = 5.0, 2.0, 15.0


@dataclass(frozen=True, slots=True)
class RayReplicas:
    """The replicas to start. words: the arguments of `twostroke replica` without address and name. secret: the secret
    by which fronts and replicas recognise each other; the variables of `environment` hold it too.

    environment: a function that returns the replica's environment variables; it is called on the machine where the
    replica runs. cpus: the number of Ray's CPUs that each replica takes.
    """

    count: int
    words: tuple[str, ...]
    secret: str
    environment: Callable[[], Mapping[str, str]]
    cpus: int


class ReplicaKeeper:
    """The actor, which keeps one replica and starts it again when it ends."""

    def __init__(self, name: str, host: str, asked: RayReplicas) -> None:
        def command(_: str, descriptor: int) -> list[str]:
            own = ["--name", name, "--listen-fd", str(descriptor)]
            return [sys.executable, "-P", "-m", "twostroke", "replica", *asked.words, *own]

        environment = {**asked.environment(), "TWOSTROKE_CLUSTER_SECRET": asked.secret}
        self._keeper = LocalKeeper(1, command, environment, lambda text: print(text, file=sys.stderr), host or _host())
        self._keeper.start()

    def state(self) -> tuple[tuple[str, int], int | None]:
        """Returns the replica's address, and its exit code when it has ended and will not be started again; None while
        it may run."""
        return self._keeper.addresses[0], self._keeper.failed

    def close(self) -> None:
        """Ends the replica's process."""
        self._keeper.close()


class RayNodes:
    """Owns the Ray actors, each of which keeps one replica. addresses: the addresses of the replicas; the list changes
    while they run. say: writes a line to the log.

    ray: the Ray library. at: the address of a running Ray cluster; None starts one on this machine, for loopback alone.
    """

    def __init__(self, ray: Any, asked: RayReplicas, at: str | None, say: Callable[[str], None]) -> None:
        self.addresses: list[tuple[str, int]] = []
        self._ray, self._asked, self._at, self._say = ray, asked, at, say
        self._actors: list[Any] = []
        self._ending = threading.Event()
        self._failed: list[int | None] = [None] * asked.count
        self._watching = threading.Thread(target=self._watch, name="ray-watch", daemon=True)

    def start(self) -> None:
        """Starts the actors and waits until each has an address. Raises EngineStopped."""
        if self._at is None:
            asked = self._asked
            self._ray.init(
                num_cpus=asked.count * asked.cpus,
                include_dashboard=False,
                object_store_memory=100 << 20,  # we put nothing into this store
                _node_ip_address="127.0.0.1",
                log_to_driver=True,
            )
        else:
            self._ray.init(address=self._at)
        host = "127.0.0.1" if self._at is None else ""
        options = {"num_cpus": self._asked.cpus, "max_restarts": -1, "scheduling_strategy": "SPREAD"}
        actor = self._ray.remote(**options)(ReplicaKeeper)
        self._actors = [actor.remote(f"replica-{index}", host, self._asked) for index in range(self._asked.count)]
        try:
            states = self._ray.get([each.state.remote() for each in self._actors], timeout=START_S)
        except Exception as error:
            self.close()
            raise EngineStopped(
                "Ray did not start the replicas.",
                why=f"{type(error).__name__}: {error}",
                fix="Ask for fewer, or for fewer --threads each, or add machines.",
            ) from error
        self._take(states)
        self._watching.start()

    @property
    def failed(self) -> int | None:
        """The exit code of the first replica when all replicas have ended and none will be started again; None while
        one may run."""
        return self._failed[0] if None not in self._failed else None

    def close(self) -> None:
        """Ends the replicas, the actors, and Ray in this process. Closing twice is harmless."""
        self._ending.set()
        if self._watching.is_alive():
            self._watching.join(ANSWER_S + WATCH_S)
        actors, self._actors = self._actors, []
        try:
            self._ray.get([each.close.remote() for each in actors], timeout=CLOSE_S)
        except Exception as error:
            self._say(f"not every replica has said that it ends: {type(error).__name__}")
        for each in actors:
            self._ray.kill(each)
        self._ray.shutdown()

    def _watch(self) -> None:
        """Reads the state of each actor again and again. An actor that does not answer is being restarted; until it is
        back, its last address stays."""
        while not self._ending.wait(WATCH_S):
            states: list[Any] = [*zip(self.addresses, self._failed, strict=True)]
            for index, actor in enumerate(self._actors):
                try:
                    states[index] = self._ray.get(actor.state.remote(), timeout=ANSWER_S)
                except Exception as error:
                    self._say(f"replica-{index} is not there: {type(error).__name__}")
            self._take(states)

    def _take(self, states: Sequence[tuple[tuple[str, int], int | None]]) -> None:
        self._failed = [failed for _, failed in states]
        found = [(host, port) for (host, port), _ in states]
        if found != self.addresses:
            self.addresses[:] = found


def load_ray() -> Any:
    """Returns the Ray library. Raises ConfigError where it is not installed."""
    try:
        import ray
    except ImportError as error:
        raise ConfigError(
            "Ray is not installed here.",
            why=f"{error}.",
            fix='pip install "twostroke[ray]"; or `twostroke serve --replicas N`, which needs no Ray.',
        ) from error
    return ray


def _host() -> str:
    """Returns this machine's address, as Ray's other machines know it."""
    from ray.util import get_node_ip_address

    return str(get_node_ip_address())
