"""The shape of a coding agent's session: 30 tools of 2 KB each, parallel calls, long results, for four formats."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.agents.script import final, looping, written
from tests.serve.fakes import MODEL
from twostroke.text.talk.catalog import FORMATS

VERBS, THINGS = "read write find run list".split(), "file test log job doc net".split()
NAMES = [f"{verb}_{thing}" for verb in VERBS for thing in THINGS]
ABOUT = "What this tool does, when to use it, and when not to. " * 38
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}}}
TOOLS: Any = [
    {"type": "function", "function": {"name": name, "description": ABOUT, "parameters": SCHEMA}} for name in NAMES
]
TURNS = 10
CODE = 'def part(value: int) -> str:\n    return f"<{value}> {{}} \\\\n [x]"\n'


@pytest.mark.parametrize("name", ["qwen3_coder", "glm", "glm47", "harmony", "kimi"])
def test_a_long_session(name: str) -> None:
    form = FORMATS[name]
    parallel = 1 if form.messages is not None else 3
    turns = [
        [(NAMES[(turn * 3 + place) % 30], {"path": f"{CODE}{turn}", "lines": place}) for place in range(parallel)]
        for turn in range(TURNS)
    ]
    messages: list[Any] = [{"role": "system", "content": ABOUT}, {"role": "user", "content": "Mend it."}]
    with looping(form, [*(written(form, calls) for calls in turns), final(form, "Done.")]) as (live, engine):
        for turn, calls in enumerate(turns):
            reply = live.post("/v1/chat/completions", {"model": MODEL, "messages": messages, "tools": TOOLS})
            assert reply.status == 200, reply.body
            said = reply.json["choices"][0]["message"]
            functions = [each["function"] for each in said["tool_calls"]]
            made = [(each["name"], json.loads(each["arguments"])) for each in functions]
            assert made == calls and not said["content"]
            messages.append(said)
            for place, each in enumerate(said["tool_calls"]):
                text = f"begin-{turn}-{place}\n" + CODE * 20 + f"end-{turn}-{place}"
                messages.append({"role": "tool", "tool_call_id": each["id"], "content": text})
        reply = live.post("/v1/chat/completions", {"model": MODEL, "messages": messages, "tools": TOOLS})
        assert reply.json["choices"][0]["message"]["content"] == "Done."
        last = engine.texts[-1]
        places = [(turn, place) for turn in range(TURNS) for place in range(parallel)]
        assert all(f"{edge}-{turn}-{place}" in last for edge in ("begin", "end") for turn, place in places)
        ids = [each["id"] for message in messages for each in message.get("tool_calls") or ()]
        assert len(set(ids)) == len(ids) == TURNS * parallel
        assert len(TOOLS) == 30 and all(2000 < len(json.dumps(tool)) < 2600 for tool in TOOLS)
