"""Raw answers through a reader, whole and in pieces, with the tools of the examples."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from twostroke.text.talk import write
from twostroke.text.talk.calling import Tools
from twostroke.text.talk.format import Example, Format
from twostroke.text.talk.learn.round_trip import ReadTurn, message_of
from twostroke.text.talk.pieces import Piece, joined
from twostroke.text.talk.reader import TurnReader

PLACE = {"type": "object", "properties": {"rows": {"type": "array", "items": {"type": "integer"}}}}
TOOLS: dict[str, Any] = {
    "shelf": {
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "copies": {"type": "integer"},
            "due": {"type": "boolean"},
            "place": PLACE,
        },
    },
    "hours": {"type": "object", "properties": {"day": {"type": "string"}}},
    "bell": {"type": "object", "properties": {}},
}


def pieces_of(form: Format, texts: Iterable[str], prompt_end: str = "", tools: Any = None) -> list[Piece]:
    """The pieces of the texts, one after the other, with neighbours joined."""
    reader = TurnReader(form, Tools(TOOLS if tools is None else tools), prompt_end)
    made = [piece for text in texts for piece in reader.feed(text)]
    return joined([*made, *reader.finish()])


def read(form: Format, texts: Iterable[str], prompt_end: str = "", tools: Any = None) -> ReadTurn:
    """The message of the texts."""
    return message_of(pieces_of(form, texts, prompt_end, tools))


def cut(text: str, places: Sequence[int]) -> list[str]:
    """The text in pieces."""
    ends = [0, *sorted(min(place, len(text)) for place in places), len(text)]
    return [text[a:b] for a, b in zip(ends, ends[1:], strict=False)]


def expected(example: Example) -> ReadTurn:
    """What a client gets for an example, with arguments as values."""
    calls = tuple((each[0], json.loads(each[1]), each[2] if len(each) > 2 else "") for each in example.calls)
    return ReadTurn(example.content, example.thought, calls)


def valued(turn: ReadTurn) -> ReadTurn:
    """The turn with arguments as values, where they are JSON."""
    calls = tuple((name, json.loads(text), call_id) for name, text, call_id in turn.calls)
    return ReadTurn(turn.content, turn.thought, calls)


def written(form: Format, calls: list[tuple[str, dict[str, Any]]]) -> str:
    """The calls as the model writes them, with ids of its form."""
    ids = [form.ids.new("k3j5h7g9f0" * 3, name, place) for place, (name, _) in enumerate(calls)]
    return write.written(form, [(*call, own) for call, own in zip(calls, ids, strict=True)])
