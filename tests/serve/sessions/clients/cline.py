"""Cline: /v1/chat/completions streamed, without tools of the API. Calls are tags in texts; results are a user's
parts."""

from __future__ import annotations

from typing import Any

from tests.serve.sessions.frame import MODEL, Ask, Client, Session
from tests.serve.sessions.texts import REQUESTS, output, picture_url, rules

HEADERS = {"user-agent": "OpenAI/JS 4.96.0", "x-stainless-lang": "js", "http-referer": "https://cline.bot"}


def session() -> Session:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": rules("Tools are called with tags", 6500)},
        {"role": "user", "content": _parts("<task>\nRename the function.\n</task>", _details(0))},
    ]
    for turn in range(1, REQUESTS + 1):
        said = yield Ask("/v1/chat/completions", _body(messages), HEADERS)
        messages.append({"role": "assistant", "content": said.text})
        found: list[Any] = _parts("[read_file for 'part.py'] Result:", output(turn), _details(turn))
        if turn == 6:
            found.insert(1, {"type": "image_url", "image_url": {"url": picture_url()}})
            messages.append({"role": "user", "content": found})
            messages.append({"role": "assistant", "content": "I see it."})
            found = _parts("[ERROR] No tool was used in the last answer.", _details(turn))
        messages.append({"role": "user", "content": found})


def _body(messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "model": MODEL,
        "messages": messages,
        "temperature": 0,
        "max_completion_tokens": 65_535,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def _parts(*texts: str) -> list[Any]:
    return [{"type": "text", "text": text} for text in texts]


def _details(turn: int) -> str:
    return f"<environment_details>\n# Open files\npart.py\n# Time\n11/28/2026, 12:{turn:02} PM\n</environment_details>"


ANSWER = "Let me read it.\n<read_file>\n<path>part.py</path>\n</read_file>"
CLIENT = Client("Cline", ANSWER, session)
