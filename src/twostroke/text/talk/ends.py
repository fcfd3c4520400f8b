"""The token that a template writes after an answer: it ends an answer, whatever the model's files name.

A token that stands between a thought and its answer is no end: the turn goes on after it. Neither is `<|end|>` where
the vocabulary has `<|call|>` or `<|calls|>`, as it ends each message of a turn there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from twostroke.types.errors import InvalidRequest

ANSWER, THOUGHT = "zqanswerqz", "zqthoughtqz"
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
    """The last special token after an answer; empty where the template writes none, or cannot be rendered."""
    if template is None:
        return frozenset()
    turn = _turn(template, {"content": ANSWER})
    special = [i for i in vocabulary.encode_rendered(turn.rpartition(ANSWER)[2]) if i in vocabulary.special_ids]
    if not turn or not special or special[-1] in _between(template, vocabulary):
        return frozenset()
    many = any(vocabulary.id_of(text) is not None for text in OTHER_ENDS)
    return frozenset() if many and special[-1] == vocabulary.id_of(MESSAGE_END) else frozenset(special[-1:])


def _between(template: Rendering, vocabulary: EndTokens) -> list[int]:
    """The tokens between a thought and its answer."""
    turn = _turn(template, {"content": ANSWER, **dict.fromkeys(THOUGHT_KEYS, THOUGHT)})
    _, thought, after = turn.partition(THOUGHT)
    return vocabulary.encode_rendered(after.partition(ANSWER)[0]) if thought else []


def _turn(template: Rendering, answer: Mapping[str, Any]) -> str:
    """A conversation of a question and this answer, "" where the template does not render it."""
    try:
        text = template.render(
            [{"role": "user", "content": "Hi"}, {"role": "assistant", **answer}], add_generation_prompt=False
        )
    except InvalidRequest:
        return ""
    return text if ANSWER in text else ""
