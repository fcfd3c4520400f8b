"""Runs LiteLLM and LangChain once against a running server that serves `spark`. Each way must give the same answer.

    python tools/conformance/once_through.py http://127.0.0.1:8000/v1

Needs `litellm`, `mcp` and `langchain-openai`, which are no dependencies of the tests.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import litellm
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

ASK = "What is prefill?"
MESSAGES = [{"role": "user", "content": ASK}]
ZONE = {
    "type": "object",
    "properties": {"zone": {"enum": ["UTC", "CET"]}},
    "required": ["zone"],
}
TOOLS = [{"type": "function", "function": {"name": "clock", "parameters": ZONE}}]


def check(same: bool, what: str) -> None:
    """Ends the program with a message when `same` is false."""
    if not same:
        sys.exit(f"differs: {what}")


def through_litellm(url: str) -> str:
    """Asks by LiteLLM: whole, streamed, sixteen requests at once, the Messages API, completions and a forced tool.
    Returns the text of the answer."""
    asked: dict[str, Any] = {"api_base": url, "api_key": "none", "temperature": 0, "max_tokens": 30}
    chat = {"model": "openai/spark", "messages": MESSAGES, **asked}

    def whole(_place: int = 0) -> str:
        return str(litellm.completion(**chat).choices[0].message.content)

    text = whole()
    chunks = litellm.completion(**chat, stream=True, stream_options={"include_usage": True})
    check(text == "".join(chunk.choices[0].delta.content or "" for chunk in chunks), "streamed")
    with ThreadPoolExecutor(8) as pool:
        check(set(pool.map(whole, range(16))) == {text}, "in a crowd")
    messages = {**chat, "model": "anthropic/spark", "api_base": url.removesuffix("/v1")}
    check(text == litellm.completion(**messages).choices[0].message.content, "by the Messages API")
    completed = litellm.text_completion(model="text-completion-openai/spark", prompt="Prefill is", **asked)
    check(bool(completed.choices[0].text), "completions")
    forced = litellm.completion(
        **{**chat, "max_tokens": 200}, tools=TOOLS, tool_choice="required", parallel_tool_calls=False
    )
    print("LiteLLM:", repr(text[:40]), forced.choices[0].message.tool_calls[0].function)
    return text


@tool
def clock(zone: Literal["UTC", "CET"]) -> str:
    """The time in a zone."""
    return zone


def through_langchain(url: str, text: str) -> None:
    """Asks by LangChain: whole, streamed, a forced tool and the Responses API. Ends the program when an answer is not
    `text`."""
    model: dict[str, Any] = {"model": "spark", "base_url": url, "api_key": "none", "temperature": 0}
    chat = ChatOpenAI(**model, max_tokens=30)
    check(chat.invoke(ASK).content == text, "LangChain")
    check("".join(str(chunk.content) for chunk in chat.stream(ASK)) == text, "LangChain streamed")
    forced = ChatOpenAI(**model, max_tokens=300).bind_tools([clock], tool_choice="clock", parallel_tool_calls=False)
    print("LangChain:", [(call["name"], call["args"]) for call in forced.invoke("What time is it?").tool_calls])
    responses = ChatOpenAI(**model, max_tokens=30, use_responses_api=True)
    check(responses.invoke(ASK).text == text, "LangChain over Responses")


if __name__ == "__main__":
    through_langchain(sys.argv[1], through_litellm(sys.argv[1]))
    print("the same by every way")
