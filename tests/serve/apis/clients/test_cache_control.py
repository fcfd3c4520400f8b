"""Anthropic's cache marks and thinking budgets by its real client: they are counted, refused, or named as not
enforced."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic

from tests.serve.apis.test_fields import called
from tests.serve.fakes import MODEL, PlainTemplate
from tests.serve.harness import Live
from twostroke.server.api.fields.reasoning_effort import wish_of, with_wish
from twostroke.text.talk.catalog import FORMATS
from twostroke.types.notes import Notes

MARK = {"cache_control": {"type": "ephemeral"}}


@pytest.fixture
def client(live: Live) -> Iterator[Anthropic]:
    with Anthropic(base_url=live.url, api_key="none", max_retries=0) as made:
        yield made


def asked(client: Anthropic, content: Any, **fields: Any) -> Any:
    messages: Any = [{"role": "user", "content": content}]
    return client.messages.create(model=MODEL, max_tokens=5, messages=messages, **fields)


def test_a_mark_at_the_end_counts_what_was_computed_as_written(client: Anthropic) -> None:
    plain = asked(client, [{"type": "text", "text": "hi"}]).usage
    marked = asked(client, [{"type": "text", "text": "hi", **MARK}]).usage
    at_top = asked(client, "hi", **MARK).usage
    assert (plain.cache_creation_input_tokens, plain.cache_read_input_tokens) == (0, 3)
    for usage in (marked, at_top):
        assert (usage.input_tokens, usage.cache_creation_input_tokens) == (0, plain.input_tokens)
        assert usage.cache_read_input_tokens == 3
    earlier = asked(client, "hi", system=[{"type": "text", "text": "be kind", **MARK}]).usage
    assert earlier.cache_creation_input_tokens == 0
    with client.messages.stream(
        model=MODEL, max_tokens=5, messages=[{"role": "user", "content": [{"type": "text", "text": "hi", **MARK}]}]
    ) as stream:  # type: ignore[typeddict-item]
        assert stream.get_final_message().usage.cache_read_input_tokens is not None


def test_too_many_marks_and_other_kinds_are_refused(client: Anthropic) -> None:
    blocks = [{"type": "text", "text": "a", **MARK}] * 5
    with pytest.raises(anthropic.BadRequestError, match="maximum of 4"):
        asked(client, blocks)
    assert asked(client, blocks[:4]).content
    with pytest.raises(anthropic.BadRequestError, match="ephemeral"):
        asked(client, [{"type": "text", "text": "a", "cache_control": {"type": "forever"}}])


def test_a_budget_that_is_not_enforced_is_named() -> None:
    class Switched(PlainTemplate):
        variables = frozenset({"enable_thinking"})

    class Budgeted(PlainTemplate):
        variables = frozenset({"enable_thinking", "thinking_budget"})

    for template, told in ((Switched(), True), (Budgeted(), False)):
        notes = Notes()
        one: Any = template
        with_wish(None, wish_of(None, {"type": "enabled", "budget_tokens": 2048}), one, FORMATS["hermes"], notes)
        assert ("2048" in " ".join(notes.texts)) == told
    assert not called("say", thinking={"type": "enabled", "budget_tokens": 2048}).warnings
