"""Run the container image as docs/guides/docker.md says, and hold what the guide promises against it.

    docker build -f deploy/Dockerfile -t twostroke . && python -m tools.check_image

Wants a running Docker and port 8000 of 127.0.0.1. Leaves no container and no volume after; exit code 1 for a broken
promise.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

IMAGE, NAME, VOLUME, KEY, PORT = "twostroke", "twostroke-check", "twostroke-check-cache", "choose-one", 8000
AS_THE_GUIDE = "--read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges".split()
MODEL = ["spark", "--kv-memory", "200MB", "--threads", "1"]
LONG = {"model": "spark", "prompt": "Once upon a time", "max_tokens": 2000, "ignore_eos": True, "stream": True}
KILL_WORKER = """
import os, signal
for each in filter(str.isdigit, os.listdir("/proc")):
    if "--worker-fds" in open(f"/proc/{each}/cmdline").read():
        os.kill(int(each), signal.SIGKILL)
"""


def docker(*words: str) -> subprocess.CompletedProcess[str]:
    """One docker command; its output as text."""
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=False, timeout=120)


def expect(what: str, found: object, wanted: object) -> None:
    """Print a line; SystemExit 1 where it is not so."""
    print(f"{'ok  ' if found == wanted else 'FAIL'} {what}: {found!r}", flush=True)
    if found != wanted:
        raise SystemExit(1)


def start(*options: str, words: list[str]) -> None:
    """The container, as the guide starts it."""
    volume = ["-v", f"{VOLUME}:/var/cache/twostroke", "-p", f"127.0.0.1:{PORT}:8000"]
    key = ["-e", f"TWOSTROKE_API_KEY={KEY}"]
    made = docker("run", "-d", "--name", NAME, *options, *AS_THE_GUIDE, *volume, *key, IMAGE, *words)
    if made.returncode:
        raise SystemExit(made.stderr)
    wait_for("ready", lambda: status("/ready") == 200)


def inspect(form: str) -> str:
    """A field of the container's state."""
    return docker("inspect", "-f", form, NAME).stdout.strip()


def stop() -> str:
    """`docker stop` as the guide says; the exit code."""
    docker("stop", "-t", "45", NAME)
    code = inspect("{{.State.ExitCode}}")
    docker("rm", "-f", NAME)
    return code


def wait_for(what: str, holds: Any, limit_s: float = 120.0) -> None:
    """Wait until it holds. Raises SystemExit after limit_s."""
    until = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > until:
            raise SystemExit(f"FAIL not {what} after {limit_s:.0f} s\n{docker('logs', NAME).stderr}")
        time.sleep(0.2)


@contextmanager
def asked(path: str, body: dict[str, Any] | None = None, key: str | None = KEY) -> Iterator[http.client.HTTPResponse]:
    """An answer that has begun."""
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    try:
        connection.request("POST" if body else "GET", path, json.dumps(body) if body else None, headers)
        yield connection.getresponse()
    finally:
        connection.close()


def status(path: str, body: dict[str, Any] | None = None, key: str | None = KEY) -> int:
    """HTTP's status, or 0 where no server answers."""
    try:
        with asked(path, body, key) as answer:
            return answer.status
    except (OSError, http.client.HTTPException):
        return 0


def check_refusals() -> None:
    """What must not start."""
    expect("without a key: exit code", docker("run", "--rm", IMAGE).returncode, 2)
    wrong = docker("run", "--rm", "-e", "TWOSTROKE_API_KEY=x", IMAGE, "spark", "--kv-memory", "nonsense")
    expect("with a wrong option: exit code", wrong.returncode, 2)


def check_serving() -> None:
    """Check the server's user, what it may write and what it answers; kill the worker, which is started again."""
    start("--init", words=MODEL)
    expect("user", docker("exec", NAME, "id", "-u").stdout.strip(), "10001")
    expect("may write /", docker("exec", NAME, "touch", "/x").returncode == 0, False)
    expect("may write its cache", docker("exec", NAME, "touch", "/var/cache/twostroke/x").returncode == 0, True)
    rights = docker("exec", NAME, "grep", "CapEff", "/proc/self/status").stdout.split()
    expect("capabilities", rights[-1], "0" * 16)
    wait_for("healthy", lambda: inspect("{{.State.Health.Status}}") == "healthy")
    expect("health", inspect("{{.State.Health.Status}}"), "healthy")
    expect("without the key", status("/v1/models", key=None), 401)
    question = {"model": "spark", "messages": [{"role": "user", "content": "What is prefill?"}], "max_tokens": 24}
    with asked("/v1/chat/completions", question) as answer:
        text = json.loads(answer.read())["choices"][0]["message"]["content"]
    expect(f"a chat completion ({text!r}) has text", bool(text), True)
    docker("exec", NAME, "python", "-c", KILL_WORKER)
    wait_for("not ready", lambda: status("/ready") == 503, 10)
    expect("worker killed: /live", status("/live"), 200)
    wait_for("ready again", lambda: status("/ready") == 200)
    expect("worker back: a chat completion", status("/v1/chat/completions", question), 200)
    expect("docker stop: exit code", stop(), "0")


def check_drain(*options: str) -> None:
    """SIGTERM while an answer streams: it is finished, a new one is refused, exit code 0."""
    start(*options, words=MODEL)
    with asked("/v1/completions", LONG) as answer:
        answer.readline()
        docker("kill", "-s", "TERM", NAME)
        wait_for("draining", lambda: status("/ready") == 503, 10)
        refused = status("/v1/completions", {"model": "spark", "prompt": "Once", "max_tokens": 1})
        whole = answer.read().rstrip().endswith(b"[DONE]")
    how = " ".join(options) or "without --init"
    expect(f"draining, {how}: a new request", refused, 503)
    expect(f"draining, {how}: the old one is whole", whole, True)
    wait_for("gone", lambda: inspect("{{.State.Status}}") == "exited", 60)
    expect(f"draining, {how}: exit code", stop(), "0")


def check_cut() -> None:
    """More to finish than --drain allows: exit code 6."""
    start("--init", words=[*MODEL, "--drain", "0.1s"])
    with asked("/v1/completions", LONG) as answer:
        answer.readline()
        expect("cut after --drain: exit code", stop(), "6")


def main() -> int:
    """All of it."""
    docker("rm", "-f", NAME)
    try:
        check_refusals()
        check_serving()
        check_drain("--init")
        check_drain()
        check_cut()
    finally:
        docker("rm", "-f", NAME)
        docker("volume", "rm", VOLUME)
    return 0


if __name__ == "__main__":
    sys.exit(main())
