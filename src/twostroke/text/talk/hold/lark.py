"""Makes grammars of calls in llguidance's Lark, from literal texts, special tokens and JSON schemas."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from twostroke.text.grammar.client.rules import literal
from twostroke.text.grammar.guard_child import FORM

SpecialId = Callable[[str], int | None]
"""Returns the id of a text that is one special token of the vocabulary; None for text that is written as text."""
_ANY = r"(.|\n)*"
ANYTHING, NOTHING = f"/{_ANY}/", '""'

WHOLE = ("^(?:", ")$")
"""The beginning and the end of a regular expression that must match the whole text."""
_SLASH = re.compile(r"\\.|/|\n", re.DOTALL)


def _escaped(found: re.Match[str]) -> str:
    return {"/": r"\/", "\n": r"\n", "\\\n": r"\n"}.get(found[0], found[0])


Pair = Callable[[str, Mapping[str, Any], "Lark"], str]
"""A function that returns the body of a Lark rule for one argument of a call. Its inputs are the key, the schema of the
value, and the object that collects the rules. The key "" stands for any name."""
ANY_KEY = "/[A-Za-z_][A-Za-z0-9_]{0,63}/"


class Lark:
    """Collects the rules of one grammar in llguidance's Lark, and names them. marks: texts that the grammar writes as
    special tokens where the vocabulary has them. prefix: the beginning of the rules' names."""

    def __init__(self, marks: Iterable[str], special_id: SpecialId, prefix: str = "part") -> None:
        self._prefix = prefix
        found = {mark: special_id(mark) for mark in marks}
        self._tokens = {mark: token_id for mark, token_id in found.items() if token_id is not None}
        self._order = sorted(self._tokens, key=lambda mark: (-len(mark), mark))
        self.rules: list[str] = []

    def text(self, text: str) -> str:
        """Returns an expression for the body of a rule that matches exactly this text; "" for an empty text. Special
        tokens among the marks are matched as tokens."""
        for mark in self._order:
            if mark in text:
                before, _, after = text.partition(mark)
                parts = (self.text(before), f"<[{self._tokens[mark]}]>", self.text(after))
                return " ".join(part for part in parts if part)
        return quoted(text) if text else ""

    def is_token(self, text: str) -> bool:
        """True where the whole text is one special token."""
        return text in self._tokens

    def json(self, schema: Mapping[str, Any]) -> str:
        """Returns a rule for JSON of this schema."""
        return self.rule(f"%json {json.dumps({**schema, 'x-guidance': FORM})}")

    def pairs(self, schema: Mapping[str, Any], pair: Pair, between: str) -> str:
        """Returns a rule for the arguments of a call, in the order of the schema's properties: each required one, and
        any of the optional ones. pair: makes the rule of one argument. between: the text between two arguments."""
        properties = schema.get("properties")
        if not isinstance(properties, dict) or not properties:
            return "" if isinstance(properties, dict) else self._any_pairs(pair, between)
        required = schema.get("required") or ()
        shared = {name: schema[name] for name in ("$defs", "definitions") if name in schema}
        gap = self.text(between)
        first, rest = '""', '""'
        for key, own in reversed(properties.items()):
            made = self.rule(pair(key, {**shared, **own} if isinstance(own, dict) else {}, self))
            if key in required:
                first, rest = f"{made} {rest}", f"{gap} {made} {rest}"
            else:
                first, rest = f"({made} {rest} | {first})", f"({gap} {made})? {rest}"
            first, rest = self.rule(first), self.rule(rest)
        return first

    def _any_pairs(self, pair: Pair, between: str) -> str:
        made = pair("", {}, self)
        return f"({made} ({self.text(between)} {made})*)?"

    def times(self, item: str, between: str, schema: Mapping[str, Any]) -> str:
        """Returns a rule for a list of items, as many as minItems and maxItems of the schema allow. item: the rule of
        one item. between: the text between two items."""
        least, most = schema.get("minItems") or 0, schema.get("maxItems")
        if most == 0:
            return ""
        last = "" if most is None else max(0, most - 1)
        more = f"{item} ({self.text(between)} {item}){{{max(0, least - 1)},{last}}}"
        return more if least else f"({more})?"

    def text_before(self, schema: Mapping[str, Any], ending: str, wraps: tuple[str, str] = ("", "")) -> str:
        """Returns a rule for an unquoted text and the `ending` after it; the text stops at the first place where
        `ending` follows. wraps: marks that may stand around the text.

        A pattern of the form `^(?:...)$`, which must match the whole text, is enforced. A pattern for a part of the
        text is not enforced, because the text around that part could contain the ending.
        """
        pattern = schema.get("pattern")
        whole = isinstance(pattern, str) and pattern.startswith(WHOLE[0]) and pattern.endswith(WHOLE[1])
        inside = f"(?:{pattern[len(WHOLE[0]) : -len(WHOLE[1])]})" if whole and isinstance(pattern, str) else _ANY
        before, token, after = self._cut(ending)
        if token:  # no text contains `token`, so the text reaches up to `before`
            return f"{self.rule(_regex(inside + literal(before)))} {self.text(token + after)}"
        plain = f"{_regex(inside)} {quoted(ending)}"
        if not wraps[0]:
            return self.rule(plain, "[lazy]")
        opening, closing = wraps
        unwrapped = f"({plain}) & ~{_regex(literal(opening) + _ANY)}"
        return self.rule(f"{quoted(opening)} {_regex(inside)} {quoted(closing + ending)} | {unwrapped}", "[lazy]")

    def rule(self, body: str, attributes: str = "") -> str:
        """Adds a rule with this body and returns its name."""
        name = f"{self._prefix}_{len(self.rules)}"
        self.rules.append(f"{name}{attributes}: {body}")
        return name

    def up_to(self, mark: str) -> str:
        """Returns a rule for any text up to and including the first `mark`."""
        return self.text_before({}, mark)

    def _cut(self, text: str) -> tuple[str, str, str]:
        """Returns the text before the first special token, the token, and the text after it; the token is empty where
        there is none."""
        places = [(text.index(mark), -len(mark), mark) for mark in self._order if mark in text]
        if not places:
            return text, "", ""
        place, _, token = min(places)
        return text[:place], token, text[place + len(token) :]


def _regex(pattern: str) -> str:
    return f"/{re.sub(_SLASH, _escaped, pattern)}/"


def quoted(text: str) -> str:
    """Returns the text as a string of Lark."""
    return json.dumps(text, ensure_ascii=False)
