"""Fields of the outside APIs that change an answer are honoured, or refused by name. Nothing is generated here."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.serve.fakes import PlainTemplate, fake_parts
from twostroke.server.api.fields.reasoning_effort import wish_of, with_wish
from twostroke.server.api.messages_request import messages_call
from twostroke.server.api.model_list import model_list
from twostroke.server.api.responses_request import responses_call
from twostroke.server.live.view import EngineView
from twostroke.server.prompts import chat_call, completion_call
from twostroke.text.talk.catalog import FORMATS
from twostroke.types.errors import InvalidRequest
from twostroke.types.notes import Notes

USER = [{"role": "user", "content": "hi"}]
CHAT, MESSAGES = {"messages": USER}, {"messages": USER, "max_tokens": 5}
CALLS: dict[str, Any] = {"chat": chat_call, "text": completion_call, "responses": responses_call, "say": messages_call}
USUAL: dict[str, dict[str, Any]] = {"chat": CHAT, "text": {"prompt": "x"}, "responses": {"input": "x"}, "say": MESSAGES}
EDITS = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
SCHEMA = {"type": "json_schema", "schema": {"type": "object"}}


class Effortful(PlainTemplate):
    """A template with a variable for the effort."""

    variables = frozenset({"reasoning_effort"})


class Switched(PlainTemplate):
    """A template that asks for reasoning unless the request turns it off."""

    variables = frozenset({"enable_thinking"})


def called(api: str, **fields: Any) -> Any:
    serving = fake_parts().serving
    return CALLS[api](json.dumps({"model": serving.served_name, **USUAL[api], **fields}).encode(), serving)


@pytest.mark.parametrize(
    ("api", "fields", "param"),
    [
        *((api, {"max_tokens": -2}, "max_tokens") for api in ("chat", "text")),
        ("say", {"max_tokens": -1}, "max_tokens"),
        *((api, {"max_tokens": 0}, "max_tokens") for api in ("chat", "say")),
        ("responses", {"max_output_tokens": -1}, "max_output_tokens"),
        ("responses", {"reasoning": {"effort": 3}}, "reasoning.effort"),
        ("chat", {"verbosity": "low"}, "verbosity"),
        ("responses", {"text": {"verbosity": "high"}}, "text.verbosity"),
        *((api, {"moderation": {"model": "x"}}, "moderation") for api in ("chat", "responses")),
        ("responses", {"context_management": [{"type": "compaction"}]}, "context_management"),
        ("say", {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}, "context_management"),
        *(
            ("say", {name: given}, name)
            for name, given in {"mcp_servers": [{}], "container": "x", "thread": {}}.items()
        ),
        ("say", {"output_format": {"type": "text"}}, "output_format"),
        ("say", {"output_config": {"format": {}}}, "output_config"),
    ],
)
def test_refused_by_name(api: str, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        called(api, **fields)
    assert caught.value.param == param


def test_what_a_number_of_tokens_may_be_is_said_without_contradiction() -> None:
    for api, least, field in (("chat", 1, "max_tokens"), ("text", 0, "max_tokens"), ("say", 1, "max_tokens")):
        for count in range(-3, least):
            if count == -1 and api != "say":
                continue  # no limit
            with pytest.raises(InvalidRequest, match=f"{field} must be at least {least}, not {count}"):
                called(api, **{field: count})
    assert called("text", max_tokens=0).prompts[0].params.max_tokens == 0


@pytest.mark.parametrize(
    ("api", "fields"),
    [
        ("chat", {"reasoning_effort": "none", "verbosity": "medium", "moderation": None}),
        ("responses", {"reasoning": {"effort": None}, "text": {"verbosity": "medium"}}),
        ("say", {"context_management": EDITS, "mcp_servers": [], "output_config": {"effort": "low"}}),
    ],
)
def test_neutral_values_pass(api: str, fields: dict[str, Any]) -> None:
    assert called(api, **fields).prompts


def test_a_form_next_to_a_forced_call_changes_nothing() -> None:
    """instructor sends both to Responses. The answer is a call, so it has no text that the form could mean."""
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    tools = [{"type": "function", "name": "person", "parameters": schema, "strict": True}]
    forced = {"tools": tools, "tool_choice": {"type": "function", "name": "person"}}
    form = {"text": {"format": {"type": "json_schema", "name": "person", "schema": schema, "strict": True}}}
    both, one = called("responses", **forced, **form), called("responses", **forced)
    assert both.prompts[0].params.grammar == one.prompts[0].params.grammar is not None
    assert called("responses", **form).prompts[0].params.grammar != one.prompts[0].params.grammar


def test_the_older_name_of_a_schema_is_honoured() -> None:
    newer, older = called("say", output_config={"format": SCHEMA}), called("say", output_format=SCHEMA)
    assert older.prompts[0].params.grammar == newer.prompts[0].params.grammar is not None


def test_an_effort_is_a_variable_of_the_template() -> None:
    effortful, switched = (template() for template in (Effortful, Switched))
    plain, notes = PlainTemplate(), Notes()

    def effort(variables: Any, asked: str | None, template: Any, thinks: bool = False) -> Any:
        form = FORMATS["hermes" if thinks else "llama4"]
        return with_wish(variables, wish_of(asked), template, form, notes).variables

    assert effort({"x": 1}, "high", effortful) == {"x": 1, "reasoning_effort": "high"}
    assert effort(None, "none", switched) == {"enable_thinking": False}
    assert effort(None, "medium", switched) == {"enable_thinking": True}
    assert effort(None, "none", plain) == {} and notes.texts == ()
    off: Any = {"enable_thinking": False, "x": 1}
    assert effort(off, None, plain) == {"x": 1}
    assert effort(off, None, switched) == effort(off, None, plain, thinks=True) == off
    assert effort({"x": 1}, "medium", plain) == {"x": 1} and "medium" in notes.texts[0]
    with pytest.raises(InvalidRequest, match="set different values"):
        effort({"reasoning_effort": "low"}, "high", effortful)
    with pytest.raises(InvalidRequest, match="always thinks"):
        effort(None, "none", plain, thinks=True)


def test_the_list_of_models_says_whether_keys_are_calibrated() -> None:
    settings = {"weights": "int8", "kv_format": "int4", "key_factors": "0123", "threads": 2}
    serving = fake_parts(view=EngineView(about={"settings": settings})).serving
    (shown,) = model_list(serving)["data"]
    assert (shown["weights"], shown["kv_format"], shown["key_factors"]) == ("int8", "int4", "0123")
    assert shown["has_chat_template"] is (serving.template is not None)
