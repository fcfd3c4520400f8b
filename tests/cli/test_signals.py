"""Signals to the command as a process: Ctrl-C comes early, late and twice.

No case may end in a traceback, and every exit code must be a documented one.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cli.test_process import TWOSTROKE, WAIT_S
from tests.serve.harness import wait_until
from twostroke.server.serve import SAME_SIGNAL_S

BEGIN = "import twostroke.cli.start as start, sys; print('here', flush=True); start.run()"


def _hears_ctrl_c() -> None:
    """A function for a child process. A background job of a shell inherits that SIGINT is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


WATCHED = """
import signal, sys

class Watch:
    def find_spec(self, name, *rest):
        if name in ("twostroke.assembly", "twostroke.cli.main"):
            print(name, signal.getsignal(signal.SIGINT).__name__)

sys.meta_path.insert(0, Watch())
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv = ["twostroke", "--version"]
from twostroke.cli.start import run
run()
"""


def test_ctrl_c_is_quiet_before_anything_is_imported() -> None:
    """On a busy machine the imports take a second, and a Ctrl-C in them ended in a traceback."""
    done = subprocess.run([sys.executable, "-c", WATCHED], capture_output=True, text=True, timeout=WAIT_S, check=True)
    assert [line for line in done.stdout.splitlines() if line.startswith("twostroke.")] == [
        "twostroke.assembly _end",
        "twostroke.cli.main _end",
    ]


@pytest.mark.parametrize("after_ms", [0, 10, 20, 40, 60, 80, 100, 150, 250])
def test_ctrl_c_at_any_time_ends_with_130_and_says_nothing(after_ms: int) -> None:
    """This covers the time from the first line of the command on. Before it, Python itself starts."""
    words = ["generate", "hi", "--max-tokens", "2000", "--raw"]
    for _ in range(10):
        process = subprocess.Popen(
            [sys.executable, "-c", f"import twostroke.cli.shared.interrupt as i; i.end_quietly(); {BEGIN}", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=_hears_ctrl_c,
        )
        assert process.stdout is not None and process.stdout.readline() == b"here\n"
        time.sleep(after_ms / 1e3)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=WAIT_S)
        assert errors == b""
        if process.returncode:  # otherwise this process stood still, and the answer was whole before the signal
            break
    assert process.returncode == 130


SWALLOWED = """
import signal, time, weakref
from twostroke.cli.shared.interrupt import end_quietly, interruptible

class Thing:
    pass

def callback(_):
    signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
end_quietly()
thing = Thing()
reference = weakref.ref(thing, callback)
with interruptible():
    try:
        del thing
        time.sleep(30)
    except KeyboardInterrupt:
        print("interrupted")
"""


def test_ctrl_c_in_the_callback_of_a_weak_reference_is_not_lost() -> None:
    """Python swallows an exception there, so that the command went on after a traceback."""
    done = subprocess.run([sys.executable, "-c", SWALLOWED], capture_output=True, text=True, timeout=WAIT_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")


@contextmanager
def served(*words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server process and its URL."""
    command = [*TWOSTROKE, "serve", "--port", "0", "--threads", "1", "--json", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    text, url = "", ""
    while not url:
        line = process.stdout.readline()
        assert line, "it ended"
        text += line
        with contextlib.suppress(ValueError):
            url = json.loads(text)["url"]
    try:
        yield process, url
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def ready(url: str) -> bool:
    try:
        urllib.request.urlopen(f"{url}/ready", timeout=WAIT_S).close()
    except urllib.error.HTTPError:
        return False
    return True


def gauge(url: str, name: str) -> float:
    with urllib.request.urlopen(f"{url}/metrics", timeout=WAIT_S) as got:
        lines = got.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def ask(url: str, max_tokens: int, into: list[bytes], count: int = 1) -> threading.Thread:
    """Streams an answer in a thread of its own."""
    body = {"model": "spark", "prompt": "hi", "max_tokens": max_tokens, "ignore_eos": True, "stream": True, "n": count}
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )

    def read() -> None:
        with urllib.request.urlopen(request, timeout=WAIT_S) as got:
            into.append(got.read())

    thread = threading.Thread(target=read)
    thread.start()
    wait_until(lambda: gauge(url, "twostroke_requests_running") > 0 or not thread.is_alive(), "a running request")
    return thread


@pytest.mark.parametrize("supervise", [(), ("--supervise",)])
@pytest.mark.parametrize("gap_s", [0.0, 0.05, 0.15, 0.3])
def test_two_signals_to_an_idle_server_end_it_once(gap_s: float, supervise: tuple[str, ...]) -> None:
    with served(*supervise) as (process, _):
        process.send_signal(signal.SIGINT)
        time.sleep(gap_s)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=WAIT_S)
        assert (process.returncode, errors) == (0, "")


def test_one_ctrl_c_that_comes_twice_lets_a_stream_finish() -> None:
    for _ in range(10):
        with served() as (process, url):
            streamed: list[bytes] = []
            thread = ask(url, 300, streamed)
            begun_s = time.monotonic()
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGINT)
            taken_s = time.monotonic() - begun_s
            thread.join(WAIT_S)
            process.communicate(timeout=WAIT_S)
        if taken_s < SAME_SIGNAL_S / 2:  # otherwise this process stood still, and the signals were two separate ones
            break
    assert process.returncode == 0 and b'"finish_reason":"length"' in streamed[0]


def test_a_second_ctrl_c_ends_now_and_the_stream_says_so() -> None:
    with served() as (process, url):
        streamed: list[bytes] = []
        thread = ask(url, 1900, streamed, 128)  # this is work for many seconds on any machine
        process.send_signal(signal.SIGINT)
        wait_until(lambda: not ready(url), "the drain")
        time.sleep(2 * SAME_SIGNAL_S)
        process.send_signal(signal.SIGINT)
        thread.join(WAIT_S)
        _, errors = process.communicate(timeout=WAIT_S)
        assert process.returncode == 0 and "a second signal" in errors and "Traceback" not in errors
        assert b"engine_stopped" in streamed[0] and streamed[0].endswith(b"data: [DONE]\n\n")
