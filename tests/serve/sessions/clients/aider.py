"""aider through LiteLLM: /v1/chat/completions streamed, examples and files as turns, a reminder as the last message."""

from __future__ import annotations

from typing import Any

from tests.serve.sessions.frame import MODEL, Ask, Client, Session
from tests.serve.sessions.texts import REQUESTS, output, rules

HEADERS = {"user-agent": "litellm/1.81.0", "x-stainless-lang": "python"}
OK = {"role": "assistant", "content": "Ok."}


def session() -> Session:
    fixed = [
        {"role": "system", "content": rules("Edit blocks", 3500)},
        _user("Change get_factorial() to use math.factorial"),
        {"role": "assistant", "content": rules("An edit block as an example", 700)},
        _user("I switched to a new code base. Do not assume that the files above exist."),
        OK,
        _user("Here are summaries of some files:\n" + rules("A map of the code", 1500)),
        OK,
        _user("I added these files to the chat:\n" + "".join(map(output, range(6)))),
        OK,
    ]
    done: list[dict[str, Any]] = []
    for turn in range(1, REQUESTS + 1):
        asked = _user(f"Change part {turn}.")
        reminder = {"role": "system", "content": "Only answer with edit blocks."}
        said = yield Ask("/v1/chat/completions", _body([*fixed, *done, asked, reminder]), HEADERS)
        done += [asked, {"role": "assistant", "content": said.text}]
        if turn % 5 == 0:  # edits were written
            done += [_user("I committed the changes as 0a1b2c3 & updated your git."), OK]


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _body(messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "model": MODEL,
        "messages": messages,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "extra_body": {},
    }


ANSWER = "part.py\n<<<<<<< SEARCH\nold line\n=======\nnew words\n>>>>>>> REPLACE"
CLIENT = Client("aider", ANSWER, session)
