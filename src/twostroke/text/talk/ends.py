"""Finds the tokens that a template writes after an answer. They end an answer even if the model's configuration files
do not list them.

A token that stands between a thought and its answer does not count as an end, because the turn goes on after it.
`<|end|>` does not count either where the vocabulary has `<|call|>` or `<|calls|>`: in such formats it ends each message
of a turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from os.path import commonprefix
from typing import Any, Protocol

from twostroke.types.errors import InvalidRequest

QUESTION, ANSWER, THOUGHT, NEXT = "zqaskqz", "zqanswerqz", "zqthoughtqz", "zqnextqz"
"""The texts of a test conversation. No template contains them, so they can be found again in the rendered text."""
THOUGHT_KEYS = ("reasoning_content", "reasoning", "thinking")
MARK = re.compile(r"<[^<>\s]+>|\[[^\[\]\s]+\]")
_END_WORDS = ("eot", "eom", "eos", "im_end", "end_of_t", "end▁of▁sentence", "</s>", "|end|", "<turn|>")
MESSAGE_END, OTHER_ENDS = "<|end|>", ("<|call|>", "<|calls|>")


class Rendering(Protocol):
    """What this module needs of a chat template: it renders test conversations."""

    def render(self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True) -> str:
        """Returns the text of a conversation. Raises InvalidRequest."""


class EndTokens(Protocol):
    """What this module needs of a tokenizer, to find the special tokens in a rendered text."""

    special_ids: frozenset[int]

    def encode_rendered(self, text: str) -> list[int]:
        """Returns the token ids of a rendered text."""

    def id_of(self, token: str) -> int | None:
        """The id of a token as written in the vocabulary, or None."""


def ends_of_turns(texts: Iterable[str]) -> list[str]:
    """Returns the special tokens whose names suggest that a turn ends there."""
    return [text for text in texts if any(word in text.lower() for word in _END_WORDS)]


def always_after(question: str, answered: str, answer: str) -> str:
    """Returns the text with which a template continues every conversation, even where add_generation_prompt is False.
    Such text opens the next answer, or contains words. Returns "" where the template writes only tokens that end the
    turn.

    The inputs are parts of rendered test conversations, with add_generation_prompt=False. question: what follows the
    user's question where the conversation ends there. answered: what stands between question and answer. answer: what
    follows the answer.
    """
    shared = commonprefix([question[::-1], answer[::-1]])[::-1]
    found = MARK.search(shared)
    always = shared[found.start() :] if found else ""
    if answered.startswith(always) and answered.strip() != always.strip():
        return ""  # the mark ends a message, and the header of the answer follows it
    opens = len(MARK.findall(commonprefix([answered, always]))) > 1
    return always if opens or MARK.sub("", always).strip() else ""


def turn_end_ids(template: Rendering | None, vocabulary: EndTokens) -> frozenset[int]:
    """Returns the special tokens that end a turn; empty where the template writes none, or cannot be rendered.

    One is the last special token after the answer at the end of a conversation. The other is the last token of those
    special tokens that stand after an answer in any case, also before the user's next message. The two can differ,
    because some templates write the end of a text after the end of a turn.
    """
    if template is None:
        return frozenset()
    last = _special(_without_opening(template, _turn(template, {"content": ANSWER})), vocabulary)
    going_on = _special(_turn(template, {"content": ANSWER}, NEXT), vocabulary)
    if not last or last[-1] in _between(template, vocabulary):
        return frozenset()
    many = any(vocabulary.id_of(text) is not None for text in OTHER_ENDS)
    found = {*last[-1:], *commonprefix([last, going_on])[-1:]}
    return frozenset(found - {vocabulary.id_of(MESSAGE_END)} if many else found)


def _without_opening(template: Rendering, turn: str) -> str:
    """Returns the rendered conversation without the text that the template writes after every conversation
    (always_after). If that text begins with a token that ends turns, this token stays."""
    question = _turn(template, None).rpartition(QUESTION)[2]
    answered, _, after = turn.rpartition(QUESTION)[2].partition(ANSWER)
    always = always_after(question, answered, after)
    first = MARK.match(always)
    return turn.removesuffix(always) + "".join(ends_of_turns([first[0]] if first else []))


def _special(turn: str, vocabulary: EndTokens) -> list[int]:
    """Returns the ids of the special tokens after the answer in a rendered test conversation, up to the user's next
    message."""
    text = turn.rpartition(ANSWER)[2].partition(NEXT)[0]
    return [token_id for token_id in vocabulary.encode_rendered(text) if token_id in vocabulary.special_ids]


def _between(template: Rendering, vocabulary: EndTokens) -> list[int]:
    """Returns the ids of the tokens that the template writes between a thought and its answer, such as `</think>`; []
    where it writes no thought."""
    turn = _turn(template, {"content": ANSWER, **dict.fromkeys(THOUGHT_KEYS, THOUGHT)})
    _, thought, after = turn.partition(THOUGHT)
    return vocabulary.encode_rendered(after.partition(ANSWER)[0]) if thought else []


def _turn(template: Rendering, answer: Mapping[str, Any] | None, after: str = "") -> str:
    """Returns the text of a conversation: a question, this answer, and the user's message after it; "" where it cannot
    be rendered."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": QUESTION}]
    if answer is not None:
        messages.append({"role": "assistant", **answer})
    if after:
        messages.append({"role": "user", "content": after})
    try:
        text = template.render(messages, add_generation_prompt=False)
    except InvalidRequest:
        return ""
    return text if answer is None or ANSWER in text else ""
