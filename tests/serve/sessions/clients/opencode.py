"""opencode: /v1/chat/completions streamed through the AI SDK, two system messages, usage requested, a title aside."""

from __future__ import annotations

from typing import Any

from tests.serve.sessions.frame import MODEL, Ask, Client, Said, Session
from tests.serve.sessions.texts import REQUESTS, output, picture_url, rules, schema

PATH = "/v1/chat/completions"
HEADERS = {"user-agent": "opencode/1.2.0 ai-sdk/provider-utils/3.0.12", "x-session-affinity": "ses_0"}
NAMES = {"bash": ("command", "description"), "read": ("filePath", "offset"), "edit": ("filePath", "oldString")}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": rules(name, 600), "parameters": schema(*keys)}}
    for name, keys in NAMES.items()
]


def session() -> Session:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": rules("Working as an agent", 4500)},
        {"role": "system", "content": "<env>\n  Working directory: /work\n  Platform: linux\n</env>"},
        {"role": "user", "content": "Find the slow part."},
    ]
    title = [{"role": "system", "content": "Write a title."}, {"role": "user", "content": "Find the slow part."}]
    asked = {"model": MODEL, "messages": title, "max_tokens": 32_000, "stream": True}
    yield Ask(PATH, {**asked, "stream_options": {"include_usage": True}}, HEADERS, aside=True)
    for turn in range(2, REQUESTS + 1):
        said = yield Ask(PATH, _body(messages), HEADERS)
        messages += [_assistant(said), *_results(said, turn)]
        if turn == 7:
            messages.append({"role": "user", "content": [
                {"type": "text", "text": "Look at this."},
                {"type": "text", "text": "It is slow."},
            ]})
        if turn == 10:  # the provider's words for an interrupted turn
            messages += [{"role": "assistant", "content": ""}, {"role": "user", "content": "Go on."}]


def _body(messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "model": MODEL,
        "max_tokens": 32_000,
        "temperature": 0.55,
        "top_p": 1,
        "messages": messages,
        "tools": TOOLS,
        "tool_choice": "auto",
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def _assistant(said: Said) -> dict[str, Any]:
    calls = [
        {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in said.calls
    ]
    return {"role": "assistant", "content": said.text, "reasoning_content": "", "tool_calls": calls}


def _results(said: Said, turn: int) -> list[dict[str, Any]]:
    content: Any = output(turn)
    if turn == 4:
        content = [{"type": "text", "text": "read"}, {"type": "image_url", "image_url": {"url": picture_url()}}]
    if turn == 5:
        content = "Error: The file was not found."
    return [{"role": "tool", "tool_call_id": call.call_id, "content": content} for call in said.calls]


ANSWER = 'Let me see.\n<tool_call>\n{"name": "bash", "arguments": {"command": "time make"}}\n</tool_call>'
CLIENT = Client("opencode", ANSWER, session)
