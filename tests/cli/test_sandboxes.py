"""`twostroke serve` in sandboxes: it answers a chat, or ends with one error that tells what, why and what to do.

Linux refuses the system calls (tests/confined.py), so native code and child processes meet the same refusals.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.confined import is_possible
from tests.patience import PATIENCE_S
from tests.tiers import rest_daily

SERVE = [sys.executable, "-P", "-m", "twostroke", "serve", "spark", "--port", "0", "--json", "--kv-memory", "16MB"]
ROOT = Path(__file__).resolve().parents[2]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
FORM = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}
SPARED = (
    *("setitimer", "setsid", "sched_setaffinity", "sched_getaffinity", "memfd_create", "madvise", "mlock", "mlock2"),
    *("io_uring_setup", "flock", "fadvise64", "fallocate", "preadv2", "sendfile", "setpriority", "getpriority"),
    *("set_mempolicy", "pidfd_open", "mremap", "statx"),
)
"""Calls that only make things better. A server does without each of them, and without all of them at once."""
ALL = [
    ",".join([*SPARED, "ipv6", "proc"]),
    ",".join([*(f"{name}=ENOSYS" for name in SPARED), "ipv6"]),
    "prlimit64,setrlimit,getrlimit",
    "processes",
]
pytestmark = pytest.mark.skipif(not is_possible(), reason="this system has no seccomp whose calls are known")


def confined(rules: str, words: list[str]) -> list[str]:
    return [sys.executable, "-m", "tests.confined", rules, *words] if rules else words


@contextmanager
def serving(command: list[str], **how: Any) -> Iterator[str]:
    """The URL of a server, which must end cleanly after the block."""
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": ROOT, **how}
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, text=True, **pipes)
    try:
        assert process.stdout is not None and process.stderr is not None
        lines, facts = "", dict[str, Any]()
        while not facts:
            line = process.stdout.readline()
            assert line, process.stderr.read()
            lines += line
            with contextlib.suppress(ValueError):
                facts = json.loads(lines)
        yield facts["url"]
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
        assert "Traceback" not in (said := process.stderr.read()), said
    finally:
        process.kill()
        process.wait()


def asked(url: str, **fields: Any) -> tuple[int, Any]:
    """The status and the body of one chat request."""
    body = {"messages": [{"role": "user", "content": "What is ITL?"}], "max_tokens": 12, "temperature": 0, **fields}
    data, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/chat/completions", data, headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as found:
            return found.status, json.load(found)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def text_of(answer: tuple[int, Any]) -> str:
    status, body = answer
    assert status == 200, body
    content: str = body["choices"][0]["message"]["content"]
    return content


@pytest.fixture(scope="module")
def usual() -> str:
    """The answer of a server that is not confined."""
    with serving(SERVE) as url:
        return text_of(asked(url))


@pytest.mark.parametrize("rules", rest_daily([*ALL, *SPARED], ALL[:2]))
def test_what_a_sandbox_refuses_changes_no_answer(rules: str, usual: str) -> None:
    with serving(confined(rules, SERVE)) as url:
        assert text_of(asked(url)) == usual
        status, body = asked(url, response_format=FORM)
        if rules in ALL[2:]:  # the process that compiles grammars does not start, or cannot limit itself
            assert status == 500 and body["error"]["code"] == "helper_not_started"
            assert text_of(asked(url)) == usual, "and the server goes on"
        else:
            assert status == 200, body


ENDS: dict[str, tuple[str, list[str], str]] = {
    "no threads": ("threads", [], "The system begins no more threads."),
    "no IPv6": ("ipv6", ["--host", "::1"], "Cannot listen on ::1"),
}
"""The rules, more arguments, and the first words of the error."""


@pytest.mark.parametrize("name", ENDS)
def test_what_a_server_cannot_do_without_is_one_clear_error(name: str) -> None:
    rules, words, what = ENDS[name]
    done = subprocess.run(
        confined(rules, [*SERVE, *words]),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"},  # as for users
    )
    assert done.returncode in (2, 5), done.stderr
    assert one_error(done.stderr).startswith(f"error: {what}")


def one_error(said: str) -> str:
    """The error of a process that has ended: what, why and what to do, once each and without a traceback."""
    assert "Traceback" not in said and said.count("error: ") == 1, said
    error = said[said.index("error: ") :]
    assert "\n  why: " in error and "\n  fix: " in error, said
    return error


def limited(kind: int, most: int) -> Callable[[], None]:
    """A function for a child process, which sets one of its limits."""
    return lambda: resource.setrlimit(kind, (most, most))


def test_few_open_files_are_enough_or_one_clear_error(usual: str) -> None:
    with serving(SERVE, preexec_fn=limited(resource.RLIMIT_NOFILE, 64)) as url:
        assert text_of(asked(url)) == usual
    done = subprocess.run(
        SERVE,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        preexec_fn=limited(resource.RLIMIT_NOFILE, 10),
    )
    assert done.returncode == 5
    assert one_error(done.stderr).startswith("error: `ulimit -n` allows this process 10 open files.")


@pytest.mark.parametrize("kind", ["no home", "no locale and no time zone", "no folder can be written"])
def test_a_bare_environment_is_enough(kind: str, usual: str, tmp_path: Path) -> None:
    names = ("PATH", "TWOSTROKE_THREADS", "TWOSTROKE_SPECULATE")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    environment = {
        "no home": {**kept, "HOME": str(tmp_path / "nobody"), "USER": ""},
        "no locale and no time zone": {**kept, "LC_ALL": "POSIX", "TZ": "No/Where", "PYTHONCOERCECLOCALE": "0"},
        "no folder can be written": {**kept, "HOME": "/proc/nothing", "XDG_CACHE_HOME": "/proc/nothing"},
    }[kind]
    with serving(SERVE, env=environment) as url:
        assert text_of(asked(url)) == usual
