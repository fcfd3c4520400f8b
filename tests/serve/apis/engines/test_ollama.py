"""Ollama's API by the real `ollama` package, and by its bytes."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import ollama
import pytest
from ollama import Client, ResponseError

from tests.serve.apis.tools.test_tools import CALL, CITY, THINKING, serve
from tests.serve.fakes import CONTEXT, MODEL, FakeEngine, fake_parts
from tests.serve.harness import Live, Reply, serving

USER: Any = [{"role": "user", "content": "hi"}]
TOOLS: Any = [{"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": CITY}}]


@pytest.fixture
def client(live: Live) -> Client:
    return Client(host=live.url)


def lines_of(reply: Reply) -> list[dict[str, Any]]:
    """Every line of a stream. None is blank, and only the last one is done."""
    assert reply.headers["content-type"] == "application/x-ndjson" and reply.body.endswith(b"\n")
    made = [json.loads(line) for line in reply.body[:-1].split(b"\n")]
    assert [line.get("done") for line in made] == [*[False] * (len(made) - 1), True]
    return made


def asked(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": USER, **fields}


def test_chat_whole_and_streamed(client: Client) -> None:
    whole = client.chat(MODEL, USER)
    assert whole.message.content == "hello world" and whole.done and whole.done_reason == "stop"
    assert whole.eval_count == 12 and whole.prompt_eval_count and whole.model == MODEL
    pieces = list(client.chat(MODEL, USER, stream=True))
    assert "".join(piece.message.content or "" for piece in pieces) == "hello world"
    assert [piece.done for piece in pieces] == [*[False] * (len(pieces) - 1), True]
    assert pieces[-1].eval_count == 12 and pieces[-1].done_reason == "stop"


@pytest.mark.parametrize("count", [0, -1, -2])
def test_a_length_of_zero_or_less_is_no_limit(client: Client, count: int) -> None:
    whole = client.chat(MODEL, USER, options={"num_predict": count})
    assert whole.message.content == "hello world" and whole.eval_count == 12


@pytest.mark.parametrize("name", ["top_p", "repeat_last_n"])
def test_an_error_has_the_name_of_the_option_that_was_sent(client: Client, name: str) -> None:
    wrong = {"top_p": 7, "repeat_last_n": -9}[name]
    with pytest.raises(ResponseError, match=f"^options.{name} ") as caught:
        client.chat(MODEL, USER, options={name: wrong})
    assert caught.value.status_code == 400


def test_generate_whole_and_streamed_and_the_context_goes_on(client: Client, live: Live) -> None:
    first = client.generate(MODEL, "hi", system="be kind")
    assert first.response == "hello world" and first.context
    assert "".join(piece.response for piece in client.generate(MODEL, "hi", stream=True)) == "hello world"
    client.generate(MODEL, "more", context=first.context)
    seen = live.parts.serving.engine.prompts[-1].token_ids  # type: ignore[attr-defined]
    assert list(seen[: len(first.context)]) == list(first.context)


def test_raw_is_the_prompt_alone(client: Client, live: Live) -> None:
    made = client.generate(MODEL, "<s>hi", raw=True)
    assert bytes(live.parts.serving.engine.prompts[-1].token_ids) == b"<s>hi" and made.context is None  # type: ignore[attr-defined]
    with pytest.raises(ResponseError, match="raw mode") as refused:
        client.generate(MODEL, "hi", raw=True, system="be kind")
    assert refused.value.status_code == 400


def test_options_reach_the_engine(live: Live) -> None:
    options = {
        "temperature": 0.5, "top_k": 7, "top_p": 0.5, "min_p": 0.25, "seed": 3, "num_predict": 4, "stop": ["zz"],
        "repeat_penalty": 1.5, "repeat_last_n": 9, "presence_penalty": 0.5, "frequency_penalty": 0.25,
        "num_gpu": 1, "low_vram": True, "temprature": 1, "penalize_newline": True, "tfs_z": 1, "unheard\nof": 1,
    }  # fmt: skip
    reply = live.post("/api/chat", asked(options=options, stream=False, keep_alive="5m"))
    params = live.parts.serving.engine.prompts[-1].params  # type: ignore[attr-defined]
    assert reply.json["done_reason"] == "length" and reply.json["message"]["content"] == "hell"
    assert (params.temperature, params.top_k, params.top_p, params.min_p, params.seed) == (0.5, 7, 0.5, 0.25, 3)
    assert (params.max_tokens, params.stop, params.repetition_penalty, params.repetition_window) == (4, ("zz",), 1.5, 9)
    assert (params.presence_penalty, params.frequency_penalty) == (0.5, 0.25)
    named = reply.headers["x-twostroke-ignored-fields"].split(", ")
    assert named == [
        "options.num_gpu", "options.low_vram", "options.temprature (did you mean temperature?)",
        "options.penalize_newline", "options.tfs_z", "options.unheard?of", "keep_alive",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"options": {"mirostat": 3}}, "mirostat"),
        ({"options": {"typical_p": "x"}}, "typical_p"),
        ({"options": {"tfs_z": 0.5}}, "tfs_z"),
        ({"options": {"temperature": "hot"}}, "temperature"),
        ({"options": {"top_k": 1.5}}, "top_k"),
        ({"options": {"stop": [1]}}, "stop"),
        ({"format": "xml"}, "format"),
        ({"format": 3}, "format"),
        ({"think": True}, "does not support thinking"),
        ({"think": "very"}, "think"),
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
        ({"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]}, "images"),
        ({"tools": [{"type": "function", "function": [1]}]}, "tools"),
    ],
)
def test_what_is_refused(live: Live, fields: dict[str, Any], words: str) -> None:
    reply = live.post("/api/chat", asked(**fields))
    assert reply.status == 400 and set(reply.json) == {"error"} and words in reply.json["error"]


@pytest.mark.parametrize("calls", [[{}], [5], {}, 5, "x", [{"function": {"name": "f", "arguments": [1]}, "id": 7}]])
def test_odd_calls_of_earlier_turns_end_no_conversation(live: Live, calls: Any) -> None:
    turns = [{"role": "assistant", "content": "a", "tool_calls": calls}, {"role": "user", "content": "go on"}]
    assert live.post("/api/chat", asked(messages=turns, stream=False)).status == 200


def test_an_unknown_model_in_the_words_that_clients_look_for(client: Client, live: Live) -> None:
    with pytest.raises(ResponseError, match='model "nobody" not found, try pulling it first') as refused:
        client.chat("nobody", USER)
    assert refused.value.status_code == 404
    assert live.get("/api/nothing").json == {"error": "There is nothing at this path."}


def test_names_without_regard_to_case_and_latest(live: Live) -> None:
    for name in (MODEL.upper(), MODEL + ":latest", "hf.co/" + MODEL, MODEL + ".gguf"):
        reply = live.post("/api/chat", asked(model=name, stream=False))
        assert reply.status == 200 and reply.json["model"] == name  # the answer repeats the requested name


def test_num_ctx_bounds_this_request(live: Live) -> None:
    room = live.post("/api/chat", asked(stream=False, options={"num_ctx": 25})).json
    assert room["done_reason"] == "length" and room["prompt_eval_count"] + room["eval_count"] == 25
    reply = live.post("/api/chat", asked(truncate=False, options={"num_ctx": 3}))
    assert reply.status == 400 and "num_ctx is 3" in reply.json["error"]


def test_the_oldest_messages_go_and_the_system_message_stays(live: Live) -> None:
    talk = [{"role": "system", "content": "S"}, *[{"role": "user", "content": str(n) * 100} for n in range(12)]]
    reply = live.post("/api/chat", asked(messages=talk, stream=False))
    prompt = bytes(live.parts.serving.engine.prompts[-1].token_ids).decode()  # type: ignore[attr-defined]
    assert reply.status == 200 and prompt.startswith("system: S") and "11111111" in prompt and "0000" not in prompt
    assert "oldest messages were left out" in reply.headers["x-twostroke-warnings"]
    refused = live.post("/api/chat", asked(messages=talk, truncate=False))
    assert refused.status == 400 and str(CONTEXT) in refused.json["error"]
    too_long = live.post("/api/chat", asked(messages=[{"role": "user", "content": "x" * 2000}]))
    assert too_long.status == 400


def test_json_and_schemas(live: Live) -> None:
    for form in ("json", CITY):
        live.post("/api/chat", asked(format=form, stream=False))
        assert live.parts.serving.engine.prompts[-1].params.grammar is not None  # type: ignore[attr-defined]
    live.post("/api/chat", asked(format="", stream=False))
    assert live.parts.serving.engine.prompts[-1].params.grammar is None  # type: ignore[attr-defined]


def test_tool_calls_come_whole_in_a_line_before_the_last() -> None:
    with serve(f"I look.\n{CALL}") as live:
        whole = Client(host=live.url).chat(MODEL, USER, tools=TOOLS)
        assert whole.message.tool_calls and whole.message.tool_calls[0].function.arguments == {"city": "Ulm"}
        lines = lines_of(live.post("/api/chat", asked(tools=TOOLS)))
        calls = [call for line in lines for call in line["message"].get("tool_calls", ())]
        assert [call["function"] for call in calls] == [{"index": 0, "name": "weather", "arguments": {"city": "Ulm"}}]
        back = [*USER, {"role": "assistant", "content": "", "tool_calls": calls}]
        result = {"role": "tool", "tool_name": "weather", "content": "9"}
        again = live.post("/api/chat", asked(messages=[*back, result]))
        assert again.status == 200


def test_thoughts_are_apart() -> None:
    with serve("<think>so</think>yes", THINKING) as live:
        made = Client(host=live.url).chat(MODEL, USER, think=True)
        assert made.message.thinking == "so" and made.message.content == "yes"
        lines = lines_of(live.post("/api/generate", {"model": MODEL, "prompt": "hi"}))
        assert "".join(line.get("thinking", "") for line in lines) == "so"
        assert "".join(line["response"] for line in lines) == "yes"
        assert "thinking" in Client(host=live.url).show(MODEL).capabilities  # type: ignore[operator]


def test_log_probabilities(live: Live) -> None:
    made = live.post("/api/chat", asked(stream=False, logprobs=True, top_logprobs=2)).json
    assert made["logprobs"][0]["token"] == "h" and len(made["logprobs"][0]["top_logprobs"]) == 2
    lines = lines_of(live.post("/api/chat", asked(logprobs=True)))
    assert all(len(line["logprobs"]) == 1 for line in lines[:11])


def test_an_empty_request_asks_that_the_model_be_loaded(client: Client, live: Live) -> None:
    assert client.generate(MODEL, "").done_reason == "load"
    assert client.chat(MODEL, []).done_reason == "load"
    reply = live.post("/api/generate", {"model": MODEL, "prompt": "", "keep_alive": 0})
    assert reply.status == 200 and reply.json["done"]


def test_a_fault_in_a_stream_is_its_last_line() -> None:
    engine = FakeEngine()
    engine.error, engine.error_after = RuntimeError("secret"), 3
    with serving(fake_parts(engine)) as live:
        lines = live.post("/api/chat", asked()).body.splitlines()
        assert set(json.loads(lines[-1])) == {"error"} and b"secret" not in lines[-1]
        with pytest.raises(ResponseError):
            list(Client(host=live.url).chat(MODEL, USER, stream=True))


def test_lists_and_facts(client: Client, live: Live) -> None:
    assert [each.model for each in client.list().models] == [MODEL + ":latest"]
    listed = live.get("/api/tags").json["models"][0]
    assert {"name", "model", "modified_at", "size", "digest", "details"} <= set(listed)
    assert {"format", "family", "parameter_size", "quantization_level"} <= set(listed["details"])
    running = client.ps().models[0]
    assert running.model == MODEL + ":latest" and running.expires_at is not None and running.context_length == CONTEXT
    shown = client.show(MODEL)
    assert shown.capabilities == ["completion", "tools"] and shown.template == "plain"
    assert shown.modelinfo and shown.modelinfo["general.architecture"] == "unknown"
    tuple_of_version = tuple(int(part) for part in live.get("/api/version").json["version"].split("."))
    assert tuple_of_version >= (0, 6, 4)


def test_parameters_of_show_are_lines_that_clients_can_read() -> None:
    defaults = {"temperature": 0.6, "top_k": 20, "repetition_penalty": 1.1}
    with serving(fake_parts(defaults=defaults)) as live:
        text = live.post("/api/show", {"name": MODEL}).json["parameters"]
        lines = [re.fullmatch(r'(\S+)\s+((?:".*")|\S+)', line) for line in text.split("\n")]
        assert [line and line.groups() for line in lines] == [
            ("temperature", "0.6"), ("top_k", "20"), ("repeat_penalty", "1.1"),
        ]  # fmt: skip


def test_what_this_server_does_not_do_is_said(client: Client) -> None:
    assert client.pull(MODEL).status == "success"
    assert [each.status for each in client.pull(MODEL, stream=True)][-1] == "success"
    for call in (lambda: client.pull("other"), lambda: client.delete(MODEL), lambda: client.copy(MODEL, "b")):
        with pytest.raises(ResponseError, match="twostroke") as refused:
            call()
        assert refused.value.status_code == 501


def test_a_model_that_generates_makes_no_embeddings(client: Client) -> None:
    with pytest.raises(ResponseError, match="embed"):
        client.embed(MODEL, "x")


@pytest.fixture(scope="module")
def asynchronous(live: Live) -> Iterator[ollama.AsyncClient]:
    yield ollama.AsyncClient(host=live.url)


def test_the_asynchronous_client(asynchronous: ollama.AsyncClient) -> None:
    async def talk() -> str:
        return "".join([p.message.content or "" async for p in await asynchronous.chat(MODEL, USER, stream=True)])

    assert asyncio.run(talk()) == "hello world"


def test_langchain(live: Live) -> None:
    from langchain_ollama import ChatOllama, OllamaLLM

    chat = ChatOllama(model=MODEL, base_url=live.url, validate_model_on_init=True, temperature=0.5)
    assert chat.invoke("hi").content == "hello world"
    pieces = list(chat.stream("hi"))
    assert "".join(str(piece.content) for piece in pieces) == "hello world"
    assert OllamaLLM(model=MODEL, base_url=live.url).invoke("hi") == "hello world"


def test_langchain_tools() -> None:
    from langchain_ollama import ChatOllama

    with serve(CALL) as live:
        made = ChatOllama(model=MODEL, base_url=live.url).bind_tools(TOOLS).invoke("hi")
        assert [(call["name"], call["args"]) for call in made.tool_calls] == [("weather", {"city": "Ulm"})]


@pytest.mark.slow
def test_llama_index(live: Live) -> None:
    from llama_index.core.llms import ChatMessage
    from llama_index.llms.ollama import Ollama

    model = Ollama(model=MODEL, base_url=live.url, temperature=0.5, keep_alive="5m")
    assert model.metadata.context_window == CONTEXT  # what /api/show tells
    whole = model.chat([ChatMessage(role="user", content="hi")])
    assert whole.message.content == "hello world" and whole.raw["usage"]["completion_tokens"] == 12
    assert [each.delta for each in model.stream_chat([ChatMessage(role="user", content="hi")])][0]
    assert str(model.complete("hi")) == "hello world"
    assert [str(each) for each in model.stream_complete("hi")][-1] == "hello world"
    params = live.parts.serving.engine.prompts[-1].params  # type: ignore[attr-defined]
    assert params.temperature == 0.5

    async def talk() -> str:
        return str(await model.acomplete("hi"))

    assert asyncio.run(talk()) == "hello world"
    strict = Ollama(model=MODEL, base_url=live.url, json_mode=True)
    strict.complete("hi")
    assert live.parts.serving.engine.prompts[-1].params.grammar is not None  # type: ignore[attr-defined]


@pytest.mark.slow
def test_llama_index_tools() -> None:
    from llama_index.core.tools import FunctionTool
    from llama_index.llms.ollama import Ollama

    def weather(city: str) -> str:
        """The weather of a city."""
        return city

    with serve(CALL) as live:
        model = Ollama(model=MODEL, base_url=live.url)
        made = model.chat_with_tools([FunctionTool.from_defaults(weather)], "hi")
        calls = model.get_tool_calls_from_response(made)
        assert [(call.tool_name, call.tool_kwargs) for call in calls] == [("weather", {"city": "Ulm"})]
