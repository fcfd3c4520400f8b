"""The tokens that a template writes after an answer: they end an answer, whatever the model's files name.

A token that stands between a thought and its answer is no end: the turn goes on after it. Neither is `<|end|>` where
the vocabulary has `<|call|>` or `<|calls|>`, as it ends each message of a turn there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os.path import commonprefix
from typing import Any, Protocol

from twostroke.types.errors import InvalidRequest

ANSWER, THOUGHT, NEXT = "zqanswerqz", "zqthoughtqz", "zqnextqz"
"""Words that no template holds."""
THOUGHT_KEYS = ("reasoning_content", "reasoning", "thinking")
MESSAGE_END, OTHER_ENDS = "<|end|>", ("<|call|>", "<|calls|>")


class Rendering(Protocol):
    """A chat template."""

    def render(self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True) -> str:
        """The text of a conversation. Raises InvalidRequest."""


class EndTokens(Protocol):
    """What a vocabulary knows of the tokens after an answer."""

    special_ids: frozenset[int]

    def encode_rendered(self, text: str) -> list[int]:
        """Token ids of a rendered text."""

    def id_of(self, token: str) -> int | None:
        """The id of a token as written in the vocabulary, or None."""


def turn_end_ids(template: Rendering | None, vocabulary: EndTokens) -> frozenset[int]:
    """The special tokens that end a turn; empty where the template writes none, or cannot be rendered.

    They are the last one of a conversation that ends with an answer, and the last one that also comes where the user
    goes on: some templates write the end of a text after the end of a turn.
    """
    if template is None:
        return frozenset()
    last = _special(_turn(template, {"content": ANSWER}), vocabulary)
    going_on = _special(_turn(template, {"content": ANSWER}, NEXT), vocabulary)
    if not last or last[-1] in _between(template, vocabulary):
        return frozenset()
    many = any(vocabulary.id_of(text) is not None for text in OTHER_ENDS)
    found = {*last[-1:], *commonprefix([last, going_on])[-1:]}
    return frozenset(found - {vocabulary.id_of(MESSAGE_END)} if many else found)


def _special(turn: str, vocabulary: EndTokens) -> list[int]:
    """The special tokens between the answer and what the user says next."""
    text = turn.rpartition(ANSWER)[2].partition(NEXT)[0]
    return [token_id for token_id in vocabulary.encode_rendered(text) if token_id in vocabulary.special_ids]


def _between(template: Rendering, vocabulary: EndTokens) -> list[int]:
    """The tokens between a thought and its answer."""
    turn = _turn(template, {"content": ANSWER, **dict.fromkeys(THOUGHT_KEYS, THOUGHT)})
    _, thought, after = turn.partition(THOUGHT)
    return vocabulary.encode_rendered(after.partition(ANSWER)[0]) if thought else []


def _turn(template: Rendering, answer: Mapping[str, Any], after: str = "") -> str:
    """A conversation of a question, this answer, and what the user says after it, "" where it is not rendered."""
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", **answer}]
    if after:
        messages.append({"role": "user", "content": after})
    try:
        text = template.render(messages, add_generation_prompt=False)
    except InvalidRequest:
        return ""
    return text if ANSWER in text else ""
