"""How many tokens a second reach clients when the device costs nothing: the server's own work is what is measured.

    python tools/measure_streaming.py                      one process: engine, text, HTTP
    python tools/measure_streaming.py --front              a front, and a replica after it
    python tools/measure_streaming.py --step-ms 0 --json   a device without any time: how fast the host can be

A device that is simulated gives each stream a token a step. Clients are bare sockets that count and parse nothing. The
figure that holds on a busy machine is processor time a token, by process and thread; tokens a second are by the clock.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PARTS = Path(__file__).resolve().parent / "streams"


class Process:
    """One server of tools/streams/server.py."""

    def __init__(self, *words: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(PARTS / "server.py"), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.facts = self._line()

    def thread_seconds(self) -> dict[str, float]:
        """Processor seconds of its threads so far."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        found: dict[str, float] = self._line()["threads"]
        return found

    def close(self) -> None:
        """Close the input, with which the process ends."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        found: dict[str, Any] = json.loads(self._process.stdout.readline() or "{}")
        return found


def clients(url: str, asked: argparse.Namespace, seconds: float) -> dict[str, float]:
    """Sums over the processes of clients."""
    share = max(1, asked.streams // asked.client_processes)
    words = ["--streams", str(share), "--tokens", str(asked.tokens), "--route", asked.route, "--seconds", str(seconds)]
    running = [
        subprocess.Popen([sys.executable, str(PARTS / "clients.py"), url, *words], stdout=subprocess.PIPE, text=True)
        for _ in range(asked.client_processes)
    ]
    found = [json.loads(process.communicate()[0]) for process in running]
    total: dict[str, float] = {name: sum(each[name] for each in found) for name in found[0] if name != "clock_s"}
    return total | {"clock_s": max(each["clock_s"] for each in found)}


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    """One warm-up of a second, then the run."""
    step = ["--step-ms", str(asked.step_ms)]
    profile = ["--profile", asked.profile] if asked.profile else []
    processes: dict[str, Process] = {}
    try:
        if asked.front:
            processes["replica"] = Process("replica", *step, *profile)
            host, port = processes["replica"].facts["address"]
            processes["front"] = Process("front", "--replica", f"{host}:{port}", *profile)
        else:
            processes["server"] = Process("alone", *step, *profile)
        url = list(processes.values())[-1].facts["url"]
        clients(url, asked, 1.0)
        before = {name: process.thread_seconds() for name, process in processes.items()}
        found = clients(url, asked, asked.seconds)
        after = {name: process.thread_seconds() for name, process in processes.items()}
    finally:
        for process in reversed(list(processes.values())):
            process.close()
    return figures(found, before, after)


def figures(
    found: dict[str, float], before: dict[str, dict[str, float]], after: dict[str, dict[str, float]]
) -> dict[str, Any]:
    """Microseconds of processor a token by process and thread; threads below half a microsecond are left out."""
    tokens = found["tokens"]
    spent = {
        process: {
            thread: round(us, 2)
            for thread, seconds in threads.items()
            if (us := (seconds - before[process].get(thread, 0.0)) / tokens * 1e6) >= 0.5
        }
        for process, threads in after.items()
    }
    return {
        "tokens": tokens,
        "tokens_per_s": round(tokens / found["clock_s"]),
        "tokens_per_event": round(tokens / found["events"], 3),
        "events_per_read": round(found["events"] / found["reads"], 2),
        "bytes_per_token": round(found["bytes"] / tokens),
        "answers": found["answers"],
        "wrong_answers": found["wrong"],
        "client_us_per_token": round(found["processor_s"] / tokens * 1e6, 2),
        "us_per_token": spent,
        "us_per_token_of_processes": {process: round(sum(each.values()), 2) for process, each in spent.items()},
    }


def text_of(figures: dict[str, Any]) -> str:
    """The figures as text for people."""
    lines = [
        f"{figures['tokens_per_s']:,} tok/s by the clock; {figures['tokens_per_event']} tokens an event, "
        f"{figures['events_per_read']} events a read, {figures['bytes_per_token']} bytes a token; "
        f"{figures['answers']} answers, {figures['wrong_answers']} wrong",
        f"processor time a token: clients {figures['client_us_per_token']} us",
    ]
    for process, threads in figures["us_per_token"].items():
        each = ", ".join(f"{thread} {us}" for thread, us in sorted(threads.items(), key=lambda pair: -pair[1]))
        lines.append(f"  {process}: {figures['us_per_token_of_processes'][process]} us ({each})")
    return "\n".join(lines)


def main() -> int:
    """0 where all answers were whole."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=400, help="of each answer")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--step-ms", type=float, default=2.0, help="how long a step of the device takes")
    parser.add_argument("--route", choices=["chat", "completions"], default="chat")
    parser.add_argument("--client-processes", type=int, default=2)
    parser.add_argument("--front", action="store_true", help="a front and a replica instead of one process")
    parser.add_argument("--profile", default="", help="write cProfile files that begin so; times are no figures then")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = measure(asked)
    print(json.dumps(found) if asked.json else text_of(found))
    return 1 if found["wrong_answers"] else 0


if __name__ == "__main__":
    sys.exit(main())
