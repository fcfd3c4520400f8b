"""Derives the format of calls from an unknown template. It renders words that no template contains; the text between
these words is the format.

    <tool>qz_first|{"qz_key": "qzvalue"}</tool>       open, name, middle, arguments, close

A derived format is a guess. It is used only where every check reads back what the template writes, at every cut.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from os.path import commonprefix

from msgspec import Struct, structs

from twostroke.text.talk.format import CallForm, Format, Notation, ThoughtMarks
from twostroke.text.talk.learn.probe import FIRST, IDS, NAME, OTHER, TEXT, THOUGHT, TemplateProbe, TurnCase
from twostroke.text.talk.learn.round_trip import checked, same_at_every_cut, without_end
from twostroke.text.talk.notations.named import NamedNotation
from twostroke.text.talk.notations.object import ObjectNotation
from twostroke.text.talk.notations.pythonic import PythonicNotation
from twostroke.text.talk.notations.tagged import TaggedNotation

KEY, VALUE, MORE = "qz_key", "qzvalue", "qz_number"
GIVEN = {KEY: VALUE}
TWO = TurnCase(((NAME, GIVEN), (OTHER, GIVEN)))
TWO_KEYS = TurnCase(((NAME, {KEY: VALUE, MORE: 7}),))
ANSWER, WITH_THOUGHT = TurnCase(content=TEXT), TurnCase(content=TEXT, thought=THOUGHT)
MOST_MARK = 200


class _Core(Struct, frozen=True):
    """A call within a rendered turn: text[start:end] is the name and the arguments in the syntax `notation`, without
    the marks that stand around calls."""

    start: int
    end: int
    notation: Notation


Find = Callable[[str, str], _Core | None]
"""A function that finds a call of the named tool in the text of a turn, in one syntax. Its inputs are the text and the
name."""


def derived(probe: TemplateProbe, ends: Sequence[str]) -> Format | None:
    """Returns a format that passes every check; None where none is found."""
    thought = thought_of(probe)
    turns = [_turn(probe, case, ends, thought) for case in (FIRST, TWO, TWO_KEYS)]
    if NAME not in turns[0] or VALUE not in turns[0]:
        return None
    for find in (_object, _named, _tagged_like(turns[2]), _pythonic):
        for form in _forms(find, turns[0], turns[1]):
            found = Format("derived", calls=(form,), thought=thought)
            result = checked(found, probe, [*ends, _tail(probe)], same_at_every_cut)
            if result.right and not result.wrong:
                note = f"derived from its template; {result.right} turns were read back at every cut"
                return structs.replace(found, note=note)
    return None


def thought_of(probe: TemplateProbe) -> ThoughtMarks | None:
    """Returns the marks that the template writes around a thought; None where it writes none."""
    before, found, after = (probe.turn(WITH_THOUGHT) or "").partition(THOUGHT)
    closing, answered, _ = after.partition(TEXT)
    if not found or not answered or not closing.strip() or len(closing) > MOST_MARK:
        return None
    opening = before if before.strip() else _opened(probe.prompt, closing)
    return ThoughtMarks(opening, closing) if opening.strip() and len(opening) <= MOST_MARK else None


def _opened(prompt: str, closing: str) -> str:
    """Returns the opening tag of a thought if the prompt ends with it, such as `<think>` for the closing tag
    `</think>`; "" otherwise."""
    tag = closing.strip().replace("/", "", 1)
    return tag if prompt.rstrip().endswith(tag) else ""


def _tail(probe: TemplateProbe) -> str:
    """Returns the text that the template writes after an answer, such as the token that ends a turn."""
    return (probe.turn(ANSWER) or "").partition(TEXT)[2].strip()


def _turn(probe: TemplateProbe, case: TurnCase, ends: Sequence[str], thought: ThoughtMarks | None) -> str:
    """Returns the rendered calls of a turn, without an empty thought in front and without the end of the turn."""
    turn = without_end(probe.turn(case) or "", [*ends, _tail(probe)])
    if thought is not None and thought.closing.strip() in turn.partition(NAME)[0]:
        return turn.partition(thought.closing.strip())[2].lstrip()
    return turn


def _forms(find: Find, one: str, two: str) -> Iterator[CallForm]:
    """Yields the possible forms of calls that explain two rendered turns. find: finds a call in one syntax. one: the
    turn with one call. two: the turn with two calls."""
    first = find(one, NAME)
    if first is None:
        return
    notation = first.notation
    before, after = one[: first.start], one[first.end :]
    second = find(two, OTHER) if OTHER in two else None
    again = find(two, NAME)
    if second is not None and again is not None:
        gap = two[again.end : second.start]
        opening = _common_end(before, gap)
        close = _common_beginning(after, gap[: len(gap) - len(opening)])
        between = gap[len(close) : len(gap) - len(opening)]
        begin, end = before[: len(before) - len(opening)], after[len(close) :]
        listed = begin.rstrip().endswith("[") and end.lstrip().startswith("]")
        if listed:
            begin, end = begin.rstrip()[:-1], end.lstrip()[1:]
        yield CallForm(notation, opening, close, between, begin, end, listed)
        return
    if before.rstrip().endswith("[") and after.lstrip().startswith("]"):
        yield CallForm(notation, begin=before.rstrip()[:-1], end=after.lstrip()[1:], between=", ", listed=True)
    yield CallForm(notation, open=before, close=after)


def _common_end(one: str, other: str) -> str:
    """Returns the text with which both texts end, without the part before its first white space or opening bracket. It
    is used to find the text, such as a tag, that stands before each call."""
    shared = commonprefix([one[::-1], other[::-1]])[::-1]
    found = re.search(r"[\s<\[{(]", shared)
    return shared[found.start() :] if found else shared


def _common_beginning(one: str, other: str) -> str:
    """Returns the text with which both texts begin, up to its last white space or closing bracket; "" without one. It
    is used to find the text, such as a tag, that stands after each call."""
    shared = commonprefix([one, other])
    return shared[: len(shared) - len(re.split(r"[\s>\])}]", shared)[-1])]


def _object(turn: str, name: str) -> _Core | None:
    """Finds a call of the tool `name` in a rendered turn: the smallest JSON object around the name that has the form of
    a call. Returns None where there is none."""
    place = turn.find(name)
    for start in reversed([at for at in range(max(0, place)) if turn[at] == "{"]):
        value, end = _json_at(turn, start)
        if isinstance(value, dict) and end > place:
            notation = _object_notation(value, name)
            if notation is not None:
                return _Core(start, end, notation)
    return None


def _object_notation(value: dict[str, object], name: str) -> ObjectNotation | None:
    if name in value:
        return ObjectNotation(keyed=True)
    names = [key for key, item in value.items() if item == name]
    given = [key for key, item in value.items() if item == GIVEN or _means(item, GIVEN)]
    if len(names) != 1 or len(given) != 1:
        return None
    ids, keys = [key for key, item in value.items() if item in IDS], list(value)
    first = bool(ids) and keys.index(ids[0]) < keys.index(names[0])
    textual = isinstance(value[given[0]], str)
    return ObjectNotation(names[0], given[0], ids[0] if ids else "", id_first=first, textual=textual)


def _named(turn: str, name: str) -> _Core | None:
    """Finds a call of the tool `name` in a rendered turn: the name as plain text, followed by a JSON object with the
    arguments."""
    place = turn.find(name)
    start = turn.find("{", place)
    if start < 0 or place < 0:
        return None
    value, end = _json_at(turn, start)
    middle = turn[place + len(name) : start]
    if value != GIVEN or not middle or len(middle) > MOST_MARK:
        return None
    for call_id in IDS:
        before, found, after = middle.partition(call_id)
        if found:
            return _Core(place, end, NamedNotation(after, id_open=before))
    return _Core(place, end, NamedNotation(middle))


def _tagged_like(two_keys: str) -> Find:
    """Returns a function that finds calls whose arguments are no JSON: each key and each value has text such as a tag
    around it. two_keys: a rendered turn of a call with two arguments, from which these texts are taken."""
    place, key, value = two_keys.find(NAME), two_keys.find(KEY), two_keys.find(VALUE)
    more = two_keys.find(MORE)
    if not 0 <= place < key < value < more:
        return lambda _turn, _name: None
    to_key, to_value = two_keys[place + len(NAME) : key], two_keys[key + len(KEY) : value]
    to_more = two_keys[value + len(VALUE) : more]
    pad = "\n" if to_value.endswith("\n") and to_more.startswith("\n") else ""
    to_value, to_more = to_value.removesuffix(pad), to_more.removeprefix(pad)
    key_open = _common_end(to_key, to_more)
    key_close, value_open = _two_tags(to_value)
    value_close = to_more[: len(to_more) - len(key_open)]
    notation = TaggedNotation(
        name_open="",
        name_close=to_key[: len(to_key) - len(key_open)],
        key_open=key_open,
        key_close=key_close,
        value_open=value_open,
        value_close=value_close,
        pad=pad,
    )

    def find(turn: str, name: str) -> _Core | None:
        start = turn.find(name)
        end = turn.find(value_close, turn.find(VALUE, start))
        tags = key_open.strip() and key_close.strip() and value_close.strip()
        return _Core(start, end + len(value_close), notation) if tags and 0 <= start < end else None

    return find


def _pythonic(turn: str, name: str) -> _Core | None:
    """Finds a call of the tool `name` in a rendered turn, in the form of a Python call with keyword arguments. Returns
    None where there is none."""
    found = re.search(rf"{name}\({KEY}=[\"']{VALUE}[\"']\)", turn)
    return None if found is None else _Core(found.start(), found.end(), PythonicNotation())


def _json_at(text: str, start: int) -> tuple[object, int]:
    try:
        value, end = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return None, 0
    return value, end


def _means(item: object, wanted: object) -> bool:
    try:
        return isinstance(item, str) and json.loads(item) == wanted
    except (ValueError, RecursionError):
        return False


def _two_tags(text: str) -> tuple[str, str]:
    """Divides the text between a key and its value into the tag that closes the key and the tag that opens the value.
    """
    found = re.match(r"(</[^>]*>\s*)(.*)$", text, re.DOTALL)
    return (found[1], found[2]) if found else (text, "")
