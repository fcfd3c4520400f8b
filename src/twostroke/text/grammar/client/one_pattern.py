"""A grammar of Lark as one regular expression, which a JSON string or a text between tags can be held to.

    one_pattern('start: "a" b\\nb: /x+/ | "(" b ")"', 200)

A grammar that refers to itself is unfolded, as deep as the length allows. Every text of the pattern fits the grammar.
Texts that are nested deeper fit the grammar and not the pattern.
"""

from __future__ import annotations

import re

from msgspec import Struct

from twostroke.text.grammar.client.rules import (
    LarkChoice,
    LarkName,
    LarkNode,
    LarkRow,
    LarkRules,
    LarkText,
    LarkTimes,
    NotRead,
    is_terminal,
    read_rules,
)

MOST_UNFOLDED = 12
_GROUP = re.compile(r"\(\?:(?:[^()\[\]\\]|\\.|\[\^?[^\[\]\\]+\])*\)|[^()\[\]\\|]|\\.|\[\^?[^\[\]\\]+\]")
"""Matches a pattern that needs no brackets before it is repeated: one group without other groups inside, or one
character."""
_MOST_STEPS = 5_000


class OnePattern(Struct, frozen=True):
    """A Lark grammar as one regular expression. pattern: the expression. depth: how often a rule may be nested within
    itself in texts that the expression matches; None where no rule refers to itself."""

    pattern: str
    depth: int | None = None


def one_pattern(definition: str, most_bytes: int) -> OnePattern:
    """Returns the grammar as one regular expression. Raises NotRead where the text is not a grammar, or where no
    expression of at most `most_bytes` matches it."""
    rules = _without_own_ends(read_rules(definition))
    if "start" not in rules.rules:
        raise NotRead("it has no rule named start")
    best: OnePattern | None = None
    for depth in range(MOST_UNFOLDED + 1):
        unfolding = _Unfolding(rules, depth, most_bytes)
        made = unfolding.start()
        if made is not None and len(made.encode()) <= most_bytes:
            best = OnePattern(made, depth if unfolding.cut else None)
        if not unfolding.cut or unfolding.too_long:
            break
    if best is None:
        raise NotRead("it is too long, or it has no text that ends")
    return best


class _Unfolding:
    """Makes one regular expression of a Lark grammar by replacing the names of rules by what they stand for. A rule is
    replaced within itself at most `depth` times. Methods return None for a part that matches no text without deeper
    nesting. cut: True where a rule was nested deeper and was left out."""

    def __init__(self, rules: LarkRules, depth: int, most_bytes: int) -> None:
        self._rules, self._depth, self._most = rules.rules, depth, most_bytes
        self._within: dict[str, int] = {}
        self._steps = 0
        self.cut = self.too_long = False
        ignored = [made for each in rules.ignored if (made := self._made(each, "")) is not None]
        self._gap = f"{_in_brackets('|'.join(ignored))}*" if ignored else ""

    def start(self) -> str | None:
        made = self._made(LarkName("start"), self._gap)
        return None if made is None else made + self._gap

    def _made(self, node: LarkNode, gap: str) -> str | None:
        """Returns the regular expression of a part of the grammar. Returns None where the part matches no text without
        deeper recursion than allowed, or where the expression becomes too long. gap: the expression of ignored text,
        such as white space, which is put before each terminal."""
        self._steps += 1
        if self.too_long or self._steps > _MOST_STEPS:
            self.too_long = True
            return None
        if isinstance(node, LarkText):
            made: str | None = gap + node.pattern
        elif isinstance(node, LarkName):
            made = self._named(node, gap)
        elif isinstance(node, LarkRow):
            made = self._row(node, gap)
        elif isinstance(node, LarkChoice):
            made = self._choice(node, gap)
        else:
            made = self._times(node, gap)
        self.too_long = self.too_long or (made is not None and len(made) > self._most)
        return None if self.too_long else made

    def _named(self, node: LarkName, gap: str) -> str | None:
        name = node.name
        if name not in self._rules:
            raise NotRead(f"it has no rule named {name}")
        inside = self._within.get(name, 0)
        if inside > self._depth:
            self.cut = True
            return None
        self._within[name] = inside + 1
        if gap and is_terminal(name):
            made = self._made(self._rules[name], "")
            made = None if made is None else gap + _in_brackets(made)
        else:
            made = self._made(self._rules[name], gap)
        self._within[name] = inside
        return made

    def _row(self, node: LarkRow, gap: str) -> str | None:
        parts = []
        for each in node.parts:
            made = self._made(each, gap)
            if made is None:
                return None
            parts.append(made)
        return "".join(parts)

    def _choice(self, node: LarkChoice, gap: str) -> str | None:
        parts = [made for each in node.parts if (made := self._made(each, gap)) is not None]
        parts = list(dict.fromkeys(parts))
        return _in_brackets("|".join(parts)) if parts else None

    def _times(self, node: LarkTimes, gap: str) -> str | None:
        made = self._made(node.part, gap)
        if made is None:
            return "" if node.least == 0 else None
        whole = isinstance(node.part, LarkText) and node.part.whole and not gap
        return (made if whole else _in_brackets(made)) + _often(node.least, node.most)


def _in_brackets(pattern: str) -> str:
    return pattern if _GROUP.fullmatch(pattern) else f"(?:{pattern})"


def _often(least: int, most: int | None) -> str:
    short = {(0, None): "*", (1, None): "+", (0, 1): "?"}
    if (least, most) in short:
        return short[least, most]
    return f"{{{least}}}" if most == least else f"{{{least},{'' if most is None else most}}}"


def _without_own_ends(rules: LarkRules) -> LarkRules:
    """Returns the rules without recursion at their beginning or end: such a rule repeats instead, so a: b | a "," b
    becomes b ("," b)*."""
    made = {name: _repeating(name, node) for name, node in rules.rules.items()}
    return LarkRules(made, rules.ignored)


def _repeating(name: str, node: LarkNode) -> LarkNode:
    if not isinstance(node, LarkChoice):
        return node
    for place in (0, -1):
        own = [each for each in node.parts if isinstance(each, LarkRow) and each.parts[place:][:1] == (LarkName(name),)]
        others = tuple(each for each in node.parts if each not in own)
        rest = [each.parts[1:] if place == 0 else each.parts[:-1] for each in own if isinstance(each, LarkRow)]
        if own and others and all(rest) and not any(LarkName(name) in each for each in rest):
            again = LarkTimes(LarkChoice(tuple(LarkRow(each) for each in rest)), 0, None)
            first = LarkChoice(others)
            return LarkRow((first, again) if place == 0 else (again, first))
    return node
