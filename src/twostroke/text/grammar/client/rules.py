r"""Reads a grammar in Lark, which a client sends for the text of a tool, into rules. A grammar with parts outside plain
Lark raises NotRead.

    read_rules('start: item ("," item)*\nitem: /[a-z]+/')["start"]
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from msgspec import Struct

_TOKEN = re.compile(
    r"""(?P<skip>[ \t\r]+|(?:\#|//)[^\n]*)
    |(?P<string>"(?:\\.|[^"\\\n])*"i?)
    |(?P<regex>/(?:\\.|[^/\\\n])+/[imslux]*)
    |(?P<directive>%\w+)
    |(?P<name>[!?]{0,2}_{0,2}[A-Za-z]\w*(?:\.\d+)?)
    |(?P<number>\d{1,6})
    |(?P<mark>\.\.|->|[:|()\[\]{}*+?~,.]|\n)""",
    re.VERBOSE,
)
_HEX = re.compile(r"(?<!\\)((?:\\\\)*)\\x([0-9A-Fa-f]{2})")
_ONE = re.compile(r"[^\\\[\](){}|*+?^$]|\\.|\[\^?[^\[\]\\]+\]|\[\^?\\[nrt]\]")
"""Matches a regular expression that is one character or one character class."""
_CODES = {" ": " ", "/": "/", "\n": r"\n", "\t": r"\t", "\r": r"\r"} | {
    chr(code): f"\\x{code:02x}" for code in (*range(9), 11, 12, *range(14, 32), 127)
}
MOST_DEPTH = 40
_NUMBER = r"[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?"
_FLOAT = r"[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
COMMON = {
    "DIGIT": "[0-9]",
    "HEXDIGIT": "[0-9A-Fa-f]",
    "INT": "[0-9]+",
    "SIGNED_INT": "[+-]?[0-9]+",
    "DECIMAL": r"[0-9]+\.[0-9]*|\.[0-9]+",
    "_EXP": "[eE][+-]?[0-9]+",
    "FLOAT": _FLOAT,
    "SIGNED_FLOAT": f"[+-]?(?:{_FLOAT})",
    "NUMBER": _NUMBER,
    "SIGNED_NUMBER": f"[+-]?(?:{_NUMBER})",
    "ESCAPED_STRING": r'"(?:[^"\\\n]|\\[^\n])*"',
    "LCASE_LETTER": "[a-z]",
    "UCASE_LETTER": "[A-Z]",
    "LETTER": "[A-Za-z]",
    "WORD": "[A-Za-z]+",
    "CNAME": "[A-Za-z_][A-Za-z0-9_]*",
    "WS_INLINE": r"[ \t]+",
    "WS": r"[ \t\f\r\n]+",
    "CR": r"\r",
    "LF": r"\n",
    "NEWLINE": r"(?:\r?\n)+",
    "SH_COMMENT": r"\#[^\n]*",
    "CPP_COMMENT": r"//[^\n]*",
    "C_COMMENT": r"/\*(?:[^*]|\*+[^*/])*\*+/",
    "SQL_COMMENT": r"--[^\n]*",
}
"""Terminals that a grammar may import, as Lark's own library describes them."""


class NotRead(ValueError):
    """The grammar has a part that this reader does not read; the error's text names the part."""


class LarkText(Struct, frozen=True):
    """A regular expression. whole: True where a quantifier after the expression applies to the whole expression."""

    pattern: str
    whole: bool = True


class LarkName(Struct, frozen=True):
    """A reference to a rule or terminal."""

    name: str


class LarkRow(Struct, frozen=True):
    """Several parts, one after the other."""

    parts: tuple[LarkNode, ...]


class LarkChoice(Struct, frozen=True):
    """A choice between several parts."""

    parts: tuple[LarkNode, ...]


class LarkTimes(Struct, frozen=True):
    """A repeated part. least, most: the number of repetitions; most is None for no upper bound."""

    part: LarkNode
    least: int
    most: int | None


LarkNode = LarkText | LarkName | LarkRow | LarkChoice | LarkTimes


class LarkRules(Struct):
    """The rules of a Lark grammar. rules: the rules and terminals by name. ignored: the nodes that may stand between
    terminals."""

    rules: dict[str, LarkNode]
    ignored: list[LarkNode]


def is_terminal(name: str) -> bool:
    """Returns True for the name of a terminal. The parts of a terminal follow each other with nothing between."""
    return name.lstrip("_")[:1].isupper()


def read_rules(definition: str) -> LarkRules:
    """Reads the rules of a grammar. Raises NotRead."""
    return _Reader(definition).read()


class _Reader:
    def __init__(self, definition: str) -> None:
        self._tokens = _tokens(definition)
        self._at = self._depth = 0
        self._made = LarkRules({}, [])

    def read(self) -> LarkRules:
        while self._kind != "end":
            if self._text == "\n":
                self._at += 1
            elif self._kind == "directive":
                self._directive()
            else:
                self._rule()
        return self._made

    @property
    def _kind(self) -> str:
        return self._tokens[self._at][0]

    @property
    def _text(self) -> str:
        return self._tokens[self._at][1]

    def _take(self, *texts: str) -> bool:
        found = self._kind == "mark" and self._text in texts
        self._at += found
        return found

    def _next(self, kind: str) -> str:
        if self._kind != kind:
            raise NotRead(f"{self._text.strip() or 'its end'!r} stands where a {kind} is expected")
        self._at += 1
        return self._tokens[self._at - 1][1]

    def _directive(self) -> None:
        word = self._next("directive")
        if word == "%ignore":
            self._made.ignored.append(self._choices())
        elif word == "%import" and self._next("name") == "common":
            self._import()
        else:
            raise NotRead(f"{word} is not read")

    def _import(self) -> None:
        if self._take("("):
            while not self._take(")"):
                self._imported()
                self._take(",")
        else:
            self._take(".")
            self._imported()

    def _imported(self) -> None:
        name = self._next("name")
        if name not in COMMON:
            raise NotRead(f"common.{name} is not known")
        own = self._next("name") if self._take("->") else name
        self._made.rules[own] = LarkText(_grouped(COMMON[name]))

    def _rule(self) -> None:
        name = self._next("name").lstrip("!?").partition(".")[0]
        if not self._take(":"):
            raise NotRead(f"{self._text.strip()!r} follows the name {name!r}, where a colon is expected")
        self._made.rules[name] = self._choices()

    def _choices(self) -> LarkNode:
        """Reads alternatives up to the end of the rule or of a bracket."""
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise NotRead("its brackets are nested too deeply")
        made = [self._sequence()]
        while self._goes_on():
            made.append(self._sequence())
        self._depth -= 1
        return made[0] if len(made) == 1 else LarkChoice(tuple(made))

    def _goes_on(self) -> bool:
        """Takes a `|`, which may stand on the next line, before a further alternative. Returns False where no `|` comes
        next."""
        place = self._at
        while self._text == "\n":
            self._at += 1
        if self._take("|"):
            return True
        if self._depth == 1:
            self._at = place
        return False

    def _sequence(self) -> LarkNode:
        parts: list[LarkNode] = []
        while True:
            if self._depth > 1:
                while self._text == "\n":
                    self._at += 1
            part = self._atom()
            if part is None:
                break
            parts.append(self._quantified(part))
        if self._take("->"):
            self._next("name")
        return parts[0] if len(parts) == 1 else LarkRow(tuple(parts))

    def _atom(self) -> LarkNode | None:
        kind, text = self._kind, self._text
        if kind == "name":
            self._at += 1
            return LarkName(text)
        if kind == "regex":
            self._at += 1
            return LarkText(_flagged(text))
        if kind == "string":
            self._at += 1
            return self._string(text)
        if self._take("("):
            return self._closed(")")
        if self._take("["):
            return LarkTimes(self._closed("]"), 0, 1)
        return None

    def _closed(self, bracket: str) -> LarkNode:
        made = self._choices()
        if not self._take(bracket):
            raise NotRead(f"a bracket is not closed by {bracket}")
        return made

    def _string(self, text: str) -> LarkNode:
        value = _decoded(text.removesuffix("i"))
        if not self._take(".."):
            return LarkText(f"(?i:{literal(value)})" if text.endswith("i") else literal(value), whole=len(value) == 1)
        last = _decoded(self._next("string"))
        if len(value) != 1 or len(last) != 1 or value > last:
            raise NotRead(f"the range from {value!r} to {last!r} is not a range of characters")
        return LarkText(f"[{literal(value)}-{literal(last)}]")

    def _quantified(self, part: LarkNode) -> LarkNode:
        while True:
            if self._take("?"):
                part = LarkTimes(part, 0, 1)
            elif self._take("*"):
                part = LarkTimes(part, 0, None)
            elif self._take("+"):
                part = LarkTimes(part, 1, None)
            elif self._take("~"):
                least = int(self._next("number"))
                part = LarkTimes(part, least, int(self._next("number")) if self._take("..") else least)
            elif self._take("{"):
                part = self._counted(part)
            else:
                return part

    def _counted(self, part: LarkNode) -> LarkNode:
        least = int(self._next("number")) if self._kind == "number" else 0
        most: int | None = least
        if self._take(","):
            most = int(self._next("number")) if self._kind == "number" else None
        if not self._take("}"):
            raise NotRead("a bracket is not closed by }")
        return LarkTimes(part, least, most)


def _tokens(definition: str) -> Sequence[tuple[str, str]]:
    made, place = list[tuple[str, str]](), 0
    while place < len(definition):
        found = _TOKEN.match(definition, place)
        if found is None:
            raise NotRead(f"{definition[place : place + 20]!r} is not read")
        place = found.end()
        kind = found.lastgroup or ""
        if kind != "skip":
            made.append((kind, found[0]))
    return [*made, ("end", "")]


def _flagged(text: str) -> str:
    body, _, flags = text[1:].rpartition("/")
    kept = "".join(flag for flag in flags if flag in "ims")
    if set(flags) - set("imsu"):
        raise NotRead(f"the flags {flags} of a regular expression are not read")
    body = body.replace("\\/", "/")
    return f"(?{kept}:{body})" if kept else _grouped(body)


def _grouped(pattern: str) -> str:
    return pattern if _ONE.fullmatch(pattern) else f"(?:{pattern})"


def literal(text: str) -> str:
    """Returns a regular expression that matches exactly this text. Control characters are written as escapes."""
    return "".join(_CODES.get(each, re.escape(each)) for each in text)


def _decoded(text: str) -> str:
    try:
        return str(json.loads(_HEX.sub(r"\1\\u00\2", text)))
    except ValueError:
        raise NotRead(f"the text {text} has an escape that is not read") from None
