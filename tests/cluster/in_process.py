"""A front with replicas, all in this process, with a real socket. It serves tests that a single server passes too."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from tests.patience import PATIENCE_S
from tests.serve.harness import Live, serving
from twostroke.assembly.processes.replica import ReplicaEndpoint, build_replica
from twostroke.server.build import build_server
from twostroke.server.build_front import build_front

REPLICAS = 3


def no_word(text: str) -> None:
    """A log that writes nothing."""


@contextmanager
def spark_server(kind: str, options: dict[str, Any]) -> Iterator[Live]:
    """kind: "engine" is a single server; "front" is one with three replicas, each of which has these options."""
    with ExitStack() as stack:
        if kind == "engine":
            built = stack.enter_context(build_server("spark", options))
        else:
            addresses = [stack.enter_context(_replica(f"r{index}", options)) for index in range(REPLICAS)]
            built = stack.enter_context(build_front("spark", {}, addresses, "s", no_word))
        yield stack.enter_context(serving(built.parts))


@contextmanager
def _replica(name: str, options: dict[str, Any]) -> Iterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        built = build_replica("spark", options, ReplicaEndpoint(listener, name, "s"), no_word)
        thread = threading.Thread(target=built.replica.serve)
        with built.heart:
            thread.start()
            try:
                yield listener.getsockname()[:2]
            finally:
                built.replica.stop()
                thread.join(PATIENCE_S)
