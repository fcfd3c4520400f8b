"""The texts that a model writes around an answer with a grammar: a thought, messages before it, marks on both sides."""

from __future__ import annotations

from twostroke.text.talk.format import Format, Messages
from twostroke.text.talk.hold.lark import NOTHING, Lark, SpecialId, quoted

_GAP = r"/[ \n]{0,4}/"
ANSWER = "answer_form"
"""The name of the grammar rule for the answer itself; the caller of `around_answer` adds this rule."""


def around_answer(form: Format, special_id: SpecialId, prompt_end: str) -> str:
    """Returns the Lark rules of the texts around an answer; "" for a format that writes only a thought around an
    answer. `start` contains ANSWER, whose own rule the caller adds."""
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
    """Returns a rule for the text that may stand before an answer. blank: white space that stands there without a
    thought."""
    marks = form.thought
    if marks is None or marks.closed_by(prompt_end):
        return lark.text(blank)
    following = f"({lark.text(marks.following)})?" if marks.following else ""
    inside = f"{lark.up_to(marks.closing.strip())} {_GAP} {following}"
    if marks.opened_by(prompt_end):
        return inside
    return f"({lark.text(marks.opening.strip())} {inside} | {lark.text(blank) or NOTHING})"


def earlier_messages(said: Messages, lark: Lark, *, words: bool = True) -> str:
    """Returns a rule for the messages before the last one of a turn: thoughts, and words for the user before a call.
    words: False where the last message is the answer instead of a call, because words for the user are then the answer.
    """
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
    """Returns a rule for the header of a message for the user."""
    if said.channel:
        return f'{lark.text(said.channel)} "final" {lark.text(said.body)}'
    return f"{lark.text(said.recipient)} ({' | '.join(map(quoted, said.everyone))}) {lark.text(said.body)}"
