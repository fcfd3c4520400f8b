"""A request that crashes the worker again and again is refused, and the others are answered. The processes are real."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import OpenAI

from tests.serve.fakes import FakeEngine, fake_parts
from tests.serve.faults.test_supervise import Supervised, wait_until, with_worker
from tests.serve.harness import serving
from tests.serve.shown.test_metrics import scrape
from twostroke.server.errors import HttpProblem
from twostroke.server.gate.quarantine import Quarantine, fingerprint
from twostroke.server.process import crash_notes
from twostroke.server.process.crash_notes import CrashNotes, new_page
from twostroke.types.output import Prompt
from twostroke.types.sampling.open_values import LEAST_SHARE
from twostroke.types.sampling.sampling_params import SamplingParams

POISON = 666
WORKER = f"""
import ctypes, faulthandler, sys
faulthandler.enable()  # where a test fails, the log says what crashed
from twostroke.runner.runner import ModelRunner
computed = ModelRunner.execute
def execute(self, plan):
    for each in plan.sequences:
        if each.request.params.seed == {POISON} and each.num_output_tokens >= 3:
            ctypes.string_at(0)
    return computed(self, plan)
ModelRunner.execute = execute
from twostroke.cli.main import main
flags = ["--port", "0", "--threads", "1", "--kv-memory", "8MB", "--worker-fds", *sys.argv[1:4]]
main(["serve", "spark", *flags])
"""


def ask(server: Supervised, **fields: Any) -> Any:
    """Asks with the package's own retries, because clients get broken connections and 503 during restarts."""
    with OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=12) as client:
        body: dict[str, Any] = {"model": "spark", "prompt": "Once", "temperature": 0, "max_tokens": 900, **fields}
        return client.completions.create(**body, extra_body={"ignore_eos": True})


def restarts(server: Supervised) -> int:
    return server.errors.read_bytes().count(b"killed by SIGSEGV; restart")


def test_a_request_that_crashes_the_worker_twice_is_refused_and_the_others_are_answered(tmp_path: Path) -> None:
    with with_worker(WORKER, tmp_path, silence_s=60.0) as server:
        wait_until(server.ready, "the first worker")
        alone = ask(server, seed=1, max_tokens=200)
        with ThreadPoolExecutor(4) as pool:
            beside = [pool.submit(ask, server, seed=1, max_tokens=200, prompt=["Once", "Twice"]) for _ in range(2)]
            poison = pool.submit(ask, server, seed=POISON)
            with pytest.raises(openai.UnprocessableEntityError) as refused:
                poison.result()
            answers = [each.result() for each in beside]
        assert refused.value.code == "request_quarantined"
        assert 0 < int(refused.value.response.headers["retry-after"]) <= crash_notes.REFUSED_S
        assert refused.value.response.headers["x-should-retry"] == "false"
        assert [answer.choices[0].text for answer in answers] == [alone.choices[0].text] * 2
        assert restarts(server) == 2, server.errors.read_text()
        worker = server.worker
        with pytest.raises(openai.UnprocessableEntityError):
            ask(server, seed=POISON)
        assert ask(server, seed=1, max_tokens=200).choices == alone.choices
        assert restarts(server) == 2 and server.worker == worker, "it reached no engine"
        assert b"is refused for" in server.errors.read_bytes()


def prompt(name: str, *ids: int, **params: Any) -> Prompt:
    return Prompt(ids or (1,), SamplingParams(**params), name)


def after_crashes(notes: CrashNotes, *groups: list[Prompt], now_s: float = 0.0) -> list[bytes]:
    """Each group runs in one step, and the process crashes in it."""
    told: list[bytes] = []
    for group in groups:
        notes.running(fingerprint(each) for each in group)
        told = notes.crashed(now_s)
    return told


def test_a_fingerprint_is_of_prompt_and_parameters_alone() -> None:
    base = prompt("a", 1, 2, seed=1, logit_bias={1: 0.5, 2: 1.0})
    assert fingerprint(base) == fingerprint(prompt("b", 1, 2, seed=1, logit_bias={2: 1.0, 1: 0.5}))
    others = [
        prompt("a", 1, 2, seed=2),
        prompt("a", 2, 1, seed=1),
        prompt("a", 1, seed=1),
        prompt("a", 1, 2, 0, seed=1),
    ]
    assert len({fingerprint(each) for each in [base, *others]}) == 5


def test_between_steps_no_request_is_a_suspect() -> None:
    notes = CrashNotes()
    for _ in range(3):
        notes.running([fingerprint(prompt("a"))])
        notes.idle()
        assert notes.crashed(0.0) == [] and notes.records(0.0) == {}


def test_notes_are_seen_by_another_process_s_mapping_and_are_forgotten_in_time() -> None:
    page = new_page()
    try:
        worker, supervisor = CrashNotes(page), CrashNotes(page)
        mine = fingerprint(prompt("a"))
        worker.running([mine])
        assert supervisor.crashed(0.0) == [] and worker.records(0.0)[mine].crashes == 1
        worker.running([mine])
        assert supervisor.crashed(10.0) == [mine] and worker.records(10.0)[mine].refused
        assert worker.records(10.0 + crash_notes.REFUSED_S - 1) and not worker.records(10.0 + crash_notes.REFUSED_S)
    finally:
        os.close(page)


@given(st.lists(st.lists(st.integers(0, 600), max_size=1100), max_size=4))
def test_memory_is_bounded_and_those_at_most_crashes_are_kept(crashes: list[list[int]]) -> None:
    notes = CrashNotes()
    for now_s, ids in enumerate([[7], [7], *crashes]):
        notes.running(number.to_bytes(crash_notes.PRINT_BYTES, "little") for number in ids)
        notes.crashed(float(now_s))
        assert len(notes.records(float(now_s))) <= crash_notes.MOST_RECORDS
    assert sum(record.refused for record in notes.records(10.0).values()) >= 1


def test_suspects_take_turns_and_one_that_runs_to_its_end_is_none_any_more() -> None:
    notes = CrashNotes()
    first, second, fresh = prompt("a", seed=1), prompt("b", seed=2), prompt("c", seed=3)
    after_crashes(notes, [first, second])
    quarantine = Quarantine(notes, clock=lambda: 0.0)

    async def main() -> None:
        inside = await quarantine.enter([first])
        beside = await quarantine.enter([fresh])
        waiting = asyncio.create_task(quarantine.enter([second]))
        await asyncio.sleep(0)
        assert not waiting.done(), "two suspects at once would say nothing"
        quarantine.begins(["a", "c", "a"])
        inside.leave(answered=True)
        beside.leave(answered=True)
        (await waiting).leave(answered=False)
        assert not (await quarantine.enter([first])).suspects
        assert (await quarantine.enter([second])).suspects, "one that was aborted has proved nothing"

    asyncio.run(main())
    assert set(notes.records(0.0)) == {fingerprint(second)}


def test_a_suspect_does_not_wait_for_ever_for_another() -> None:
    notes = CrashNotes()
    after_crashes(notes, [prompt("a", seed=1), prompt("b", seed=2)])
    quarantine = Quarantine(notes, clock=lambda: 0.0, turn_s=0.01)

    async def main() -> None:
        first = await quarantine.enter([prompt("a", seed=1)])
        second = await quarantine.enter([prompt("b", seed=2)])
        assert first.turn is not None and second.turn is None
        second.leave(answered=True)
        first.leave(answered=True)
        assert not quarantine._turn.locked()

    asyncio.run(main())


def test_a_refusal_over_the_wire_counts_reaches_no_engine_and_ends_in_time() -> None:
    now_s, notes, engine = [0.0], CrashNotes(), FakeEngine()
    poison = Prompt(tuple(b"hi"), SamplingParams(max_tokens=16, seed=POISON, min_p=LEAST_SHARE), "x")
    after_crashes(notes, [poison], [poison])
    parts = fake_parts(engine, quarantine=Quarantine(notes, clock=lambda: now_s[0]))
    with serving(parts) as live:
        for path, asked in (("/v1/completions", {"prompt": "hi"}), ("/v1/completions", {"prompt": ["b", "hi"]})):
            reply = live.post(path, {"model": parts.serving.served_name, "seed": POISON, "stream": True, **asked})
            assert (reply.status, reply.error["code"]) == (422, "request_quarantined")
        assert not engine.prompts
        found = scrape(live)
        assert found["twostroke_refusals_total{reason=request_quarantined}"] == 2
        assert found["twostroke_calls_in_flight"] == found["twostroke_queued_requests"] == 0
        assert live.complete(seed=1).status == 200
        now_s[0] = crash_notes.REFUSED_S
        assert live.complete(seed=POISON).status == 200


def test_a_server_without_a_supervisor_keeps_no_notes() -> None:
    async def main() -> None:
        stay = await Quarantine().enter([prompt("a")])
        assert stay.names == ()
        stay.leave(answered=True)

    asyncio.run(main())


def test_a_refusal_leaves_no_turn_taken() -> None:
    notes = CrashNotes()
    after_crashes(notes, [prompt("a", seed=1)], [prompt("a", seed=1), prompt("b", seed=2)])
    quarantine = Quarantine(notes, clock=lambda: 0.0)

    async def main() -> None:
        with pytest.raises(HttpProblem):
            await quarantine.enter([prompt("b", seed=2), prompt("a", seed=1)])
        assert not quarantine._turn.locked()

    asyncio.run(main())
