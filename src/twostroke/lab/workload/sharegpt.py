"""ShareGPT: conversations as JSON, [{"id", "conversations": [{"from": "human", "value"}, {"from": "gpt", "value"}]}].

A request is the first question of a conversation, and asks for the number of tokens that its answer has. Conversations
without a question and an answer are left out, as in other tools. The trace has no times: all requests arrive at 0.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from twostroke.lab.workload.request import WorkloadRequest
from twostroke.lab.workload.trace_error import TraceError, broken

CHARACTERS_PER_TOKEN = 4
EXPECTED = (
    'An entry looks like {"conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]}.'
)
HUMAN, MODEL = ("human", "user"), ("gpt", "chatgpt", "assistant", "bard", "bing")
_SPACE = " \t\r\n"


def about_tokens(text: str) -> int:
    """Returns a guess of the number of tokens without a tokenizer: four characters a token."""
    return max(1, len(text) // CHARACTERS_PER_TOKEN)


def parse_sharegpt(
    text: str, count_tokens: Callable[[str], int] = about_tokens, source: str = "trace"
) -> list[WorkloadRequest]:
    """Returns the requests in the file's order, each with its text. Raises TraceError that names the line."""
    found = []
    for line, entry in _entries(text.lstrip("\ufeff"), source):
        try:
            pair = _first_pair(entry)
        except ValueError as error:
            raise broken(source, line, str(error), EXPECTED) from None
        if pair is not None:
            question, answer = pair
            tokens = max(1, count_tokens(question)), max(1, count_tokens(answer))
            found.append(WorkloadRequest(0.0, *tokens, text=question))
    if not found:
        raise TraceError(f"{source}: there is no conversation with a question and an answer in it.", fix=EXPECTED)
    return found


def _first_pair(entry: Any) -> tuple[str, str] | None:
    if not isinstance(entry, dict):
        raise ValueError(f"an entry is a {type(entry).__name__}, not an object")
    turns = entry.get("conversations", entry.get("conversation"))
    if not isinstance(turns, list):
        raise ValueError("an entry has no list of conversations")
    said = []
    for turn in turns:
        if not (isinstance(turn, dict) and isinstance(turn.get("from"), str) and isinstance(turn.get("value"), str)):
            raise ValueError("a turn has no from and value")
        said.append((turn["from"], turn["value"]))
    for (who, question), (other, answer) in zip(said, said[1:], strict=False):
        if who in HUMAN and other in MODEL and question.strip() and answer.strip():
            return question, answer
    return None


def _entries(text: str, source: str) -> Iterator[tuple[int, Any]]:
    """Yields (line, value) of each entry. The text is either a JSON array of entries, or one JSON object after the
    other."""
    decoder = json.JSONDecoder()
    at = _skip(text, 0)
    array = text[at : at + 1] == "["
    at = _skip(text, at + 1) if array else at
    line, counted = 1, 0
    while at < len(text) and not (array and text[at] == "]"):
        line += text.count("\n", counted, at)
        counted = at
        try:
            value, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            raise broken(source, error.lineno, f"not JSON: {error.msg} at column {error.colno}", EXPECTED) from None
        except RecursionError:
            raise broken(source, line, "not JSON that can be read: nested too deeply", EXPECTED) from None
        yield line, value
        at = _skip(text, at)
        if array:
            at = _after_comma(text, at, source)
    if array and at >= len(text):
        raise broken(source, text.count("\n") + 1, "the array has no end", EXPECTED)


def _after_comma(text: str, at: int, source: str) -> int:
    mark = text[at : at + 1]
    if mark == "," and text[_skip(text, at + 1) : _skip(text, at + 1) + 1] != "]":
        return _skip(text, at + 1)
    if mark in ("]", ""):
        return at
    raise broken(source, text.count("\n", 0, at) + 1, "two entries without a comma between them", EXPECTED)


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at
