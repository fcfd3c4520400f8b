"""Claude Code: /v1/messages streamed, a billing line that changes, cache_control, a provider's tool, counts.

Its history contains parallel calls, a failed tool, a picture in an old result, an interrupted call, and later a
summary.
"""

from __future__ import annotations

import hashlib
from typing import Any

from tests.serve.sessions.frame import MODEL, Ask, Client, Said, Session
from tests.serve.sessions.texts import PICTURE, REQUESTS, output, rules, schema

HEADERS = {
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,fine-grained-tool-streaming-2025-05-14",
    "x-app": "cli",
    "user-agent": "claude-cli/2.1.37 (external, cli)",
    "x-stainless-lang": "js",
    "x-stainless-retry-count": "0",
    "authorization": "Bearer none",
}
STAYS = {"type": "ephemeral"}
TOOLS: list[dict[str, Any]] = [
    {"name": "Read", "description": rules("Read", 500), "input_schema": schema("file_path", "offset", "limit")},
    {"name": "Bash", "description": rules("Bash", 900), "input_schema": schema("command", "description")},
    {"name": "Edit", "description": rules("Edit", 500), "input_schema": schema("file_path", "old", "new", required=3)},
    {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
]
COMPACTED_AT = 15


def session() -> Session:
    messages: list[dict[str, Any]] = [_user(_reminder("The date is 2026-11-28."), "Where is part 3 made?")]
    yield Ask("/v1/messages?beta=true", _title(), HEADERS, aside=True)
    for turn in range(2, REQUESTS + 1):
        if turn == 5:
            counted = {name: value for name, value in _body(messages, turn).items() if name in _COUNTED}
            yield Ask("/v1/messages/count_tokens?beta=true", counted, HEADERS, aside=True)
            continue
        said = yield Ask("/v1/messages?beta=true", _body(messages, turn), HEADERS)
        messages.append({"role": "assistant", "content": [_kept(block) for block in said.body["content"]]})
        messages.append(_results(said, turn))
        if turn == COMPACTED_AT:
            messages = [_user("This session goes on from an earlier one. Summary: " + output(turn))]


_COUNTED = ("model", "messages", "system", "tools", "thinking")


def _body(messages: list[dict[str, Any]], turn: int) -> dict[str, Any]:
    nonce = hashlib.sha256(str(turn).encode()).hexdigest()[:5]
    line = f"x-anthropic-billing-header: cc_version=2.1.37.{nonce[:3]}; cc_entrypoint=cli; cch={nonce};"
    last = messages[-1]
    marked = {**last, "content": [*last["content"][:-1], {**last["content"][-1], "cache_control": STAYS}]}
    return {
        "model": MODEL,
        "messages": [*messages[:-1], marked],
        "system": [
            {"type": "text", "text": line},
            {"type": "text", "text": "You are a command line tool for code.", "cache_control": STAYS},
            {"type": "text", "text": rules("Working on code", 5000), "cache_control": STAYS},
        ],
        "tools": TOOLS,
        "metadata": {"user_id": "user_0_account__session_0"},
        "max_tokens": 32_000,
        "thinking": {"type": "enabled", "budget_tokens": 31_999},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "temperature": 1,
        "stream": True,
    }


def _title() -> dict[str, Any]:
    return {
        "model": MODEL,
        "max_tokens": 512,
        "temperature": 0,
        "system": [{"type": "text", "text": "Say in 3 words what this conversation is about."}],
        "messages": [{"role": "user", "content": "Where is part 3 made?"}],
        "metadata": {"user_id": "user_0_account__session_0"},
    }


def _kept(block: dict[str, Any]) -> dict[str, Any]:
    keys = {"text": ("type", "text"), "tool_use": ("type", "id", "name", "input")}[block["type"]]
    return {key: block[key] for key in keys}


def _user(*texts: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text} for text in texts]}


def _reminder(text: str) -> str:
    return f"<system-reminder>\n{text}\n</system-reminder>"


def _results(said: Said, turn: int) -> dict[str, Any]:
    content: Any = output(turn)
    if turn == 4:
        content = [
            {"type": "text", "text": "The picture"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}},
        ]
    results = [
        {"type": "tool_result", "tool_use_id": call.call_id, "content": content, "is_error": turn == 6}
        for call in said.calls
    ]
    if turn == 8:
        results.append({"type": "text", "text": "[Request interrupted by user for tool use]"})
    if turn == 9:
        results.append({"type": "text", "text": _reminder("The list of tasks is empty.")})
    return {"role": "user", "content": results}


ANSWER = (
    'Let me look.\n<tool_call>\n{"name": "Read", "arguments": {"file_path": "part.py"}}\n</tool_call>'
    '\n<tool_call>\n{"name": "Bash", "arguments": {"command": "ls"}}\n</tool_call>'
)
CLIENT = Client("Claude Code", ANSWER, session)
