"""What agents send over the three APIs: odd histories, tools of other kinds, limits, and prompts that are too long."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.serve.apis.tools.test_tools import CITY
from tests.serve.fakes import CONTEXT, END_ID, MODEL, VOCAB, FakeEngine, fake_parts
from tests.serve.harness import Live, Reply, serving
from twostroke.engine.limits import EngineLimits
from twostroke.server.api.changed.headers import WARNINGS

USER: Any = [{"role": "user", "content": "hi"}]
CHAT_TOOL: Any = {"type": "function", "function": {"name": "weather", "parameters": CITY}}
FLAT_TOOL: Any = {"type": "function", "name": "weather", "parameters": CITY}
SAY_TOOL: Any = {"name": "weather", "input_schema": CITY}
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "say": "/v1/messages"}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}


def ask(live: Live, api: str, **fields: Any) -> Reply:
    usual = {"chat": {"messages": USER}, "responses": {"input": "hi"}, "say": {"messages": USER, "max_tokens": 50}}
    return live.post(PATHS[api], {"model": MODEL, **usual[api], **fields})


def warned(reply: Reply) -> str:
    assert reply.status == 200, reply.body
    return reply.headers.get(WARNINGS.decode(), "")


def prompt(live: Live) -> str:
    engine: Any = live.parts.serving.engine
    return bytes(engine.prompts[-1].token_ids).decode()


# ---- histories ---------------------------------------------------------------------------------------------------
BLOCKS: list[Any] = [
    {"role": "user", "content": [IMAGE, {"type": "text", "text": "look"}]},
    {
        "role": "assistant",
        "content": [
            {"type": "redacted_thinking", "data": "AA"},
            {"type": "text", "text": "I look."},
            {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "x"}},
            {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []},
            {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": None},
            {"type": "tool_use", "id": "toolu_2", "name": "weather", "input": '{"ci'},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": [IMAGE]},
            {"type": "tool_result", "tool_use_id": "toolu_2", "is_error": True},
            {"type": "tool_result", "tool_use_id": "gone", "content": "stray"},
        ],
    },
    {"role": "assistant", "content": None},
    {"role": "assistant", "content": []},
    {"role": "tool", "content": "odd"},
    {"role": "user", "content": [{"type": "document", "source": {"type": "text", "data": "a page"}, "title": "T"}]},
    {"role": "user", "content": "go on"},
]


def test_blocks_of_any_type_stand_in_a_history_of_messages(live: Live) -> None:
    said = warned(ask(live, "say", messages=BLOCKS))
    for kind in ("image", "server_tool_use", "web_search_tool_result", "arguments", "role tool"):
        assert kind in said, kind
    text = prompt(live)
    assert "T\na page" in text and "tool: stray" in text and "I look." in text and "redacted" not in text
    counted = live.post("/v1/messages/count_tokens", {"model": MODEL, "messages": BLOCKS})
    assert counted.json == {"input_tokens": len(text)} and warned(counted) == said


ITEMS: list[Any] = [
    {"type": "message", "role": "developer", "content": None},
    {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "AA"},
    {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": '{"ci'},
    {"type": "function_call", "call_id": "call_2", "name": "weather", "arguments": None},
    {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_image", "image_url": "data:,"}]},
    {"type": "function_call_output", "call_id": "call_2", "output": None},
    {"type": "custom_tool_call", "call_id": "call_3", "name": "patch", "input": "*** Begin"},
    {"type": "custom_tool_call_output", "call_id": "call_3", "output": "done"},
    {"type": "local_shell_call", "call_id": "call_4", "action": {"type": "exec", "command": ["ls"]}},
    {"type": "local_shell_call_output", "id": "call_4", "output": "a.py"},
    {"type": "shell_call", "call_id": "call_5", "action": {"commands": ["ls"]}},
    {"type": "shell_call_output", "call_id": "call_5", "output": [{"stdout": "a.py", "outcome": {"type": "exit"}}]},
    {"type": "apply_patch_call", "call_id": "call_6", "operation": {"type": "update_file", "diff": "+"}},
    {"type": "apply_patch_call_output", "call_id": "call_6", "status": "completed"},
    {"type": "mcp_call", "id": "mcp_1", "name": "find", "arguments": "{}", "output": "found", "server_label": "s"},
    {"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "x"}},
    {"type": "image_generation_call", "id": "ig_1", "result": "AA"},
    {"type": "computer_call", "call_id": "call_7", "action": {"type": "screenshot"}},
    {"type": "computer_call_output", "call_id": "call_7", "output": {"type": "computer_screenshot"}},
    {"type": "mcp_list_tools", "server_label": "s", "tools": []},
    {"type": "item_reference", "id": "rs_1"},
    {"type": "compaction", "encrypted_content": "AA"},
    {"type": "of_tomorrow"},
    {"type": "function_call_output", "call_id": "gone", "output": "stray"},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    {"role": "user", "content": "go on"},
]


def test_items_of_any_type_stand_in_a_history_of_responses(live: Live) -> None:
    said = warned(ask(live, "responses", input=ITEMS))
    for kind in ("input_image", "web_search_call", "item_reference", "compaction", "of_tomorrow", "mcp_list_tools"):
        assert kind in said, kind
    text = prompt(live)
    for line in ("tool: done", "tool: a.py", "tool: found", "tool: stray", "assistant: no", "user: go on"):
        assert line in text, line


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.get("type", "message"))
def test_each_item_may_be_the_last_of_a_history(live: Live, item: Any) -> None:
    assert ask(live, "responses", input=[item, {"role": "user", "content": "go on"}]).status == 200


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block["role"])
def test_each_message_may_be_the_first_of_a_history(live: Live, block: Any) -> None:
    assert ask(live, "say", messages=[block, {"role": "user", "content": "go on"}]).status == 200


NEW = {
    "chat": {"messages": [*USER, {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]},
    "responses": {"input": [*USER, {"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}]},
    "say": {"messages": [*USER, {"role": "user", "content": [IMAGE]}]},
}


@pytest.mark.parametrize("api", PATHS)
def test_a_new_picture_is_refused_and_an_old_one_is_not(live: Live, api: str) -> None:
    refused = ask(live, api, **NEW[api])
    assert refused.status == 400 and "image" in refused.json["error"]["message"]
    name = "input" if api == "responses" else "messages"
    later = [*NEW[api][name], {"role": "assistant", "content": "no"}, {"role": "user", "content": "go on"}]
    assert "image" in warned(ask(live, api, **{name: later}))


# ---- tools of other kinds ------------------------------------------------------------------------------------------
OTHERS: dict[str, list[Any]] = {
    "chat": [{"type": "web_search"}, {"type": "mcp", "server_label": "s"}, {"type": "image_generation"}],
    "responses": [
        *({"type": kind} for kind in ("web_search", "web_search_preview", "image_generation", "local_shell")),
        {"type": "mcp", "server_label": "s", "server_url": "http://x"},
        {"type": "namespace", "name": "mcp__docs", "tools": []},
        {"type": "computer_use_preview", "display_width": 1},
        {"type": "apply_patch"},
        {"type": "file_search", "vector_store_ids": ["x"]},
    ],
    "say": [
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 5},
        {"type": "bash_20250124", "name": "bash"},
        {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
        {"type": "mcp_toolset", "mcp_server_name": "s"},
    ],
}
OWN = {"chat": CHAT_TOOL, "responses": FLAT_TOOL, "say": SAY_TOOL}


@pytest.mark.parametrize(("api", "other"), [(api, other) for api, each in OTHERS.items() for other in each])
def test_a_tool_of_another_kind_is_left_out_and_named(live: Live, api: str, other: Any) -> None:
    said = warned(ask(live, api, tools=[other, OWN[api]]))
    assert other["type"] in said and "left out" in said
    assert prompt(live).startswith("tool weather\nuser: hi")
    assert other["type"] in warned(ask(live, api, tools=[other])) and prompt(live).startswith("user: hi")


@pytest.mark.parametrize(
    ("api", "tool", "choice"),
    [
        ("chat", {"type": "web_search"}, {"type": "web_search"}),
        ("chat", {"type": "web_search"}, "required"),
        ("responses", {"type": "web_search"}, {"type": "web_search"}),
        ("responses", {"type": "mcp"}, {"type": "mcp", "server_label": "s"}),
        ("responses", {"type": "web_search"}, {"type": "allowed_tools", "mode": "required", "tools": []}),
        ("say", {"type": "web_search_20250305", "name": "web_search"}, {"type": "tool", "name": "web_search"}),
        ("say", {"type": "web_search_20250305", "name": "web_search"}, {"type": "any"}),
    ],
)
def test_a_choice_that_forces_one_of_them_is_refused(live: Live, api: str, tool: Any, choice: Any) -> None:
    reply = ask(live, api, tools=[tool], tool_choice=choice)
    assert reply.status == 400 and "tool_choice" in reply.json["error"]["message"]


def test_a_choice_among_some_tools(live: Live) -> None:
    other = {"type": "function", "name": "time", "parameters": CITY}
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "time"}]}
    assert ask(live, "responses", tools=[FLAT_TOOL, other], tool_choice=choice).status == 200
    assert prompt(live).startswith("tool time\nuser")


# ---- caps, and prompts that do not fit -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("api", "fields"),
    [
        ("chat", {"max_tokens": 32_000}),
        ("chat", {"max_completion_tokens": 10**20}),
        ("responses", {"max_output_tokens": 128_000}),
        ("say", {"max_tokens": 65_535}),
    ],
)
def test_a_cap_above_the_room_is_cut_to_the_room(live: Live, api: str, fields: Any) -> None:
    reply = ask(live, api, **fields)
    engine: Any = live.parts.serving.engine
    room = CONTEXT - len(engine.prompts[-1].token_ids)
    assert f"cut to the {room} " in warned(reply) and str(next(iter(fields.values()))) in warned(reply)
    assert engine.prompts[-1].params.max_tokens == room
    assert not warned(ask(live, api, **{name: 5 for name in fields}))


def test_completions_are_cut_too(live: Live) -> None:
    reply = live.complete(max_tokens=CONTEXT, prompt=["a", "bcd"])
    engine: Any = live.parts.serving.engine
    assert [prompt.params.max_tokens for prompt in engine.prompts[-2:]] == [CONTEXT - 1, CONTEXT - 3]
    assert reply.status == 200 and f"cut to the {CONTEXT - 3} " in warned(reply)
    assert live.complete(max_tokens=CONTEXT, min_tokens=CONTEXT).error["param"] in ("max_tokens", "min_tokens")


LONG = "x" * (CONTEXT + 10)


def test_too_long_is_said_in_the_words_that_agents_look_for(live: Live) -> None:
    chat = ask(live, "chat", messages=[{"role": "user", "content": LONG}])
    found = CONTEXT + 10 + len("user: \nassistant: ")
    assert (chat.status, chat.error["code"], chat.error["param"]) == (400, "context_length_exceeded", "messages")
    assert f"maximum context length is {CONTEXT} tokens. However, your messages resulted in {found} tokens" in str(
        chat.error["message"]
    )
    for words in ("exceeds the context window", "reduce the length of the messages"):
        assert words in chat.error["message"]
    say = ask(live, "say", messages=[{"role": "user", "content": LONG}])
    assert say.status == 400 and say.json["error"] == {
        "type": "invalid_request_error",
        "message": f"prompt is too long: {found} tokens > {CONTEXT - 1} maximum",
    }
    whole = ask(live, "responses", input=LONG)
    assert (whole.status, whole.error["code"], whole.error["param"]) == (400, "context_length_exceeded", "input")


def test_a_pool_that_is_too_small_is_said_in_the_same_words() -> None:
    engine = FakeEngine()
    engine.limits = EngineLimits(CONTEXT, VOCAB, pool_tokens=64, end_token_ids=frozenset({END_ID}))
    with serving(fake_parts(engine)) as small:
        refused = ask(small, "chat", messages=[{"role": "user", "content": "x" * 100}])
        assert refused.error["code"] == "context_length_exceeded" and "length is 64 tokens" in refused.error["message"]
        assert "cut to the " in warned(ask(small, "chat", max_tokens=CONTEXT // 2))
        assert ask(small, "chat", max_tokens=CONTEXT // 2).json["usage"]["completion_tokens"] == 12


def test_a_streamed_response_fails_within_the_stream(live: Live) -> None:
    reply = ask(live, "responses", input=LONG, stream=True)
    assert reply.status == 200 and reply.headers["content-type"].startswith("text/event-stream")
    events = [json.loads(line[6:]) for line in reply.body.decode().splitlines() if line.startswith("data: ")]
    assert [event["type"] for event in events] == ["response.created", "response.in_progress", "response.failed"]
    assert [event["sequence_number"] for event in events] == [0, 1, 2]
    last = events[-1]["response"]
    assert last["status"] == "failed" and last["error"]["code"] == "context_length_exceeded"
    assert ask(live, "responses", input=LONG, stream=True, temperature=9).status == 400


# ---- fields as official servers and SDKs take them -----------------------------------------------------------------
def test_a_seed_of_minus_one_is_a_new_one(live: Live) -> None:
    engine: Any = live.parts.serving.engine
    for api in PATHS:
        assert ask(live, api, seed=-1).status == 200 and engine.prompts[-1].params.seed is None
        assert ask(live, api, seed=-5).status == 200 and engine.prompts[-1].params.seed == -5
    assert live.complete(seed=-1).status == 200 and engine.prompts[-1].params.seed is None


@pytest.mark.parametrize(
    "fields",
    [
        {"max_output_tokens": 1},
        {"input": ""},
        {"input": []},
        {"input": None, "instructions": "be kind"},
        {"input": [], "instructions": "be kind"},
        {"stream_options": {"include_obfuscation": False}},
        {"reasoning": {"effort": "medium", "summary": "auto"}},
    ],
)
def test_responses_that_official_servers_answer(live: Live, fields: Any) -> None:
    assert ask(live, "responses", **fields).status == 200


def test_stream_options_without_a_stream(live: Live) -> None:
    assert ask(live, "chat", stream_options={"include_usage": True}).json["usage"]["prompt_tokens"]
    assert live.complete(stream_options={"include_usage": True}).status == 200


# ---- documents and search results ------------------------------------------------------------------------------------
SEARCH = {"type": "search_result", "title": "T", "source": "https://x", "content": [{"type": "text", "text": "found"}]}
PARTED = {"type": "document", "title": "D", "source": {"type": "content", "content": [{"type": "text", "text": "in"}]}}


def test_search_results_and_documents_in_parts_are_text(live: Live) -> None:
    ask_tool = {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}]}
    given = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [SEARCH]}
    asked = [{"role": "user", "content": [SEARCH, PARTED]}]
    for messages in (asked, [ask_tool, {"role": "user", "content": [given, PARTED]}]):
        assert warned(ask(live, "say", messages=messages)) == ""
        assert "T\nhttps://x\nfound" in prompt(live) and "D\nin" in prompt(live)
    pictured = {**SEARCH, "content": [{"type": "image", "source": {}}]}
    assert ask(live, "say", messages=[{"role": "user", "content": [pictured]}]).status == 400
