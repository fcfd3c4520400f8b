"""Grammars of calls in llguidance's Lark: texts, tokens and JSON of a schema as parts of a rule."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from twostroke.text.grammar.guard_child import FORM

SpecialId = Callable[[str], int | None]
"""The id of a text that is one special token of the vocabulary, None for text that is written as text."""
ANYTHING, NOTHING = r"/(.|\n)*/", '""'

WHOLE = ("^(?:", ")$")
"""Around a pattern that is one of the whole text."""
_SLASH = re.compile(r"\\.|/|\n", re.DOTALL)


def _escaped(found: re.Match[str]) -> str:
    return {"/": r"\/", "\n": r"\n"}.get(found[0], found[0])


Pair = Callable[[str, Mapping[str, Any], "Lark"], str]
"""The body of a rule for one argument: its key, its schema. An empty key stands for any name."""
ANY_KEY = "/[A-Za-z_][A-Za-z0-9_]{0,63}/"


class Lark:
    """Rules with names of their own. marks: texts that may be special tokens. prefix: of the rules' names."""

    def __init__(self, marks: Iterable[str], special_id: SpecialId, prefix: str = "part") -> None:
        self._prefix = prefix
        found = {mark: special_id(mark) for mark in marks}
        self._tokens = {mark: token_id for mark, token_id in found.items() if token_id is not None}
        self._order = sorted(self._tokens, key=lambda mark: (-len(mark), mark))
        self.rules: list[str] = []

    def text(self, text: str) -> str:
        """Literal text, "" for none; marks that are special tokens become tokens."""
        for mark in self._order:
            if mark in text:
                before, _, after = text.partition(mark)
                parts = (self.text(before), f"<[{self._tokens[mark]}]>", self.text(after))
                return " ".join(part for part in parts if part)
        return quoted(text) if text else ""

    def is_token(self, text: str) -> bool:
        """True where the whole text is one special token."""
        return text in self._tokens

    def has_token(self, text: str) -> bool:
        """True where a special token stands in the text: no text of the model can hold it."""
        return any(mark in text for mark in self._order)

    def json(self, schema: Mapping[str, Any]) -> str:
        """A rule for JSON of this schema."""
        return self.rule(f"%json {json.dumps({**schema, 'x-guidance': FORM})}")

    def pairs(self, schema: Mapping[str, Any], pair: Pair, between: str) -> str:
        """The arguments one by one, in the schema's order: those that are required, and any of the others."""
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
        """As many items as the schema of a list allows."""
        least, most = schema.get("minItems") or 0, schema.get("maxItems")
        if most == 0:
            return ""
        last = "" if most is None else max(0, most - 1)
        more = f"{item} ({self.text(between)} {item}){{{max(0, least - 1)},{last}}}"
        return more if least else f"({more})?"

    def whole_text(self, schema: Mapping[str, Any]) -> str:
        """A rule for a text that stands as it is, where the schema has a pattern of the whole text; else "".

        A pattern of a part of the text is left to the model: what lies around it could hold the end of the text.
        """
        pattern = schema.get("pattern")
        if not isinstance(pattern, str) or not (pattern.startswith(WHOLE[0]) and pattern.endswith(WHOLE[1])):
            return ""
        return self.rule(f"/{re.sub(_SLASH, _escaped, pattern[len(WHOLE[0]) : -len(WHOLE[1])])}/")

    def rule(self, body: str, attributes: str = "") -> str:
        """The name of a rule with this body."""
        name = f"{self._prefix}_{len(self.rules)}"
        self.rules.append(f"{name}{attributes}: {body}")
        return name

    def up_to(self, mark: str) -> str:
        """Any text, and the first place of `mark` after it."""
        if self.has_token(mark):
            return f"{self.rule(ANYTHING)} {self.text(mark)}"
        return self.rule(f"{ANYTHING} {self.text(mark)}", "[lazy]")


def quoted(text: str) -> str:
    """The text as a string of Lark."""
    return json.dumps(text, ensure_ascii=False)
