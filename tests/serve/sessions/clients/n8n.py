"""n8n's agent over LangChain: /v1/chat/completions whole, tools, a memory that keeps results as JSON texts."""

from __future__ import annotations

import json
from typing import Any

from tests.serve.sessions.frame import MODEL, Ask, Client, Session
from tests.serve.sessions.texts import REQUESTS, output, rules, schema

HEADERS = {"user-agent": "langchainjs-openai/1.0.0 OpenAI/JS 6.3.0", "x-stainless-lang": "js"}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": rules(name, 900), "parameters": schema(*keys)}}
    for name, keys in {"Read_Sheet": ("range",), "Send_Mail": ("to", "subject", "text")}.items()
]


def session() -> Session:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": rules("Answering mail of customers", 5000)},
        {"role": "user", "content": "Which orders are late?"},
    ]
    for turn in range(1, REQUESTS + 1):
        said = yield Ask("/v1/chat/completions", _body(messages), HEADERS)
        calls = [
            {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in said.calls
        ]
        if turn == 4:  # some versions keep arguments as they were read
            calls[0]["function"]["arguments"] = json.loads(calls[0]["function"]["arguments"])
        messages.append({"role": "assistant", "content": "", "tool_calls": calls})
        for call in calls:
            found = json.dumps([{"json": {"row": turn, "text": output(turn)}}]) if turn != 6 else None
            messages.append({"role": "tool", "tool_call_id": call["id"], "name": "Read_Sheet", "content": found})
        if turn % 5 == 0:
            messages += [{"role": "assistant", "content": "Row 3."}, {"role": "user", "content": "And now?"}]


def _body(messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "model": MODEL,
        "temperature": 0.7,
        "top_p": 1,
        "frequency_penalty": 0,
        "presence_penalty": 0,
        "n": 1,
        "stream": False,
        "stream_options": {"include_usage": True},
        "response_format": {"type": "text"},
        "messages": messages,
        "tools": TOOLS,
        "tool_choice": "auto",
    }


ANSWER = 'Let me check.\n<tool_call>\n{"name": "Read_Sheet", "arguments": {"range": "A1:C9"}}\n</tool_call>'
CLIENT = Client("n8n", ANSWER, session)
