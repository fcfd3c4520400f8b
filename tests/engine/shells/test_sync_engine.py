"""Generating and streaming in one thread: the same text, one finish each, and nothing left over."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.fakes import bench
from tests.tiers import examples
from twostroke.engine.core import STEP_FAULT
from twostroke.engine.sync_engine import SyncEngine
from twostroke.types.errors import EngineStopped, InvalidRequest
from twostroke.types.output import Delta
from twostroke.types.plan import Plan
from twostroke.types.request import FinishReason

ANSWER = "naïve café, 你好 🙂 and so on"


@pytest.mark.parametrize("kind", ["byte_level", "byte_fallback"])
def test_streamed_text_is_the_text(kind: str) -> None:
    made = bench(kind)
    engine = SyncEngine(made.stepper)
    prompt = made.prompt("Why?", ANSWER, max_tokens=40, logprobs=0)
    whole = engine.generate([prompt])[0].completions[0]
    pieces = list(engine.stream([prompt]))
    assert "".join(piece.text for piece in pieces) == whole.text
    assert tuple(i for piece in pieces for i in piece.token_ids) == whole.token_ids
    assert whole.text.lstrip(" ").startswith(ANSWER[:5])
    assert len(whole.token_ids) == whole.num_output_tokens == 40
    assert [logprob.token_id for logprob in whole.logprobs or ()] == list(whole.token_ids)
    assert [piece.finish_reason for piece in pieces[:-1]] == [None] * (len(pieces) - 1)
    assert pieces[-1].finish_reason is FinishReason.LENGTH
    assert made.is_empty()


def test_timings_and_counts() -> None:
    made = bench()
    completion = SyncEngine(made.stepper).generate([made.prompt("x" * 150, "abc", max_tokens=5)])[0].completions[0]
    timings = completion.timings
    assert timings is not None and timings.first_scheduled_s is not None and timings.first_token_s is not None
    assert timings.finished_s is not None
    assert timings.arrival_s < timings.first_scheduled_s < timings.first_token_s < timings.finished_s
    [(finished, seen)] = made.observer.finished
    assert (seen, finished.num_output_tokens) == (timings, 5)
    assert made.observer.ttft_s == [timings.ttft_s]
    assert len(made.observer.itl_s) == 4
    assert sum(made.observer.itl_s) / 4 == pytest.approx(timings.mean_itl_s(5))
    assert made.observer.steps == made.executor.num_steps


@pytest.mark.parametrize(("ends", "reason"), [({"stop_token_ids"}, 2), (set(), None)])
def test_end_tokens(ends: set[str], reason: int | None) -> None:
    made = bench()
    answer = [*made.tokenizer.encode_rendered("Hi"), 2, *made.tokenizer.encode_rendered("never")]
    params = {"stop_token_ids": (2,), "ignore_eos": True} if ends else {}
    made = bench(end_ids=frozenset({2}))
    prompt = made.prompt("q", answer, **params)
    completion = SyncEngine(made.stepper).generate([prompt])[0].completions[0]
    assert (completion.text, completion.finish_reason, completion.stop_reason) == ("Hi", FinishReason.STOP, reason)
    assert completion.num_output_tokens == len(completion.token_ids) + 1


def test_an_end_token_alone_has_timings() -> None:
    made = bench(end_ids=frozenset({2}))
    completion = SyncEngine(made.stepper).generate([made.prompt("q", [2])])[0].completions[0]
    assert (completion.text, completion.token_ids, completion.num_output_tokens) == ("", (), 1)
    assert completion.timings is not None and completion.timings.ttft_s is not None


def test_ignore_eos_goes_on() -> None:
    made = bench(end_ids=frozenset({2}))
    prompt = made.prompt("q", [2], max_tokens=7, ignore_eos=True)
    completion = SyncEngine(made.stepper).generate([prompt])[0].completions[0]
    assert (completion.finish_reason, len(completion.token_ids)) == (FinishReason.LENGTH, 7)


def test_a_stop_string_over_several_tokens() -> None:
    made = bench()
    prompt = made.prompt("q", "one naïve STOP two", stop=("STOP",), logprobs=0)
    pieces = list(SyncEngine(made.stepper).stream([prompt]))
    assert "".join(piece.text for piece in pieces) == "one naïve "
    assert not any("S" in piece.text for piece in pieces)
    last = pieces[-1]
    assert (last.finish_reason, last.stop_reason) == (FinishReason.STOP, "STOP")
    ids = [i for piece in pieces for i in piece.token_ids]
    assert made.tokenizer.decode(ids) == "one naïve "
    assert len([logprob for piece in pieces for logprob in piece.logprobs]) == len(ids) < last.num_output_tokens
    assert made.is_empty()


def test_a_stop_string_with_the_last_allowed_token() -> None:
    made = bench()
    ids = made.tokenizer.encode_rendered("one STOP")
    prompt = made.prompt("q", ids, stop=("STOP",), max_tokens=len(ids))
    completion = SyncEngine(made.stepper).generate([prompt])[0].completions[0]
    assert (completion.text, completion.finish_reason, completion.stop_reason) == ("one ", FinishReason.STOP, "STOP")


@settings(max_examples=examples(40), deadline=None)
@given(
    answers=st.lists(st.text("abé🙂 ", min_size=1, max_size=12), min_size=1, max_size=5),
    stop=st.text("abé", min_size=1, max_size=3),
    n=st.integers(1, 3),
    max_tokens=st.integers(1, 30),
)
def test_any_batch_gives_what_each_gets_alone(answers: list[str], stop: str, n: int, max_tokens: int) -> None:
    made = bench()
    engine = SyncEngine(made.stepper)
    prompts = [
        made.prompt(f"question {place}", answer, stop=(stop,), n=n, max_tokens=max_tokens)
        for place, answer in enumerate(answers)
    ]
    together = engine.generate(prompts)
    for prompt, output in zip(prompts, together, strict=True):
        alone = engine.generate([prompt])[0]
        assert output.prompt_token_ids == prompt.token_ids
        assert [c.index for c in output.completions] == list(range(n))
        for one, other in zip(output.completions, alone.completions, strict=True):
            assert (one.text, one.token_ids, one.stop_reason) == (other.text, other.token_ids, other.stop_reason)
            assert stop not in one.text
    assert made.is_empty()


def test_seeds_of_siblings() -> None:
    made = bench()
    seeds: dict[str, int] = {}

    def look(plan: Plan) -> None:
        seeds.update({s.request.request_id: s.request.seed for s in plan.sequences})

    made.executor.before = look
    SyncEngine(made.stepper).generate(
        [
            replace(made.prompt("q", "a", max_tokens=1, n=3, seed=7), request_id="given"),
            replace(made.prompt("q", "a", max_tokens=1, n=2), request_id="drawn"),
        ]
    )
    assert seeds == {"given/0": 7, "given/1": 8, "given/2": 9, "drawn/0": 100, "drawn/1": 101}


def test_closing_the_iterator_frees_everything() -> None:
    made = bench()
    stream = SyncEngine(made.stepper).stream([made.prompt("q", "abc", n=3), made.prompt("r", "abc")])
    list(itertools.islice(stream, 4))
    assert not made.is_empty()
    stream.close()
    assert made.is_empty()
    assert {finished.reason for finished, _ in made.observer.finished} == {FinishReason.ABORT}


def test_an_iterator_that_was_never_started_holds_nothing() -> None:
    made = bench()
    stream = SyncEngine(made.stepper).stream([made.prompt("q", "abc")])
    del stream
    assert made.is_empty()


def test_ctrl_c_frees_everything() -> None:
    made = bench()
    engine = SyncEngine(made.stepper)

    def interrupt(plan: Plan) -> None:
        if made.executor.num_steps == 3:
            raise KeyboardInterrupt

    made.executor.before = interrupt
    prompt = made.prompt("q", "abc", max_tokens=5)
    with pytest.raises(KeyboardInterrupt):
        engine.generate([prompt])
    assert made.is_empty()
    assert engine.generate([prompt])[0].completions[0].finish_reason is FinishReason.LENGTH


def test_two_open_streams_do_not_lose_pieces() -> None:
    made = bench()
    engine = SyncEngine(made.stepper)
    first = engine.stream([made.prompt("q", "abcxyz", stop=("z",))])
    second = engine.stream([made.prompt("r", "uvwxyz", stop=("z",))])
    pieces: list[Delta] = [next(first), next(second)]
    assert "".join(p.text for p in [pieces[1], *second]) == "uvwxy"
    assert "".join(p.text for p in [pieces[0], *first]) == "abcxy"
    assert made.is_empty()


def test_wrong_prompts_raise_before_anything_runs() -> None:
    made = bench()
    engine = SyncEngine(made.stepper)
    good, bad = made.prompt("q", "abc"), made.prompt("q", "abc", max_tokens=10_000)
    for call in (engine.generate, engine.stream):
        with pytest.raises(InvalidRequest):
            call([good, bad])
    twice = replace(good, request_id="same")
    with pytest.raises(InvalidRequest, match="same"):
        engine.generate([twice, twice])
    assert made.executor.num_steps == 0
    assert made.is_empty()
    assert engine.generate([]) == []


def test_a_fault_ends_its_plan_and_nothing_else() -> None:
    made = bench()
    engine = SyncEngine(made.stepper)

    def fail_once(plan: Plan) -> None:
        if made.executor.num_steps == 2:
            raise RuntimeError("secret address 0x1234")

    made.executor.before = fail_once
    prompt = made.prompt("q", "abc", max_tokens=4)
    completion = engine.generate([prompt])[0].completions[0]
    assert (completion.finish_reason, completion.error) == (FinishReason.ERROR, STEP_FAULT)
    assert [str(fault) for fault in made.faults] == ["secret address 0x1234"]
    assert engine.generate([prompt])[0].completions[0].finish_reason is FinishReason.LENGTH
    assert made.is_empty()


def test_one_failed_request_leaves_the_others() -> None:
    made = bench()
    made.executor.fail_one.add("bad")
    prompt = made.prompt("q", "abc", max_tokens=4)
    outputs = SyncEngine(made.stepper).generate([replace(prompt, request_id="bad"), replace(prompt, request_id="good")])
    assert [o.completions[0].finish_reason for o in outputs] == [FinishReason.ERROR, FinishReason.LENGTH]
    assert made.faults == []
    assert made.is_empty()


def test_a_fault_in_one_requests_text_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    made = bench()
    broken, good = made.prompt("q", "abc", max_tokens=4), made.prompt("r", "uvw", max_tokens=3)
    bad_id = made.executor.answers[broken.token_ids][1]
    token_bytes = made.tokenizer.token_bytes

    def fail(token_id: int) -> bytes:
        if token_id == bad_id:
            raise RuntimeError("no such token")
        return token_bytes(token_id)

    monkeypatch.setattr(made.tokenizer, "token_bytes", fail)
    outputs = SyncEngine(made.stepper).generate([broken, good])
    assert [o.completions[0].finish_reason for o in outputs] == [FinishReason.ERROR, FinishReason.LENGTH]
    assert outputs[1].text == "uvw"
    assert made.is_empty()


def test_three_faults_in_a_row_stop_the_engine() -> None:
    made = bench()
    engine = SyncEngine(made.stepper)

    def fail(plan: Plan) -> None:
        raise RuntimeError("broken")

    made.executor.before = fail
    prompt = made.prompt("q", "abc", max_tokens=4)
    for _ in range(2):
        assert engine.generate([prompt])[0].completions[0].finish_reason is FinishReason.ERROR
    with pytest.raises(EngineStopped, match="3 steps in a row"):
        engine.generate([prompt])
    assert made.is_empty()


def test_more_requests_than_the_pool_holds_at_once() -> None:
    made = bench(num_pages=8)
    engine = SyncEngine(made.stepper)
    prompts = [made.prompt(f"question number {i}", "abcdefgh", max_tokens=50) for i in range(6)]
    outputs = engine.generate(prompts)
    assert {o.completions[0].num_output_tokens for o in outputs} == {50}
    assert {o.text for o in outputs} == {outputs[0].text}
    assert made.is_empty()
