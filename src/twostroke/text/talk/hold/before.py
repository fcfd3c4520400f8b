"""Grammars of the texts that a model writes before and after an answer that must fit a grammar: a thought, earlier
messages of the turn, and tags around the answer."""

from __future__ import annotations

from twostroke.text.talk.format import Format, Messages
from twostroke.text.talk.hold.lark import NOTHING, Lark, SpecialId, quoted

_GAP = r"/[ \n]{0,4}/"
ANSWER = "answer_form"
"""The name of the grammar rule for the answer itself; the caller of `around_answer` adds this rule."""


def around_answer(form: Format, special_id: SpecialId, prompt_end: str) -> str:
    """Returns Lark rules for a whole turn around an answer that must fit a grammar. `start` refers to the rule ANSWER,
    which the caller adds. Returns "" where only a thought comes before the answer, because after_thought handles this
    case."""
    lark = Lark(form.tokens(calls=False), special_id, "around")
    said = form.messages
    if said is not None:
        start = f"{earlier_messages(said, lark, words=False)} {answer_head(said, lark)} {ANSWER}"
    elif form.answers:
        wrapped = (f"{lark.text(opening)} {ANSWER} ({lark.text(closing)})?" for opening, closing in form.answers)
        start = f"{thought_rule(form, lark, prompt_end)} ({' | '.join((*wrapped, ANSWER))})"
    else:
        return ""
    return "\n".join([f"start: {start}", *lark.rules]) + "\n"


def thought_rule(form: Format, lark: Lark, prompt_end: str, blank: str = "") -> str:
    """Returns a Lark rule for the thought that may stand before an answer; it continues the thought if the prompt has
    opened one. blank: white space that stands before the answer if there is no thought."""
    marks = form.thought
    if marks is None or marks.closed_by(prompt_end):
        return lark.text(blank)
    following = f"({lark.text(marks.following)})?" if marks.following else ""
    inside = f"{lark.up_to(marks.closing.strip())} {_GAP} {following}"
    if marks.opened_by(prompt_end):
        return inside
    return f"({lark.text(marks.opening.strip())} {inside} | {lark.text(blank) or NOTHING})"


def earlier_messages(said: Messages, lark: Lark, *, words: bool = True) -> str:
    """Returns a Lark rule for the messages that may come before the last message of a turn: thoughts, and text for the
    user before a call. said: how the model writes messages. words: False where the last message is the answer itself,
    so that no other text for the user may come."""
    others = said.everyone if words else ()
    if not said.recipient or not (said.channel or said.thoughts or others):
        return ""
    if said.channel:
        names = " | ".join(quoted(channel) for channel in (*said.thoughts, "commentary"))
        head = f"{lark.text(said.channel)} ({names})"
    else:
        names = " | ".join(quoted(recipient) for recipient in (*said.thoughts, *others))
        head = f"{lark.text(said.recipient)} ({names})"
    return f"({head} {lark.text(said.body)} {lark.up_to(said.ends[0])} {lark.text(said.start)})*"


def answer_head(said: Messages, lark: Lark) -> str:
    """Returns a Lark rule for the header of the message that holds the answer to the user. said: how the model writes
    messages."""
    if said.channel:
        return f'{lark.text(said.channel)} "final" {lark.text(said.body)}'
    return f"{lark.text(said.recipient)} ({' | '.join(map(quoted, said.everyone))}) {lark.text(said.body)}"
