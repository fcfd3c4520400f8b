"""LangChain, pydantic-ai and openai-agents in loops of five tool turns. Each drives the loop by itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.agents.script import ANSWER, Results, Seen, check, looping
from tests.serve.fakes import MODEL
from tests.text.talk.reading import PLACE
from tests.tiers import TIER, in_turn
from twostroke.text.talk.catalog import FORMATS
from twostroke.text.talk.format import Format

QUESTION = "When is it open?"
ABOUT = {"shelf": "Put a book on a shelf.", "hours": "Hours of a day.", "bell": "Ring."}
PROPERTIES: dict[str, dict[str, Any]] = {
    "shelf": {
        "title": {"type": "string"},
        "copies": {"type": "integer"},
        "due": {"type": "boolean"},
        "place": PLACE,
    },
    "hours": {"day": {"type": "string"}},
    "bell": {},
}
SCHEMAS = {name: {"type": "object", "properties": each} for name, each in PROPERTIES.items()}
MOST_TURNS = 8
LOOPS_OF_A_FORMAT = 2 if TIER.daily else 1
Loop = Callable[[str, Results], str]
"""(address of the server, tools) -> the final answer."""


def _langchain(model: Any, results: Results) -> str:
    from langchain_core.messages import HumanMessage, ToolMessage

    tools = [{"name": name, "description": ABOUT[name], "parameters": schema} for name, schema in SCHEMAS.items()]
    bound = model.bind_tools([{"type": "function", "function": tool} for tool in tools])
    messages: list[Any] = [HumanMessage(QUESTION)]
    for turn in range(MOST_TURNS):
        if turn % 2:
            said: Any = None
            for chunk in bound.stream(messages):
                said = chunk if said is None else said + chunk
        else:
            said = bound.invoke(messages)
        assert not said.invalid_tool_calls
        messages.append(said)
        if not said.tool_calls:
            return str(said.text)
        for call in said.tool_calls:
            messages.append(ToolMessage(results.take(call["name"], call["args"]), tool_call_id=call["id"]))
    raise AssertionError("the loop did not end")


def langchain_openai(url: str, results: Results) -> str:
    from langchain_openai import ChatOpenAI

    return _langchain(ChatOpenAI(model=MODEL, base_url=url + "/v1", api_key="none", max_retries=0), results)


def langchain_responses(url: str, results: Results) -> str:
    from langchain_openai import ChatOpenAI

    own: Any = {"use_responses_api": True, "max_retries": 0}
    return _langchain(ChatOpenAI(model=MODEL, base_url=url + "/v1", api_key="none", **own), results)


def langchain_anthropic(url: str, results: Results) -> str:
    from langchain_anthropic import ChatAnthropic

    own: Any = {"max_tokens": 5000, "max_retries": 0}
    return _langchain(ChatAnthropic(model=MODEL, base_url=url, api_key="none", **own), results)


def _pydantic(model: Any, results: Results) -> str:
    from pydantic_ai import Agent, Tool

    def tool(name: str) -> Any:
        def run(**arguments: Any) -> str:
            return results.take(name, arguments)

        return Tool.from_schema(run, name, ABOUT[name], SCHEMAS[name], sequential=True)

    agent: Any = Agent(model, tools=[tool(name) for name in SCHEMAS])
    return str(asyncio.run(agent.run(QUESTION)).output)


def pydantic_ai_openai(url: str, results: Results) -> str:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    return _pydantic(OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=url + "/v1", api_key="none")), results)


def pydantic_ai_anthropic(url: str, results: Results) -> str:
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    return _pydantic(AnthropicModel(MODEL, provider=AnthropicProvider(base_url=url, api_key="none")), results)


def _agents(kind: str, url: str, results: Results) -> str:
    from openai import AsyncOpenAI

    import agents

    def tool(name: str) -> Any:
        async def run(_context: Any, arguments: str) -> str:
            return results.take(name, json.loads(arguments))

        return agents.FunctionTool(name, ABOUT[name], SCHEMAS[name], run, strict_json_schema=False)

    async def main() -> str:
        async with AsyncOpenAI(base_url=url + "/v1", api_key="none", max_retries=0) as client:
            model: Any = getattr(agents, kind)(MODEL, openai_client=client)
            agent: Any = agents.Agent("librarian", model=model, tools=[tool(name) for name in SCHEMAS])
            return str((await agents.Runner.run(agent, QUESTION, max_turns=MOST_TURNS)).final_output)

    agents.set_tracing_disabled(True)
    return asyncio.run(main())


def openai_agents_chat(url: str, results: Results) -> str:
    return _agents("OpenAIChatCompletionsModel", url, results)


def openai_agents_responses(url: str, results: Results) -> str:
    return _agents("OpenAIResponsesModel", url, results)


LOOPS: tuple[Loop, ...] = (
    langchain_openai,
    langchain_responses,
    langchain_anthropic,
    pydantic_ai_openai,
    pydantic_ai_anthropic,
    openai_agents_chat,
    openai_agents_responses,
)


def run(loop: Loop, form: Format) -> None:
    results = Results(form)
    with looping(form) as (live, engine):
        answer = loop(live.url, results)
        check(form, Seen(results.by_turns(form), None, answer), engine)
        assert answer == ANSWER and len(engine.prompts) == 6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "loop"), in_turn(FORMATS, LOOPS, LOOPS_OF_A_FORMAT), ids=lambda each: getattr(each, "__name__", each)
)
def test_a_framework_drives_five_tool_turns(loop: Loop, name: str) -> None:
    """A framework sees only calls, and not the format from which they came. So each format runs in some of the
    loops."""
    run(loop, FORMATS[name])
