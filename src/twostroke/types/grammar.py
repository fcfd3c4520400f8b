"""What an answer must look like, and the machine that says which token may come next.

    SamplingParams(grammar=Grammar.json_schema({"type": "object", ...}))
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from twostroke.types.errors import InvalidRequest

MAX_SCHEMA_BYTES = 64 * 1024
MAX_REGEX_BYTES = 2 * 1024
MAX_LARK_BYTES = 64 * 1024
MAX_CHOICES = 4096
TOO_HEAVY = "The grammar became too heavy in the middle of the answer."
"""How the error of a completion begins that its own grammar has ended."""


class GrammarFault(ValueError):
    """A request's machine cannot go on: its limits are reached, or its library has failed."""


class GrammarKind(enum.StrEnum):
    """The language a grammar is written in."""

    JSON_OBJECT = "json_object"
    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    LARK = "lark"
    CHOICE = "choice"

    @property
    def words(self) -> str:
        """The kind's name in messages."""
        return _WORDS[self]


_WORDS = {
    GrammarKind.JSON_OBJECT: "JSON object",
    GrammarKind.JSON_SCHEMA: "JSON schema",
    GrammarKind.REGEX: "regular expression",
    GrammarKind.LARK: "grammar",
    GrammarKind.CHOICE: "list of choices",
}
_CAPS_BYTES = {
    GrammarKind.JSON_OBJECT: 0,
    GrammarKind.JSON_SCHEMA: MAX_SCHEMA_BYTES,
    GrammarKind.REGEX: MAX_REGEX_BYTES,
    GrammarKind.LARK: MAX_LARK_BYTES,
    GrammarKind.CHOICE: MAX_SCHEMA_BYTES,
}


@dataclass(frozen=True, slots=True)
class ThoughtFirst:
    """The marks around a thought that may stand before the text that a grammar describes.

    begun: the prompt has opened it, so that the answer begins within it. opening_id, closing_id: token ids of the
    marks, where they are special tokens. around: the rules of Lark for formats that write more around an answer than a
    thought. Their `start` has the answer's form in it as `answer_form`.
    """

    opening: str
    closing: str
    begun: bool = False
    opening_id: int | None = None
    closing_id: int | None = None
    around: str = ""


@dataclass(frozen=True, slots=True)
class Grammar:
    """Source text of one kind; make it with the class methods. Size is checked at once, the rest when it is compiled.

    thought: the marks around the thought, for a model that thinks before it answers. Raises InvalidRequest with param
    "grammar".
    """

    kind: GrammarKind
    text: str = ""
    thought: ThoughtFirst | None = None

    def __post_init__(self) -> None:
        size_bytes = len(self.text.encode("utf-8", errors="surrogatepass"))
        cap_bytes = _CAPS_BYTES[self.kind]
        if size_bytes > cap_bytes:
            raise InvalidRequest(
                f"The {self.kind.words} has {size_bytes:,} bytes; at most {cap_bytes:,} are read.", param="grammar"
            )
        if not self.text and self.kind is not GrammarKind.JSON_OBJECT:
            raise InvalidRequest(f"The {self.kind.words} is empty.", param="grammar")

    @classmethod
    def json_object(cls) -> Grammar:
        """Any JSON object."""
        return cls(GrammarKind.JSON_OBJECT)

    @classmethod
    def json_schema(cls, schema: str | bool | Mapping[str, Any]) -> Grammar:
        """JSON that fits a JSON Schema, given as an object or as its text."""
        return cls(GrammarKind.JSON_SCHEMA, schema if isinstance(schema, str) else _dumps(schema))

    @classmethod
    def regex(cls, pattern: str) -> Grammar:
        """Text that matches the pattern from its first to its last character. No look-around, no
        back-references; \\d means 0 to 9.
        """
        return cls(GrammarKind.REGEX, pattern)

    @classmethod
    def lark(cls, text: str) -> Grammar:
        """Text of a context-free grammar: llguidance's Lark, which begins at `start`, or llama.cpp's GBNF (`root`)."""
        return cls(GrammarKind.LARK, text)

    @classmethod
    def choice(cls, choices: Sequence[str]) -> Grammar:
        """Exactly one of these texts."""
        if len(choices) > MAX_CHOICES:
            raise InvalidRequest(f"{len(choices):,} choices; at most {MAX_CHOICES:,} are read.", param="grammar")
        if not choices or not all(isinstance(choice, str) and choice for choice in choices):
            raise InvalidRequest("choice needs texts that are not empty.", param="grammar")
        return cls(GrammarKind.CHOICE, _dumps(list(choices)))


class TokenMask(Protocol):
    """Which tokens one request may have next: a machine next to the request, moved on when a token is committed.

    It shares nothing that changes with another machine, limits included: what one request does is nothing to others.

    No method raises but `bits`, and a machine that has failed stays failed: the request ends, and nothing else.
    """

    @property
    def num_tokens(self) -> int:
        """Output tokens it has taken in."""

    @property
    def mask_s(self) -> float:
        """About how many seconds of a processor its masks take, each."""

    def feed(self, token_id: int) -> None:
        """Take in the next output token."""

    def rewind(self, num_tokens: int) -> None:
        """Go back to when it had taken in the first `num_tokens`."""

    def bits(self) -> bytes:
        """One bit a token id, the lowest bit of a byte first; 1 may come next. Raises GrammarFault where it failed."""


def _dumps(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest("The grammar is no JSON.", param="grammar", why=f"{error}.") from None
