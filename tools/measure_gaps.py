"""Does a long text hold up a stream? The gaps of a running stream alone, and while a text of 3 MB is refused or read.

    python tools/measure_gaps.py                        spark, both kinds of text, three rounds
    python tools/measure_gaps.py --model meta-llama/Llama-3.2-1B-Instruct --weights int4 --json

Starts `twostroke serve` and ends it. "refused": the text is sent to /v1/chat/completions, where it cannot fit. "read":
to /tokenize, which reads it whole and sends its ids. In each round the same stream runs alone first. The bar: no gap of
the stream grows by more than 50 ms. Run it on a machine that does nothing else: the exit code is 1 where the bar is
missed.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urlsplit

BAR_S = 0.05
QUIET_S = 1.0  # how long the stream runs before the text is sent: its first steps do not count
READ_BYTES = 1 << 16


class Stream:
    """Streamed answers one after the other, read in a thread of its own; when each read came, of each answer."""

    def __init__(self, url: str, model: str, tokens: int) -> None:
        where = urlsplit(url)
        body = json.dumps({"model": model, "prompt": "Once", "max_tokens": tokens, "ignore_eos": True, "stream": True})
        head = f"POST /v1/completions HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Length: {len(body)}\r\n"
        self._asked = (head + "Connection: close\r\n\r\n" + body).encode()
        self._address = (where.hostname or "", where.port or 80)
        self._answers: list[list[float]] = []
        self._stopped = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped:
            times: list[float] = []
            self._answers.append(times)
            with socket.create_connection(self._address) as sock:
                sock.sendall(self._asked)
                while not self._stopped and (data := sock.recv(READ_BYTES)):
                    if b"data: " in data:
                        times.append(time.perf_counter())

    def gaps_s(self, begin_s: float, end_s: float) -> list[float]:
        """The seconds between two reads of one answer, where the gap lies within this time at least in part."""
        return [
            later - earlier
            for times in list(self._answers)
            for earlier, later in itertools.pairwise(list(times))
            if later >= begin_s and earlier <= end_s
        ]

    def close(self) -> None:
        """Hang up."""
        self._stopped = True
        self._thread.join()


def post(url: str, path: str, body: bytes) -> tuple[int, int]:
    """The status, and the bytes of the answer."""
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=300)
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, len(answer.read())
    finally:
        connection.close()


def bodies(model: str, megabytes: float) -> dict[str, tuple[str, bytes, int]]:
    """Path, body and the status that is right, by name. Not escaped: escapes would make the body too large."""
    words = "Prefill reads the prompt; decode writes the answer, café by café. "
    text = words * int(megabytes * 1e6 / len(words.encode()))
    chat = {"model": model, "messages": [{"role": "user", "content": text}]}
    read = {"model": model, "prompt": text}
    return {
        "refused": ("/v1/chat/completions", json.dumps(chat, ensure_ascii=False).encode(), 400),
        "read": ("/tokenize", json.dumps(read, ensure_ascii=False).encode(), 200),
    }


def one_round(url: str, asked: argparse.Namespace, send: Callable[[], tuple[int, int]]) -> dict[str, Any]:
    """The stream alone for as long as the text takes, then next to it."""
    begin_s = time.perf_counter()
    send()  # how long it takes; everything that is made once is made now
    alone_s = max(1.0, time.perf_counter() - begin_s)
    stream = Stream(url, asked.served_name, asked.tokens)
    try:
        time.sleep(QUIET_S)
        alone_from = time.perf_counter()
        time.sleep(alone_s)
        beside_from = time.perf_counter()
        status, size = send()
        beside_to = time.perf_counter()
        time.sleep(0.2)  # the next read after it ends the last gap
    finally:
        stream.close()
    alone, beside = stream.gaps_s(alone_from, beside_from), stream.gaps_s(beside_from, beside_to)
    if not alone or not beside:
        raise SystemExit("The stream had no gap in that time: give more --tokens.")
    return {
        "status": status,
        "answer_bytes": size,
        "took_s": beside_to - beside_from,
        "alone_p50_s": sorted(alone)[len(alone) // 2],
        "alone_most_s": max(alone),
        "beside_p50_s": sorted(beside)[len(beside) // 2],
        "beside_most_s": max(beside),
        "grown_s": max(beside) - max(alone),
    }


def measure(url: str, asked: argparse.Namespace) -> dict[str, Any]:
    """All rounds of both texts."""
    found: dict[str, Any] = {"megabytes": asked.megabytes, "bar_s": BAR_S}
    for name, (path, body, right) in bodies(asked.served_name, asked.megabytes).items():
        rounds = [one_round(url, asked, partial(post, url, path, body)) for _ in range(asked.rounds)]
        wrong = [each["status"] for each in rounds if each["status"] != right]
        if wrong:
            raise SystemExit(f"{path} answered {wrong[0]} where {right} is right.")
        found[name] = {"rounds": rounds, "grown_s": sorted(each["grown_s"] for each in rounds)[len(rounds) // 2]}
    found["kept"] = all(found[name]["grown_s"] <= BAR_S for name in ("refused", "read"))
    return found


def text_of(found: dict[str, Any]) -> str:
    """The figures as text for people."""
    lines = []
    for name in ("refused", "read"):
        for each in found[name]["rounds"]:
            lines.append(
                f"{name} in {each['took_s']:.2f} s ({each['answer_bytes']:,} bytes back): longest gap "
                f"{each['beside_most_s'] * 1e3:.0f} ms, alone {each['alone_most_s'] * 1e3:.0f} ms "
                f"(p50 {each['beside_p50_s'] * 1e3:.1f} and {each['alone_p50_s'] * 1e3:.1f} ms)"
            )
    grown = ", ".join(f"{name} {found[name]['grown_s'] * 1e3:+.0f} ms" for name in ("refused", "read"))
    return "\n".join([*lines, f"longest gap grew by (median of rounds): {grown}; the bar is {BAR_S * 1e3:.0f} ms"])


def main() -> int:
    """0 where the bar was kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="spark")
    parser.add_argument("--weights", default=None, help="passed on to serve")
    parser.add_argument("--megabytes", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=400, help="of each streamed answer")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    words = [sys.executable, "-P", "-m", "twostroke", "serve", asked.model, "--port", "0", "--json"]
    words += ["--weights", asked.weights] if asked.weights else []
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            facts = json.loads(_document(server.stdout.readline, server))
            asked.served_name = facts["served_name"]
            found = measure(facts["url"], asked)
        finally:
            server.terminate()
    print(json.dumps(found) if asked.json else text_of(found))
    return 0 if found["kept"] else 1


def _document(line: Callable[[], str], server: subprocess.Popen[str]) -> str:
    """The JSON document that serve prints once it listens."""
    text = ""
    while server.poll() is None:
        text += line()
        try:
            json.loads(text)
        except ValueError:
            continue
        return text
    raise SystemExit("The server ended before it listened.")


if __name__ == "__main__":
    sys.exit(main())
