"""Run the container image as docs/guides/docker.md describes, and check each promise of the guide.

    docker build -f deploy/Dockerfile -t twostroke . && python -m tools.check_image

Needs a running Docker and port 8000 of 127.0.0.1. Removes its container and its volume at the end. The exit code is 1
when a promise is broken.
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
    """Run one docker command. Returns the ended process, with its output as text."""
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=False, timeout=120)


def expect(what: str, found: object, wanted: object) -> None:
    """Print a line with the result of one check. Raises SystemExit(1) when `found` is not `wanted`."""
    print(f"{'ok  ' if found == wanted else 'FAIL'} {what}: {found!r}", flush=True)
    if found != wanted:
        raise SystemExit(1)


def start(*options: str, words: list[str]) -> None:
    """Start the container as the guide does, and wait until the server is ready. Raises SystemExit when Docker
    fails."""
    volume = ["-v", f"{VOLUME}:/var/cache/twostroke", "-p", f"127.0.0.1:{PORT}:8000"]
    key = ["-e", f"TWOSTROKE_API_KEY={KEY}"]
    made = docker("run", "-d", "--name", NAME, *options, *AS_THE_GUIDE, *volume, *key, IMAGE, *words)
    if made.returncode:
        raise SystemExit(made.stderr)
    wait_for("ready", lambda: status("/ready") == 200)


def inspect(form: str) -> str:
    """Returns a field of the container's state. form: the field, as a template of `docker inspect`."""
    return docker("inspect", "-f", form, NAME).stdout.strip()


def stop() -> str:
    """Stop the container with `docker stop` as in the guide, and remove it. Returns the exit code of the container."""
    docker("stop", "-t", "45", NAME)
    code = inspect("{{.State.ExitCode}}")
    docker("rm", "-f", NAME)
    return code


def wait_for(what: str, holds: Any, limit_s: float = 120.0) -> None:
    """Wait until `holds()` is true. Raises SystemExit after limit_s seconds."""
    until = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > until:
            raise SystemExit(f"FAIL not {what} after {limit_s:.0f} s\n{docker('logs', NAME).stderr}")
        time.sleep(0.2)


@contextmanager
def asked(path: str, body: dict[str, Any] | None = None, key: str | None = KEY) -> Iterator[http.client.HTTPResponse]:
    """Send a request, and give the answer as soon as its headers have come. The connection is closed afterwards."""
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    try:
        connection.request("POST" if body else "GET", path, json.dumps(body) if body else None, headers)
        yield connection.getresponse()
    finally:
        connection.close()


def status(path: str, body: dict[str, Any] | None = None, key: str | None = KEY) -> int:
    """Returns the HTTP status of the answer, or 0 when no server answers."""
    try:
        with asked(path, body, key) as answer:
            return answer.status
    except (OSError, http.client.HTTPException):
        return 0


def check_refusals() -> None:
    """Check that the container does not start without a key or with a wrong option."""
    expect("without a key: exit code", docker("run", "--rm", IMAGE).returncode, 2)
    wrong = docker("run", "--rm", "-e", "TWOSTROKE_API_KEY=x", IMAGE, "spark", "--kv-memory", "nonsense")
    expect("with a wrong option: exit code", wrong.returncode, 2)


def check_serving() -> None:
    """Check the server's user, the paths that it may write and its answers. Kill the worker and check that it is
    started again."""
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
    """Send SIGTERM while an answer streams. The answer must be finished, a new request must be refused, and the exit
    code must be 0."""
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
    """Stop the server while an answer needs more time than --drain allows. The exit code must be 6."""
    start("--init", words=[*MODEL, "--drain", "0.1s"])
    with asked("/v1/completions", LONG) as answer:
        answer.readline()
        expect("cut after --drain: exit code", stop(), "6")


def main() -> int:
    """Run all checks. Returns the exit code."""
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
