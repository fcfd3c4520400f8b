"""Zed: /v1/chat/completions streamed, one call at a time, null contents next to calls, results as parts."""

from __future__ import annotations

from typing import Any

from tests.serve.sessions.frame import MODEL, Ask, Client, Said, Session
from tests.serve.sessions.texts import REQUESTS, output, picture_url, rules, schema

HEADERS = {"user-agent": "Zed/0.221.0 (linux; x86_64)"}
NAMES = {"read_file": ("path", "start_line"), "terminal": ("command", "cd"), "grep": ("regex", "include_pattern")}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": rules(name, 700), "parameters": schema(*keys)}}
    for name, keys in NAMES.items()
]


def session() -> Session:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": rules("A programmer's assistant", 4500)},
        {"role": "user", "content": "Explain part 2."},
    ]
    for turn in range(1, REQUESTS + 1):
        said = yield Ask("/v1/chat/completions", _body(messages), HEADERS)
        messages += _history(said, turn)


def _history(said: Said, turn: int) -> list[dict[str, Any]]:
    calls = [
        {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in said.calls
    ]
    if turn == 3:  # the arguments ended early, and the call was never run
        calls[0]["function"] = {"name": "read_file", "arguments": ""}
    made: list[dict[str, Any]] = [
        {"role": "assistant", "content": said.text},
        {"role": "assistant", "content": None, "tool_calls": calls},
    ]
    content: list[Any] = [{"type": "text", "text": output(turn)}]
    if turn == 5:
        content.append({"type": "image_url", "image_url": {"url": picture_url()}})
    if turn == 8:
        content = []
    made += [{"role": "tool", "content": content, "tool_call_id": call["id"]} for call in calls]
    return [*made, {"role": "user", "content": f"And part {turn + 2}?"}] if turn % 4 == 0 else made


def _body(messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "model": MODEL,
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_completion_tokens": 32_000,
        "stop": [],
        "temperature": 1.0,
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "tools": TOOLS,
        "prompt_cache_key": "thread-0",
        "reasoning_effort": "medium",
    }


ANSWER = 'Let me read.\n<tool_call>\n{"name": "read_file", "arguments": {"path": "part.py"}}\n</tool_call>'
CLIENT = Client("Zed", ANSWER, session)
