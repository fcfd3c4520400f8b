"""Every second of every completion has a name. Over random schedules in virtual time, the parts add up exactly."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from tests.tiers import examples
from twostroke.cost.history.account import Account
from twostroke.cost.history.accounts import Accounts
from twostroke.cost.work import Work
from twostroke.types.plan import Role

from .virtual import COST, Lab, text


def check(account: Account) -> None:
    parts = account.parts.by_name()
    assert sum(parts.values()) == pytest.approx(account.finished_s - account.arrival_s, abs=1e-9)
    assert all(seconds >= -1e-9 for seconds in parts.values()), parts
    if account.start is not None and account.ttft_s is not None:
        assert account.start.total_s == pytest.approx(account.ttft_s, abs=1e-9)
        assert all(seconds >= -1e-9 for seconds in (account.parts - account.start).by_name().values())


def crowded(seed: int) -> Lab:
    """Random prompts, some with common beginnings, with aborts, in a pool that is too small for them."""
    draw = random.Random(seed)
    lab = Lab(draw.choice((24, 40, 80)), draw.choice((32, 64, 256)), draw.choice((2, 4, 16)))
    for number in range(draw.randrange(2, 14)):
        length, answer = draw.randrange(1, 200), draw.randrange(1, 90)
        prompt = text(draw.randrange(3), 64)[: draw.randrange(65)] + text(number + 10, length)
        name, at_s = f"r{number}", draw.random() * 2
        lab.request(at_s, name, prompt, answer, n=draw.choice((1, 1, 1, 3)))
        if draw.random() < 0.2:
            lab.at(at_s + draw.random(), lambda name=name: lab.deltas.extend(lab.stepper.abort(name)))
    return lab


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 10**9))
def test_parts_add_up(seed: int) -> None:
    lab = crowded(seed)
    lab.run()
    ends = [delta for delta in lab.deltas if delta.finish_reason is not None]
    assert ends and len(lab.ledger.accounts) == len(ends)
    for end in ends:
        account = lab.account(f"{end.request_id}/{end.index}")
        check(account)
        assert end.timings is not None and end.timings.parts == account.parts
        assert account.num_output_tokens == end.num_output_tokens
        assert len(account.spells) == end.num_preemptions
        again_s = account.parts.preempted_s + account.parts.recompute_s
        assert bool(account.spells) == (again_s > 0)


@settings(max_examples=examples(25), deadline=None)
@given(st.integers(0, 10**9))
def test_records_are_the_steps(seed: int) -> None:
    lab = crowded(seed)
    seen = []
    execute = lab.executor.execute

    def watch(plan):  # type: ignore[no-untyped-def]
        result = execute(plan)
        rows = [(s.request.request_id, s.start, s.num_tokens, s.samples, s.num_output_tokens) for s in plan.sequences]
        seen.append((plan.step_id, rows, result.model_s, [p.request_id for p in plan.preemptions]))
        return result

    lab.executor.execute = watch  # type: ignore[method-assign]
    lab.run()
    records = list(lab.ledger.history.records())
    assert [record.step_id for record in records] == [step_id for step_id, *_ in seen]
    last_s = 0.0
    for record, (_, rows, model_s, preempted) in zip(records, seen, strict=True):
        segments = [each.segment for each in record.sequences]
        told = [(each.request_id, each.segment.start, each.segment.num_tokens) for each in record.sequences]
        assert told == [row[:3] for row in rows]
        assert [each.num_output_tokens for each in record.sequences] == [row[4] for row in rows]
        assert [segment.samples for segment in segments] == [row[3] for row in rows]
        assert record.model_s == model_s and list(record.preempted) == preempted
        assert last_s < record.begin_s < record.end_s and record.host_s > 0
        assert record.predicted == COST.predict(segments)
        last_s = record.end_s
    work = sum((record.predicted.work for record in records if record.predicted), start=Work())
    assert lab.ledger.history.work() == work


def test_a_reader_slower_than_the_account_lives_leaves_nothing() -> None:
    lab = crowded(1)
    lab.run()
    any_account = lab.account(f"{lab.deltas[-1].request_id}/{lab.deltas[-1].index}")
    accounts = Accounts(2)
    for name in "abc":
        accounts.add(structs.replace(any_account, request_id=f"{name}/0", group_id=name))
        accounts.reader(f"{name}/0", 0.5, 0.25)
    accounts.reader("a/0", 9.0, 9.0)
    assert [account.unread_s for account in accounts.find("b")] == [0.25]
    assert not accounts.find("a") and set(accounts._readers) == {"b/0", "c/0"}


@settings(max_examples=examples(25), deadline=None)
@given(st.integers(0, 10**9))
def test_parts_add_up_where_a_device_begins_steps_early(seed: int) -> None:
    """Time that a device computed before it was asked is not the host's time, and no second counts twice."""
    lab, draw = crowded(seed), random.Random(seed)
    execute = lab.executor.execute

    def begun_before(plan):  # type: ignore[no-untyped-def]
        result, early_s = execute(plan), draw.choice((0.0, 1e-5, 1e-3))
        decodes = plan.sequences[-1].role is Role.DECODE
        return replace(result, model_s=result.model_s + early_s, early_s=early_s) if decodes else result

    lab.executor.execute = begun_before  # type: ignore[method-assign]
    lab.run()
    for end in (delta for delta in lab.deltas if delta.finish_reason is not None):
        check(lab.account(f"{end.request_id}/{end.index}"))
    for record in lab.ledger.history.records():
        assert record.host_s >= -1e-9 and record.model_s >= 0
