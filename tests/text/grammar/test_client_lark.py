"""Grammars of Lark that clients send for the text of a tool. Each becomes one pattern with the same texts."""

from __future__ import annotations

import re

import pytest

from twostroke.text.grammar.client.one_pattern import OnePattern, one_pattern
from twostroke.text.grammar.client.rules import COMMON, MOST_DEPTH, NotRead

ROOM = 8192
EDIT = r"""
start: begin hunk+ end   // as agents send it
begin: "*** Begin Edit" LF
end: "*** End Edit" LF?
hunk: add | remove
add: "*** Add: " path LF added+
remove: "*** Remove: " path LF
path: /(.+)/
added: "+" /(.*)/ LF -> line
%import common.LF
"""
SUMS = """
?start: sum
?sum: term | sum ("+" | "-") term -> more
?term: NUMBER | "(" sum ")"
%import common.NUMBER
%ignore " "
"""
WORDS = """
start: (WORD
    | QUOTED) ("," item)* [";"]
item: WORD | QUOTED
WORD.2: LETTER (LETTER | DIGIT | "_")~0..3
QUOTED: "'" /[^'\\n]*/ "'" | "\\"" "a".."c"{2,3} "\\x22"
%import common (LETTER, DIGIT)
"""
LISTS = 'start: item | start ";" item\nitem: "x" | "y" item'
CASES: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "edit": (
        EDIT,
        (
            "*** Begin Edit\n*** Add: a.py\n+x < 1\n+\n*** Remove: b\n*** End Edit",
            "*** Begin Edit\n*** Remove: é\n*** End Edit\n",
        ),
        ("*** Begin Edit\n*** End Edit", "*** Begin Edit\n*** Add: a\nx\n*** End Edit", "x*** Begin Edit"),
    ),
    "sums": (SUMS, ("1", "1 + 2 - 3.5", " ( 1+2 ) - 4 ", "1+(2+3)"), ("", "1+", "(1", "1 2", "1+ +2")),
    "words": (WORDS, ("ab1_", "a,b,'x y';", "'',\"abc\""), ("1a", "abcde", "a;b", '"abcd"', "a,")),
    "lists": (LISTS, ("x", "x;yyx;x", "yx"), ("y", "x;", ";x", "xy")),
    "folded": ('start: "Select"i /a.b/is', ("SELECTA\nB", "selectaxb"), ("selectab",)),
    "none": ('start: "a"?', ("", "a"), ("aa",)),
}


def fits(made: OnePattern, text: str) -> bool:
    return re.fullmatch(made.pattern, text) is not None


@pytest.mark.parametrize("name", CASES)
def test_the_pattern_has_the_texts_of_the_grammar(name: str) -> None:
    definition, right, wrong = CASES[name]
    made = one_pattern(definition, ROOM)
    assert [text for text in right if not fits(made, text)] == []
    assert [text for text in wrong if fits(made, text)] == []


def test_a_rule_within_itself_is_unfolded_as_deep_as_there_is_room() -> None:
    definition = 'start: "x" | "(" start ")"'
    made = one_pattern(definition, ROOM)
    assert made.depth is not None and made.depth >= 5
    assert fits(made, "(" * 5 + "x" + ")" * 5) and not fits(made, "(" * 50 + "x" + ")" * 50)
    small = one_pattern(definition, 60)
    assert small.depth is not None and small.depth < made.depth and fits(small, "(x)") and len(small.pattern) <= 60


@pytest.mark.parametrize("name", ["edit", "words", "lists", "none"])
def test_a_rule_that_goes_on_with_itself_at_an_end_needs_no_bound(name: str) -> None:
    assert one_pattern(CASES[name][0], ROOM).depth is None


@pytest.mark.parametrize("name", COMMON)
def test_a_common_terminal_is_imported_under_any_name(name: str) -> None:
    made = one_pattern(f"start: own\n%import common.{name} -> own", ROOM)
    assert made.pattern in (COMMON[name], f"(?:{COMMON[name]})")


REFUSED = {
    "": "start",
    'start: "a"~' + "9" * 5000: "expected",
    'start "a"': "colon",
    "start: nowhere": "nowhere",
    "start: start": "ends",
    'start: "a" start': "ends",
    "start: <|im_end|>": "<|im_end|>",
    "start: %json {}": "%json",
    "%import common.XYZ\nstart: XYZ": "XYZ",
    "%import .other.A\nstart: A": "expected",
    '%llguidance {}\nstart: "a"': "%llguidance",
    "start: /a/l": "flags",
    'start: ("a"': "bracket",
    'start: "ab".."c"': "range",
    "start: " + "(" * 200 + '"a"' + ")" * 200: "deeply",
    'start: "' + "a" * 9000 + '"': "long",
    'start: "a"{2': "bracket",
    "start: [": "bracket",
}


@pytest.mark.parametrize("definition", REFUSED, ids=lambda text: text[:24])
def test_what_is_not_read_is_said(definition: str) -> None:
    with pytest.raises(NotRead, match=re.escape(REFUSED[definition])):
        one_pattern(definition, ROOM)


def test_a_grammar_that_doubles_with_each_rule_ends_soon() -> None:
    """The number of steps is bounded, not the time."""
    lines = [f"r{number}: r{number + 1} r{number + 1}" for number in range(40)]
    definition = "\n".join(["start: r0", *lines, 'r40: ""'])
    with pytest.raises(NotRead, match="long"):
        one_pattern(definition, ROOM)
    assert MOST_DEPTH < 100
