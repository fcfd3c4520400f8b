"""A server as `twostroke serve` builds it, whose device is simulated. Runs as a process of its own.

    python tools/streams/server.py alone|front|replica --step-ms 2 [--profile FILE]

Prints one JSON line with its address. For each line on standard input it prints what its threads have used so far:
{"threads": {name: seconds of processor}}. It ends when its input ends.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

for folder in (Path(__file__).resolve().parents[2] / "src", Path(__file__).resolve().parents[1]):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from streams.device import SimulatedDevice  # noqa: E402
from twostroke.assembly.place import RunPlace  # noqa: E402
from twostroke.text.tokenizer import Tokenizer  # noqa: E402

SPARK = Path(__file__).resolve().parents[2] / "src" / "twostroke" / "assets" / "spark"
PLACES = 128
KV_MEMORY = "128MB"


def device_of(step_s: float) -> SimulatedDevice:
    """A device whose answers are the text of a guide: words, punctuation, code."""
    text = (Path(__file__).resolve().parents[2] / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    return SimulatedDevice(step_s, Tokenizer.from_folder(SPARK).encode_rendered(text))


def thread_seconds() -> dict[str, float]:
    """Processor seconds of each thread by its name; threads of native code together as "native"."""
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    found: dict[str, float] = {}
    for entry in Path("/proc/self/task").iterdir():
        name = names.get(int(entry.name), "native")
        try:
            nanoseconds = int((entry / "schedstat").read_text().split()[0])
        except OSError:  # it has ended
            continue
        found[name] = found.get(name, 0.0) + nanoseconds / 1e9
    return found


def answer_questions() -> None:
    """Answer questions until standard input ends; then the process is asked to end."""
    for _line in sys.stdin:
        print(json.dumps({"threads": thread_seconds()}), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)


def profiled(threads: tuple[str, ...], path: str) -> None:
    """Threads with these names write a profile to path.NAME when they end."""

    def wrap(inner: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            profile = cProfile.Profile()
            try:
                profile.runcall(inner)
            finally:
                profile.dump_stats(f"{path}.{threading.current_thread().name}")

        return run

    start = threading.Thread.start

    def starting(self: threading.Thread) -> None:
        if self.name in threads:
            self.run = wrap(self.run)  # type: ignore[method-assign]
        start(self)

    threading.Thread.start = starting  # type: ignore[method-assign]


def tell(facts: dict[str, Any]) -> None:
    """The one line at the start."""
    print(json.dumps(facts), flush=True)
    threading.Thread(target=answer_questions, daemon=True, name="questions").start()


def serve_http(kind: str, replicas: list[tuple[str, int]]) -> None:
    """Serve HTTP until SIGTERM."""
    from twostroke.cli.shared.garbage import lasting_heap
    from twostroke.server.build import build_server
    from twostroke.server.build_front import build_front
    from twostroke.server.serve import run

    if kind == "front":
        built = build_front("spark", {}, replicas, None, lambda text: print(text, file=sys.stderr))
    else:
        built = build_server("spark", {"max_sequences": PLACES, "kv_memory": KV_MEMORY})
    with built, lasting_heap():
        run(built.parts, "127.0.0.1", 0, lambda url: tell({"url": url}))


def serve_replica() -> None:
    """Serve as a replica until SIGTERM."""
    from twostroke.assembly.replica import ReplicaEndpoint, build_replica
    from twostroke.server.serve import bind

    listener = bind("127.0.0.1", 0)
    options = {"max_sequences": PLACES, "kv_memory": KV_MEMORY}
    with listener:
        endpoint = ReplicaEndpoint(listener, "one", None)
        built = build_replica("spark", options, endpoint, lambda text: print(text, file=sys.stderr))
        signal.signal(signal.SIGTERM, lambda *_: built.replica.stop())
        tell({"address": listener.getsockname()[:2]})
        with built.heart:
            built.replica.serve()


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["alone", "front", "replica"])
    parser.add_argument("--step-ms", type=float, default=2.0)
    parser.add_argument("--replica", action="append", default=[], help="HOST:PORT, for a front")
    parser.add_argument("--profile", default="", help="write profiles to files that begin so")
    asked = parser.parse_args()
    RunPlace.runner = lambda *_parts: device_of(asked.step_ms / 1e3)  # type: ignore[method-assign]
    if asked.profile:
        profiled(("engine-steps", "replica-steps"), asked.profile)
    profile = cProfile.Profile()
    if asked.profile:
        profile.enable()
    if asked.kind == "replica":
        serve_replica()
    else:
        pairs = [address.rpartition(":") for address in asked.replica]
        serve_http(asked.kind, [(host, int(port)) for host, _, port in pairs])
    if asked.profile:
        profile.disable()
        profile.dump_stats(f"{asked.profile}.main")


if __name__ == "__main__":
    main()
