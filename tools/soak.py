"""Soak: mixed load at three times the server's capacity, with aborts, malformed and hostile requests.

    python tools/soak.py --minutes 30 --out docs/soak.json

The soak checks these promises. There is no wrong token: every whole answer has the bits of the same request alone on an
idle server. There is no leak: memory is flat within 2%, and there are as many descriptors and threads as before. All
gauges are zero at the end, and all statuses are honest. The exit code of the server is 0, and no process is left.

The exit code of the soak is 1 when a promise is broken. Memory counts from the time when the server's bounded histories
are full (see soaking/verdict.py). A line on standard error shows the progress every quarter of a minute. The figures so
far are in a file next to --out whose name ends in .part, and all figures are in --out at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

for folder in (Path(__file__).resolve().parents[1] / "src", Path(__file__).resolve().parent):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from soaking.clients import Client  # noqa: E402
from soaking.load import Load, Tally  # noqa: E402
from soaking.process import Server  # noqa: E402
from soaking.progress import Diary, write_json  # noqa: E402
from soaking.requests import ordinary  # noqa: E402
from soaking.verdict import verdict  # noqa: E402

MULTIPLE = 3.0
CAPACITY_S = 5.0
LEAST_SAMPLES, MOST_BETWEEN_S = 120, 5.0


async def measure_capacity(client: Client, bodies: list[dict[str, Any]], streams: int) -> float:
    """Returns the requests a second that the server answers while all places are taken."""
    served, until_s = 0, time.monotonic() + CAPACITY_S

    async def loop(first: int) -> None:
        nonlocal served
        number = first
        while time.monotonic() < until_s:
            await client.whole(bodies[number % len(bodies)])
            number += streams
            served += 1

    await asyncio.gather(*(loop(i) for i in range(streams)))
    return served / CAPACITY_S


async def at_rest(client: Client, wait_s: float = 60.0) -> dict[str, float]:
    """Returns the gauges that must be zero, as soon as they are zero or after wait_s seconds."""
    names: tuple[str, ...] = ("requests_running", "requests_waiting", "kv_pages_used", "kv_waste_tokens")
    names += ("calls_in_flight", "queued_requests", "queued_prompt_tokens")
    until_s = time.monotonic() + wait_s
    while True:
        found = await client.metrics()
        gauges = {name: found[f"twostroke_{name}"] for name in names}
        if not any(gauges.values()) or time.monotonic() > until_s:
            return gauges
        await asyncio.sleep(0.1)


async def soak(server: Server, minutes: float, seed: int, streams: int, diary: Diary) -> dict[str, Any]:
    """Runs the whole soak on a server that is already started."""
    dice, client = random.Random(seed), Client(server.port)
    bodies = ordinary(dice)
    alone = [await client.whole(body) for body in bodies]
    capacity = await measure_capacity(client, bodies, streams)
    before = server.sample()
    tally = Tally()
    load = Load(client, bodies, [answer.choices for answer in alone], MULTIPLE * capacity, dice, tally)
    started_s = time.monotonic()
    length_s = 60.0 * minutes
    between_s = min(MOST_BETWEEN_S, length_s / LEAST_SAMPLES)

    async def watch() -> None:
        while True:
            diary.add(time.monotonic() - started_s, server.sample(), await client.fills(), tally)
            await asyncio.sleep(between_s)

    watcher = asyncio.create_task(watch())
    try:
        await load.run(length_s)
    finally:
        watcher.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watcher
    gauges = await at_rest(client)
    again = [await client.whole(body) for body in bodies]
    await asyncio.sleep(1.0)
    after = server.sample()
    return {
        "minutes": round((time.monotonic() - started_s) / 60, 2),
        "capacity_per_s": round(capacity, 1),
        "offered_per_s": round(MULTIPLE * capacity, 1),
        "tally": tally.shown(),
        "gauges_after": gauges,
        "wrong_after": sum(a.choices != b.choices for a, b in zip(alone, again, strict=True)),
        "before": before.shown(),
        "after": after.shown(),
        **diary.shown(),
    }


def main() -> int:
    """Run the command line. Returns the exit code."""
    words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--minutes", type=float, default=30.0)
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--model", default="spark")
    words.add_argument("--threads", type=int, default=1)
    words.add_argument("--streams", type=int, default=8, help="sequences that run at once")
    words.add_argument("--out", type=Path, default=None, help="file for the figures, as JSON")
    asked = words.parse_args()
    with Diary(asked.out) as diary, Server.start(asked.model, asked.threads, asked.streams) as server:
        found = asyncio.run(soak(server, asked.minutes, asked.seed, asked.streams, diary))
        found["exit_code"], found["processes_left"] = server.stop()
        found["broken"] = verdict(found)
        if asked.out is not None:
            write_json(asked.out, found)
    print(json.dumps({name: value for name, value in found.items() if name not in Diary.SERIES}, indent=1))
    return 1 if found["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
