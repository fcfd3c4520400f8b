"""The form that an answer must have, and the machine that decides which tokens may come next.

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
"""The first words of the error of a completion that was ended because its grammar took too much time or memory."""


class GrammarFault(ValueError):
    """The machine of a request's grammar cannot go on: its limits are reached, or its library has failed."""


class GrammarKind(enum.StrEnum):
    """The language in which a grammar is written."""

    JSON_OBJECT = "json_object"
    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    LARK = "lark"
    CHOICE = "choice"

    @property
    def words(self) -> str:
        """The name of this kind in messages."""
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

    begun: True where the prompt has opened the thought, so that the answer begins within it. opening_id, closing_id:
    token ids of the marks, where they are special tokens. around: the rules of Lark for formats that write more around
    an answer than a thought. The `start` of these rules refers to the answer's form as `answer_form`.
    """

    opening: str
    closing: str
    begun: bool = False
    opening_id: int | None = None
    closing_id: int | None = None
    around: str = ""


@dataclass(frozen=True, slots=True)
class Grammar:
    """The source text of a grammar of one kind; make it with the class methods. Its size is checked at once, and
    everything else when it is compiled.

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
        """Returns a grammar of any JSON object."""
        return cls(GrammarKind.JSON_OBJECT)

    @classmethod
    def json_schema(cls, schema: str | bool | Mapping[str, Any]) -> Grammar:
        """Returns a grammar of JSON that fits a JSON Schema. schema: the schema as an object or as its text."""
        return cls(GrammarKind.JSON_SCHEMA, schema if isinstance(schema, str) else _dumps(schema))

    @classmethod
    def regex(cls, pattern: str) -> Grammar:
        r"""Returns a grammar of text that matches the pattern from its first to its last character. The pattern has no
        look-around and no back-references; \d means 0 to 9."""
        return cls(GrammarKind.REGEX, pattern)

    @classmethod
    def lark(cls, text: str) -> Grammar:
        """Returns a context-free grammar. text: llguidance's Lark, which begins at `start`, or llama.cpp's GBNF, which
        begins at `root`."""
        return cls(GrammarKind.LARK, text)

    @classmethod
    def choice(cls, choices: Sequence[str]) -> Grammar:
        """Returns a grammar of exactly one of the texts in `choices`."""
        if len(choices) > MAX_CHOICES:
            raise InvalidRequest(f"{len(choices):,} choices; at most {MAX_CHOICES:,} are read.", param="grammar")
        if not choices or not all(isinstance(choice, str) and choice for choice in choices):
            raise InvalidRequest("choice needs texts that are not empty.", param="grammar")
        return cls(GrammarKind.CHOICE, _dumps(list(choices)))


class TokenMask(Protocol):
    """Decides which tokens one request may have next: a machine that goes on with each token that is committed.

    A machine shares no changing data with another machine, and no limits: what one request does cannot change another
    request's masks.

    No method raises but `bits`. A machine that has failed stays failed: its request ends, and no other request is
    disturbed.
    """

    @property
    def num_tokens(self) -> int:
        """The number of output tokens that the machine has taken in."""

    @property
    def mask_s(self) -> float:
        """The approximate processor time of one mask, in seconds."""

    def feed(self, token_id: int) -> None:
        """Take in the next output token."""

    def rewind(self, num_tokens: int) -> None:
        """Go back to the state after the first `num_tokens` output tokens."""

    def bits(self) -> bytes:
        """Returns one bit for each token id, the lowest bit of a byte first; 1 means that the token may come next.
        Raises GrammarFault if the machine has failed."""


def _dumps(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest("The grammar is no JSON.", param="grammar", why=f"{error}.") from None
