"""Grammars that force a model to follow its tools' schemas, in its own format, after a thought where it may think."""

from __future__ import annotations

from collections.abc import Mapping
from os.path import commonprefix
from typing import Any

from twostroke.text.talk.format import CallForm, Format, Messages
from twostroke.text.talk.hold.before import answer_head, earlier_messages, thought_rule
from twostroke.text.talk.hold.lark import ANYTHING, Lark, SpecialId
from twostroke.types.grammar import Grammar

MOST_CALLS = 16
"""The most calls of a turn that a grammar holds. Small models that must call, and may call again, sometimes call the
same tools in a circle until the context is full."""


def forced_calls(
    form: Format, schemas: Mapping[str, Any], special_id: SpecialId, *, parallel: bool, prompt_end: str = ""
) -> Grammar:
    """Returns a grammar of a thought if the model wants one, then calls and nothing else.

    schemas: tool name -> JSON schema of its arguments, as check.checked_in_words gives it. parallel: True for up to
    MOST_CALLS calls, False for one call. prompt_end: the end of the prompt, which shows whether the thought is opened
    already, or closed.
    """
    lark = Lark(form.tokens(calls=True), special_id)
    written = form.calls[0]
    if form.messages is not None:
        return _grammar(f"{earlier_messages(form.messages, lark)} {_called(form, form.messages, schemas, lark)}", lark)
    blank = _blank(written.begin or written.open)
    if written.begin:
        call, first, begin = _rules(written, written.open, schemas, lark), "", written.begin[len(blank) :]
        calls = _run(written, (call, call), lark, begin, parallel)
    else:
        call, first = (_rules(written, text, schemas, lark) for text in (written.open, written.open[len(blank) :]))
        calls = _run(written, (first, call), lark, "", parallel)
    return _grammar(f"{thought_rule(form, lark, prompt_end, blank)} {calls}", lark)


def strict_calls(form: Format, schemas: Mapping[str, Any], special_id: SpecialId, *, parallel: bool) -> Grammar:
    """Returns a grammar of free text with calls: once the mark of a call has begun, the call must fit its schema."""
    lark = Lark(form.tokens(calls=True), special_id)
    written = form.calls[0]
    if form.messages is not None:
        said = f"{answer_head(form.messages, lark)} {lark.rule(ANYTHING)}"
        call = _called(form, form.messages, schemas, lark)
        return _grammar(f"{earlier_messages(form.messages, lark)} ({call} | {said})", lark)
    call = _rules(written, written.open, schemas, lark)
    begin, opening = written.begin, written.open
    mark = begin.strip() or opening.strip()
    if not mark:  # any text that begins with the opening character is a call
        text = lark.rule(r"/[^\[](.|\n)*/" if written.listed else r"/[^{](.|\n)*/")
        return _grammar(f"{_run(written, (call, call), lark, '', parallel)} | {text}", lark)
    first = call if begin.strip() else _rules(written, _after(opening, mark), schemas, lark)
    calls = _run(written, (first, call), lark, _after(begin, mark), parallel)
    return _grammar(f"{lark.up_to(mark)} {calls} | {lark.rule(ANYTHING)}", lark)


def _blank(text: str) -> str:
    return text[: len(text) - len(text.lstrip())]


def _called(form: Format, said: Messages, schemas: Mapping[str, Any], lark: Lark) -> str:
    """Returns a rule for a message that calls a tool."""
    written = form.calls[0]
    if not said.inside:
        return _rules(written, written.open, schemas, lark)
    made = []
    for name, schema in schemas.items():
        call = _rules(written, written.open, {name: schema}, lark)
        head = lark.text(said.recipient + name + said.body)
        made.append(f"{head} {_run(written, (call, call), lark, written.begin, False)}")
    return f"({' | '.join(made)})"


def _rules(form: CallForm, opening: str, schemas: Mapping[str, Any], lark: Lark) -> str:
    """Adds rules for a call of each of these tools and returns the name of the rule for a call of any of them. opening:
    the text with which each call begins."""
    made = []
    for name, schema in schemas.items():
        parts = (lark.text(opening), form.notation.rule(name, schema, lark), lark.text(form.close))
        made.append(lark.rule(" ".join(part for part in parts if part)))
    return lark.rule(" | ".join(made))


def _after(text: str, mark: str) -> str:
    return text.partition(mark)[2] if text else ""


def _run(form: CallForm, calls: tuple[str, str], lark: Lark, begin: str, parallel: bool) -> str:
    """Returns a Lark rule for all calls of a turn, with the texts around them and between two of them. calls: the names
    of the rules of the first call and of each further call. begin: the text before the first call. parallel: True
    allows up to MOST_CALLS calls.

    The text after a call and the text between two calls may begin alike. This part is a text of its own: the matcher
    reads the longest text that may come, and does not go back."""
    first, other = calls
    head, last = begin + ("[" if form.listed else ""), ("]" if form.listed else "") + form.end
    alike = commonprefix((form.between, last)) if parallel else ""
    more = ""
    if parallel:
        again = (lark.text(form.between[len(alike) :]), other, lark.text(alike))
        more = f"({' '.join(filter(None, again))}){{0,{MOST_CALLS - 1}}}"
    return " ".join(filter(None, (lark.text(head), first, lark.text(alike), more, lark.text(last[len(alike) :]))))


def _grammar(start: str, lark: Lark) -> Grammar:
    return Grammar.lark("\n".join([f"start: {start}", *lark.rules]) + "\n")
