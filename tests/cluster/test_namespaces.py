"""A front in one network namespace and replicas in two others, with a rate limit, and with delay where the kernel has
netem.

The test needs root and `ip netns`. Where that is not permitted, it is skipped with the reason.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from twostroke.assembly.settings.env import process_environment

SOURCE = Path(__file__).parents[2] / "src"
NAMES = ("front", "one", "two")
PORT, SECRET = 8101, "between namespaces"
PROMPT = "Prefill reads the prompt, decode writes the answer, and pages hold what both have computed. " * 6


def space(name: str) -> str:
    return f"ts{os.getpid()}{name}"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False)


def inside(name: str, *words: str) -> list[str]:
    return ["ip", "netns", "exec", space(name), *words]


@contextmanager
def spaces() -> Iterator[list[str]]:
    """Three namespaces. A pair of devices connects each replica's to the front's. Returns a function that slows the
    links."""
    if shutil.which("ip") is None:
        pytest.skip("there is no `ip` command")
    with ExitStack() as stack:
        for name in NAMES:
            made = run("ip", "netns", "add", space(name))
            if made.returncode:
                pytest.skip(f"`ip netns add` is not permitted: {made.stderr.strip()}")
            stack.callback(run, "ip", "netns", "del", space(name))
            run(*inside(name, "ip", "link", "set", "lo", "up"))
        slowed = []
        for number, name in enumerate(NAMES[1:], 1):
            ends = {"front": f"v{os.getpid() % 10000}f{number}", name: f"v{os.getpid() % 10000}r{number}"}
            made = run("ip", "link", "add", ends["front"], "type", "veth", "peer", "name", ends[name])
            if made.returncode:
                pytest.skip(f"veth devices are not permitted: {made.stderr.strip()}")
            for place, (owner, device) in enumerate(ends.items(), 1):
                for words in (
                    ["ip", "link", "set", device, "netns", space(owner)],
                    inside(owner, "ip", "addr", "add", f"10.77.{number}.{place}/24", "dev", device),
                    inside(owner, "ip", "link", "set", device, "up"),
                ):
                    assert run(*words).returncode == 0, words
                slowed.append(slow(owner, device))
            other = f"10.77.{3 - number}.0/24"
            assert run(*inside(name, "ip", "route", "add", other, "via", f"10.77.{number}.1")).returncode == 0
        assert run(*inside("front", "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")).returncode == 0
        yield slowed


def slow(owner: str, device: str) -> str:
    """Limits the links to 100 Mbit/s, with 5 ms of delay where the kernel has netem."""
    queue = ["tc", "qdisc", "add", "dev", device, "root"]
    if run(*inside(owner, *queue, "netem", "delay", "5ms", "rate", "100mbit")).returncode == 0:
        return "netem"
    limits = ["tbf", "rate", "100mbit", "burst", "32kbit", "latency", "400ms"]
    return "tbf" if run(*inside(owner, *queue, *limits)).returncode == 0 else "nothing"


@contextmanager
def started(name: str, *words: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """Starts a twostroke command in a namespace. Returns the facts that it prints when it is ready."""
    command = inside(name, sys.executable, "-P", "-m", "twostroke", *words, "--json")
    environment = process_environment() | {"PYTHONPATH": str(SOURCE), "TWOSTROKE_CLUSTER_SECRET": SECRET}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    try:
        lines, facts = "", {}
        while not facts:
            line = process.stdout.readline() if process.stdout is not None else ""
            assert line, f"{words} ended"
            lines += line
            with contextlib.suppress(ValueError):
                facts = json.loads(lines)
        yield process, facts
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def answer(url: str, number: int) -> Any:
    """The text, log probabilities and finish reason of one request from the front's own namespace."""
    body = {"model": "spark", "prompt": f"{number}. {PROMPT}", "max_tokens": 40, "temperature": 1.0}
    body |= {"seed": number, "logprobs": 2}
    headers = {"Content-Type": "application/json"}
    asked = f"u.Request({url!r}, sys.stdin.buffer.read(), {headers!r})"
    code = f"import sys, urllib.request as u; print(u.urlopen({asked}, timeout=120).read().decode())"
    done = subprocess.run(
        inside("front", sys.executable, "-c", code), input=json.dumps(body), capture_output=True, text=True, check=True
    )
    (choice,) = json.loads(done.stdout)["choices"]
    return choice["text"], choice["logprobs"]["token_logprobs"], choice["finish_reason"]


@pytest.mark.daily
@pytest.mark.slow
def test_streams_keep_their_bits_between_slow_hosts_and_through_a_death() -> None:
    engine = ["spark", "--threads", "1", "--kv-memory", "32MB"]
    with spaces() as slowed, ExitStack() as stack:
        assert "nothing" not in slowed, "no link without a limit"
        listening = [f"10.77.{number}.2:{PORT}" for number in (1, 2)]
        roles = dict(zip(("prefill", "decode"), listening, strict=True))
        processes = [
            stack.enter_context(started(name, "replica", *engine, "--listen", address, "--role", role))[0]
            for name, (role, address) in zip(NAMES[1:], roles.items(), strict=True)
        ]
        words = ("front", "spark", "--port", "0", "--replicas", ",".join(listening))
        _, facts = stack.enter_context(started("front", *words))
        url = f"{facts['url']}/v1/completions"
        found = [answer(url, number) for number in range(6)]
        processes[0].kill()
        assert [answer(url, number) for number in range(6)] == found
    with spaces(), started("front", "serve", *engine, "--port", "0") as (_, facts):
        assert [answer(f"{facts['url']}/v1/completions", number) for number in range(6)] == found
