"""Whole requests of every API in which one value, at any place, is another one: each is a call or an error with words.

Agents send long histories; a client's fault deep in one must not be a fault of the server.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.agents.script import LOOP_TEMPLATE
from tests.serve.fakes import MODEL, PlainTemplate, fake_parts
from tests.tiers import TIER
from twostroke.server.api.llama.routes import apply_template
from twostroke.server.api.messages_request import count_tokens, messages_call
from twostroke.server.api.ollama.calls import ollama_chat, ollama_generate
from twostroke.server.api.responses_request import responses_call
from twostroke.server.api.tokens import tokenize
from twostroke.server.errors import HttpProblem, problem_of
from twostroke.server.prompts import chat_call, completion_call
from twostroke.text.templates.chat_template import ChatTemplate
from twostroke.types.errors import TwostrokeError

SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "a", "description": "d", "parameters": SCHEMA, "strict": False}}
FLAT = {"type": "function", "name": "b", "description": "d", "parameters": SCHEMA, "strict": True}
CALL = {"id": "c1", "type": "function", "function": {"name": "a", "arguments": "{}"}}
GRAMMAR = {"type": "grammar", "grammar": {"syntax": "lark", "definition": 'start: "a"'}}
MARK = {"type": "ephemeral", "ttl": "1h"}
CHAT: list[Any] = [
    {"role": "system", "content": "s"},
    {"role": "user", "content": [{"type": "text", "text": "x"}], "name": "n"},
    {
        "role": "assistant",
        "content": "t",
        "tool_calls": [CALL],
        "reasoning_content": "r",
        "thinking": "z",
        "function_call": {"name": "a", "arguments": "{}"},
        "refusal": None,
    },
    {"role": "tool", "tool_call_id": "c1", "content": "r", "tool_name": "a"},
    {"role": "user", "content": "hi"},
]
PART = [{"type": "text", "text": "a"}]
SAID: list[Any] = [
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "x", "cache_control": MARK},
            {"type": "document", "title": "t", "source": {"type": "content", "content": PART}},
            {"type": "search_result", "title": "t", "source": "s", "content": PART},
        ],
    },
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "t", "signature": "s"},
            {"type": "tool_use", "id": "t1", "name": "a", "input": {"q": 1}},
        ],
    },
    {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": PART}, PART[0]],
    },
]
ITEMS: list[Any] = [
    {"role": "user", "content": [{"type": "input_text", "text": "x"}]},
    {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "t"}], "content": None},
    {"type": "function_call", "call_id": "c1", "name": "a", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "x"}]},
    {"type": "custom_tool_call", "call_id": "c2", "name": "p", "input": "x"},
    {"type": "local_shell_call", "call_id": "c3", "action": {"command": ["ls"]}},
    {"type": "mcp_call", "id": "m", "name": "n", "arguments": "{}", "output": "o"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "y", "annotations": []}]},
    {"role": "user", "content": "z"},
]
ALLOWED = {"mode": "auto", "tools": [{"type": "function", "function": {"name": "a"}}]}
TEXT_TOOL = {"type": "custom", "name": "p", "format": {"type": "grammar", "syntax": "regex", "definition": "a+"}}
WANTED = {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}, "verbosity": "medium"}
REASONING = {"effort": "low", "exclude": True, "enabled": True, "max_tokens": 5}
EDITS = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
Read = Callable[[bytes, Any], Any]
REQUESTS: dict[str, tuple[Read, dict[str, Any]]] = {
    "chat": (
        chat_call,
        {
            "messages": CHAT,
            "tools": [TOOL, FLAT, {"type": "custom", "custom": {"name": "c", "format": GRAMMAR}}],
            "tool_choice": {"type": "allowed_tools", "allowed_tools": ALLOWED},
            "thinking": {"type": "enabled", "budget_tokens": 5},
            "stream_options": {"include_usage": True},
            "reasoning_effort": "low",
            "stop": ["a"],
            "logit_bias": {"5": 1},
        },
    ),
    "chat of responses": (
        chat_call,
        {"input": ITEMS, "instructions": "x", "text": WANTED, "reasoning": REASONING, "max_output_tokens": 5},
    ),
    "functions": (
        chat_call,
        {
            "messages": CHAT,
            "functions": [{"name": "a", "parameters": SCHEMA}],
            "function_call": "auto",
            "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
        },
    ),
    "responses": (
        responses_call,
        {
            "input": ITEMS,
            "tools": [FLAT, TEXT_TOOL, {"type": "web_search"}],
            "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "b"}]},
            "text": {"format": {"type": "text"}},
            "reasoning": {"effort": "low", "summary": "auto"},
            "include": ["reasoning.encrypted_content"],
            "truncation": "auto",
            "metadata": {"a": "b"},
        },
    ),
    "messages": (
        messages_call,
        {
            "max_tokens": 5,
            "messages": SAID,
            "system": [{"type": "text", "text": "x", "cache_control": MARK}],
            "tools": [{"name": "a", "input_schema": SCHEMA, "cache_control": MARK}],
            "tool_choice": {"type": "tool", "name": "a", "disable_parallel_tool_use": True},
            "thinking": {"type": "adaptive", "display": "omitted"},
            "output_config": {"effort": "low"},
            "context_management": EDITS,
            "stop_sequences": ["a"],
        },
    ),
    "count": (count_tokens, {"messages": SAID, "system": "x", "tools": [{"name": "a", "input_schema": SCHEMA}]}),
    "ollama chat": (
        ollama_chat,
        {"messages": CHAT, "tools": [TOOL], "format": SCHEMA, "options": {"stop": ["a"], "num_ctx": 999}},
    ),
    "ollama generate": (
        ollama_generate,
        {"prompt": "a", "system": "s", "format": "json", "options": {"num_predict": 3}, "context": [1, 2]},
    ),
    "completions": (completion_call, {"prompt": ["a", "b"], "echo": True, "structured_outputs": {"choice": ["a"]}}),
    "tokenize": (tokenize, {"messages": CHAT, "tools": [TOOL]}),
    "apply-template": (apply_template, {"messages": CHAT, "tools": [TOOL]}),
}
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, 1e300, 2**70, "", "x", "auto", "\0", "\U0001f600", "data:,"),
    *([], {}, [[]], [None], [{}], [1, 2], ["a", {"type": "text"}]),
    *({"a": 1}, {"type": "text"}, {"type": None}, {"type": []}, {"name": {}}, {"type": "function"}),
)
LEFT_OUT = object()
STEP = 1 if TIER.daily else 9
"""Each STEP-th pair of a place and a value is tried. It has no common factor with the number of values, 28."""


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of each value within this one."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield (*path, key)
        yield from places(part, (*path, key))


def changed(body: Any, path: tuple[Any, ...], value: Any) -> Any:
    copy: Any = json.loads(json.dumps(body))
    *way, last = path
    inner = copy
    for key in way:
        inner = inner[key]
    if value is LEFT_OUT:
        del inner[last]
    else:
        inner[last] = value
    return copy


@pytest.mark.parametrize("template", ["plain", "real"])
@pytest.mark.parametrize("name", REQUESTS)
def test_an_odd_value_anywhere_is_a_call_or_an_error_with_words(name: str, template: str) -> None:
    real = ChatTemplate({"default": LOOP_TEMPLATE}, {})
    serving = replace(fake_parts().serving, template=PlainTemplate() if template == "plain" else real)
    read, fields = REQUESTS[name]
    body = {"model": MODEL, **fields}
    assert read(json.dumps(body).encode(), serving), "as it is, the request is answered"
    pairs = [(path, value) for path in places(body) for value in (*ODD, LEFT_OUT)]
    for path, value in pairs[::STEP]:
        odd = json.dumps(changed(body, path, value)).encode()
        try:
            read(odd, serving)
        except (HttpProblem, TwostrokeError) as error:
            assert problem_of(error).status < 500, (value, path)
        except Exception as error:
            error.add_note(f"{name}: {value!r} at {path}")
            raise
