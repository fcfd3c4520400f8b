"""The first requests of a fresh server come at once, in several threads, and end none of its processes."""

from __future__ import annotations

import subprocess
import sys

from tests.tiers import TIER

PROCESSES = 60 if TIER.daily else 5
READ_AT_ONCE = """
import os, sys, threading, traceback
sys.setswitchinterval(1e-6)
import twostroke.server.app
from twostroke.server.api.fields.field_check import FieldCheck
from twostroke.server.gate.decode import BODY_KINDS, decode
from twostroke.types.errors import InvalidRequest

BODY = (
    b'{"model": "m", "prompt": "a", "messages": [{"role": "user", "content": "a"}], "stream_options": {}, "tools": [],'
    b'"max_tokens": 5, "input": "a", "query": "a", "documents": ["b"], "lora_name": "a",'
    b'"lora_path": "b", "tokens": [1]}'
)
kinds = [*BODY_KINDS]

def ask(barrier, place):
    barrier.wait()
    for kind in kinds[place % 2 :]:  # half of the threads begin with another kind, and kinds share parts
        try:
            decode(BODY, kind)
        except InvalidRequest:  # a field that has another type in this kind
            pass
        except BaseException:
            traceback.print_exc()
            os._exit(3)
        FieldCheck().ignored(BODY, kind)

def fresh():
    barrier = threading.Barrier(8)
    threads = [threading.Thread(target=ask, args=(barrier, place)) for place in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()

ended = {}
for _ in range(int(sys.argv[1])):
    child = os.fork()
    if not child:
        try:
            fresh()
        except BaseException:
            traceback.print_exc()
            os._exit(4)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    ended[status] = ended.get(status, 0) + 1
print(ended)
"""
"""A process imports the modules and reads nothing. It is forked as often as the test wants, and each copy is a fresh
server."""


def test_fresh_processes_read_their_first_bodies_in_eight_threads() -> None:
    run = subprocess.run(
        [sys.executable, "-c", READ_AT_ONCE, str(PROCESSES)], capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == str({0: PROCESSES}), run.stderr
