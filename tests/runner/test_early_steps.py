"""The steps that may begin before the results of the step before it are read, and when a plan equals the step that was
begun."""

from __future__ import annotations

from typing import Any

import pytest

from twostroke.runner.device.early_steps import following, is_same
from twostroke.types.plan import Hold, Plan, PlannedSequence, Role
from twostroke.types.request import Request
from twostroke.types.sampling.sampling_params import SamplingParams
from twostroke.types.spec.formats import PAGE_TOKENS


def planned(known: int, max_tokens: int = 9, pages: int = 3, **changes: Any) -> PlannedSequence:
    """A sequence that computes its last known position, the second after a prompt of `known` - 1 tokens."""
    tokens = list(range(known))
    params = changes.pop("params", SamplingParams())
    request = Request("a", "a", tuple(tokens[:-1]), params, 0, max_tokens, frozenset(), 0.0)
    made = PlannedSequence(request, known - 1, 1, tokens, (tuple(range(7, 7 + pages)),), True, Role.DECODE)
    return made._replace(**changes)


def test_a_sequence_goes_on_one_position_further() -> None:
    one = planned(20)
    (next_one,) = following(Plan(1, (one,)))
    assert (next_one.start, next_one.num_tokens, next_one.end) == (20, 1, 21)
    assert next_one.num_output_tokens == one.num_output_tokens + 1 and len(list(next_one.token_ids)) == 1
    prompt = planned(20, start=0, num_tokens=20, role=Role.PREFILL)
    assert following(Plan(1, (prompt,)))[0].role is Role.DECODE, "a whole prompt goes on like any other"


@pytest.mark.parametrize(
    "one",
    [
        planned(20, max_tokens=2),
        planned(20, samples=False),
        planned(20, draft_token_ids=(3,)),
        planned(2 * PAGE_TOKENS, pages=2),
        *(
            planned(20, params=SamplingParams(**{name: value}))
            for name, value in (
                ("repetition_penalty", 1.1), ("presence_penalty", 0.1), ("frequency_penalty", 0.1),
                ("bad_token_ids", ((3, 4),)), ("typical_p", 0.5), ("mirostat", 2), ("dry_multiplier", 0.5),
            )
        ),
    ],
)  # fmt: skip
def test_nothing_follows_where_too_little_is_known(one: PlannedSequence) -> None:
    assert following(Plan(1, (one,))) == []


def test_a_step_with_a_prompt_is_left_whole() -> None:
    going_on, at_end = planned(20), planned(20, max_tokens=2)
    for hold, many in ((None, 1), (Hold.SEQUENCES, 0), (Hold.TOKENS, 0), (Hold.OBJECTIVE, 0)):
        assert len(following(Plan(1, (going_on, at_end), held=hold))) == many
    assert len(following(Plan(1, (going_on,), held=Hold.PAGES))) == 1


def test_a_plan_asks_for_exactly_what_was_begun_or_it_counts_for_nothing() -> None:
    before = planned(20)
    (begun,) = following(Plan(1, (before,)))
    asked = before._replace(start=20, known_token_ids=[*before.known_token_ids, 55])
    assert is_same(asked, begun, 55) and not is_same(asked, begun, 54)
    window = asked._replace(tables=((-1, *asked.tables[0][1:]),))
    assert is_same(window, begun, 55), "a page before the window is not read"
    others = (
        asked._replace(request=planned(20).request),
        asked._replace(start=19),
        asked._replace(role=Role.PREFILL),
        asked._replace(samples=False),
        asked._replace(draft_token_ids=(1,), num_tokens=2),
        asked._replace(scores=range(20, 21)),
        asked._replace(tables=((9, *asked.tables[0][1:]),)),
        asked._replace(known_token_ids=[*before.known_token_ids, 55, 56]),
    )
    assert not any(is_same(each, begun, 55) for each in others)
