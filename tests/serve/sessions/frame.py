"""Sessions of agents over a real socket. A client is a generator of requests that gets each answer.

    def session() -> Session:
        answer = yield Ask("/v1/chat/completions", {...})
        ...

Each client has a file of its own (clients/), written from the public form of its traffic. It contains the fields and
headers that the client sends, the growth of its history, and its reaction when a tool fails. `replay` sends the
requests one after the other, reads the answers as the client's package would, and records how much of each prompt was
found in the cache.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from tests.serve.harness import Live, Reply

MODEL = "scripted"


@dataclass(frozen=True)
class ToolCall:
    """A call that the model made. arguments: the arguments as text; for a tool that takes a text, that text."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Said:
    """An answer, whatever API it came over."""

    text: str
    calls: tuple[ToolCall, ...]
    prompt_tokens: int
    cached_tokens: int
    warnings: str
    body: Any = None


@dataclass(frozen=True)
class Ask:
    """A request. aside: whether it has a prompt of its own (a title, a count) and is no turn of the conversation."""

    path: str
    body: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)
    aside: bool = False


Session = Generator[Ask, Said, None]


@dataclass(frozen=True)
class Client:
    """answer: the text that the model writes at each turn. session: makes the requests."""

    name: str
    answer: str
    session: Callable[[], Session]


@dataclass
class Played:
    """turns: answers to requests of the conversation. asides: answers to the others."""

    turns: list[Said] = field(default_factory=list)
    asides: list[Said] = field(default_factory=list)

    @property
    def cached_share(self) -> float:
        """The share of prompt tokens that were found in the cache, from the second turn on."""
        later = self.turns[1:]
        return sum(turn.cached_tokens for turn in later) / sum(turn.prompt_tokens for turn in later)


def replay(client: Client, live: Live) -> Played:
    """Sends the session. Fails at the first answer that is an error, whole or within a stream."""
    played, session = Played(), client.session()
    ask = next(session)
    while True:
        reply = live.call("POST", ask.path, ask.body, {"content-type": "application/json", **ask.headers})
        where = f"{client.name}, request {len(played.turns) + len(played.asides) + 1}"
        assert reply.status == 200, f"{where}: {reply.status} {reply.body.decode()[:600]}"
        said = read(ask, reply)
        (played.asides if ask.aside else played.turns).append(said)
        try:
            ask = session.send(said)
        except StopIteration:
            return played


def read(ask: Ask, reply: Reply) -> Said:
    """The answer to a request."""
    if ask.path.partition("?")[0].endswith("/count_tokens"):
        return Said("", (), reply.json["input_tokens"], 0, reply.headers.get("x-twostroke-warnings", ""))
    whole = _streamed(ask, reply) if ask.body.get("stream") else reply.json
    read_whole = {"/v1/messages": _message, "/v1/responses": _response}.get(ask.path.partition("?")[0], _chat)
    text, calls, prompt, cached = read_whole(whole)
    return Said(text, calls, prompt, cached, reply.headers.get("x-twostroke-warnings", ""), whole)


def _streamed(ask: Ask, reply: Reply) -> Any:
    assert reply.headers["content-type"].startswith("text/event-stream")
    lines = [line[6:] for line in reply.body.decode().split("\n") if line.startswith("data: ")]
    events = [json.loads(line) for line in lines if line != "[DONE]"]
    for event in events:
        assert not event.get("error") and event.get("type") not in ("error", "response.failed"), event
    path = ask.path.partition("?")[0]
    if path == "/v1/responses":
        return events[-1]["response"]
    return _joined_message(events) if path == "/v1/messages" else _joined_chat(events)


def _joined_message(events: list[Any]) -> Any:
    blocks: dict[int, dict[str, Any]] = {}
    usage: dict[str, Any] = {}
    for event in events:
        if event["type"] == "content_block_start":
            blocks[event["index"]] = {**event["content_block"], "json": ""}
        elif event["type"] == "content_block_delta":
            block, delta = blocks[event["index"]], event["delta"]
            block["text"] = block.get("text", "") + delta.get("text", "")
            block["json"] += delta.get("partial_json", "")
        elif event["type"] == "message_delta":
            usage |= event["usage"]
    for block in blocks.values():
        if block["type"] == "tool_use":
            block["input"] = json.loads(block["json"] or "{}")
    return {"content": [blocks[index] for index in sorted(blocks)], "usage": usage}


def _joined_chat(events: list[Any]) -> Any:
    text, calls, usage = "", dict[int, dict[str, Any]](), {}
    for event in events:
        usage = event.get("usage") or usage
        for choice in event["choices"]:
            text += choice["delta"].get("content") or ""
            for call in choice["delta"].get("tool_calls", ()):
                made = calls.setdefault(call["index"], {"id": "", "function": {"name": "", "arguments": ""}})
                made["id"] += call.get("id", "")
                for key in ("name", "arguments"):
                    made["function"][key] += call["function"].get(key, "")
    message = {"content": text, "tool_calls": [calls[index] for index in sorted(calls)]}
    return {"choices": [{"message": message}], "usage": usage}


def _message(whole: Any) -> tuple[str, tuple[ToolCall, ...], int, int]:
    usage, blocks = whole["usage"], whole["content"]
    calls = [ToolCall(b["id"], b["name"], json.dumps(b["input"])) for b in blocks if b["type"] == "tool_use"]
    text = "".join(block["text"] for block in blocks if block["type"] == "text")
    cached = usage["cache_read_input_tokens"]
    return text, tuple(calls), usage["input_tokens"] + usage["cache_creation_input_tokens"] + cached, cached


def _response(whole: Any) -> tuple[str, tuple[ToolCall, ...], int, int]:
    assert whole["error"] is None, whole["error"]
    usage, calls, text = whole["usage"], [], ""
    for item in whole["output"]:
        if item["type"] in ("function_call", "custom_tool_call"):
            calls.append(ToolCall(item["call_id"], item["name"], item.get("arguments", item.get("input"))))
        elif item["type"] == "message":
            text += "".join(part["text"] for part in item["content"])
    return text, tuple(calls), usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]


def _chat(whole: Any) -> tuple[str, tuple[ToolCall, ...], int, int]:
    message, usage = whole["choices"][0]["message"], whole["usage"]
    listed = message.get("tool_calls") or ()
    calls = [ToolCall(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in listed]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return message["content"] or "", tuple(calls), usage["prompt_tokens"], cached
