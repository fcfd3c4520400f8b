"""Open WebUI: /v1/chat/completions streamed, a person's chat with knowledge in the system text, titles and tags aside.

Its history contains a picture that was sent to another model, and thoughts as details in the answers.
"""

from __future__ import annotations

from typing import Any

from tests.serve.sessions.frame import MODEL, Ask, Client, Session
from tests.serve.sessions.texts import REQUESTS, output, picture_url, rules

PATH = "/v1/chat/completions"
HEADERS = {"x-openwebui-user-name": "Ada", "x-openwebui-chat-id": "0", "user-agent": "Python/3.11 aiohttp/3.13.2"}


def session() -> Session:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": rules("What the house knows", 7000)},
        {"role": "user", "content": [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": picture_url()}},
        ]},
        {"role": "assistant", "content": "A picture.", "model": "another-model"},
        {"role": "user", "content": "What else do you know?"},
    ]
    for turn in range(1, REQUESTS + 1):
        if turn in (2, 3):
            yield Ask(PATH, _task("title" if turn == 2 else "tags"), HEADERS, aside=True)
            continue
        said = yield Ask(PATH, _body(messages), HEADERS)
        thought = '<details type="reasoning" done="true">\n<summary>Thought</summary>\n> Hm.\n</details>\n'
        messages.append({"role": "assistant", "content": thought + said.text if turn == 5 else said.text})
        if turn == 7:  # an answer that was stopped at once
            messages += [{"role": "user", "content": "Stop."}, {"role": "assistant", "content": ""}]
        messages.append({"role": "user", "content": f"Tell me more. {output(turn)}"})


def _body(messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "stream": True,
        "model": MODEL,
        "messages": messages,
        "stream_options": {"include_usage": True},
        "seed": -1,
        "max_tokens": 128_000,
        "reasoning_effort": "medium",
        "metadata": {"chat_id": "0", "features": {"web_search": False}},
    }


def _task(what: str) -> dict[str, Any]:
    text = f"### Task:\nGenerate {what} for the chat.\n<chat_history>\nUSER: What is this?\n</chat_history>"
    body = {"model": MODEL, "messages": [{"role": "user", "content": text}], "stream": False}
    return {**body, "max_completion_tokens": 1000, "stream_options": {"include_usage": True}}


ANSWER = "Plenty of things, and all of them are written down."
CLIENT = Client("Open WebUI", ANSWER, session)
