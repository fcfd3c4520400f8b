"""The program of the guard's process: compiles one grammar after another, and may be killed at any of them.

First line in: {"rows": n, "tokens": {id: hex}, "special": [id], "ends": [id], "limits": {...}, "wall_s": s,
"memory_bytes": n, "niceness": n}.
Each line after it: {"kind": k, "text": t, "cpu_s": the processor time after which the system ends this process}.
Each line out: {"source": grammar in llguidance's own language} or {"fault": text}. Where the system does not let the
process limit its memory, the only line out is {"refused": reason}.
Ends when its input ends. It imports nothing of Twostroke.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from twostroke.system import here

if TYPE_CHECKING:
    import llguidance

OPTIONS = '%llguidance {"no_forcing": true}\n'
"""Turns off forced tokens. Where only one text can follow, the library would tokenize that text itself and allow only
the resulting token. This takes seconds for a long text, and a special token's name in a schema would become the special
token."""

WHITESPACE = r"( |\n( {2}){0,4})?"
"""White space between the parts of JSON: one space, or a line end and an indentation of two spaces a level, up to four
levels. Real models write either form. If more were allowed, a model could write white space without end."""

FORM: dict[str, Any] = {"whitespace_pattern": WHITESPACE, "lenient": False}
"""The options with which the compiler reads a schema."""


class _Tokens:
    """The object from which llguidance's TokenizerWrapper reads the tokens."""

    def __init__(self, opening: dict[str, Any]) -> None:
        self.tokens = [b""] * opening["rows"]
        for token_id, token in opening["tokens"].items():
            self.tokens[int(token_id)] = bytes.fromhex(token)
        self.special_token_ids = opening["special"]
        self.eos_token_id = opening["ends"][0]
        self.bos_token_id = None

    def __call__(self, _raw: bytes) -> list[int]:
        return []  # never called: no text is forced


def source_of(kind: str, text: str) -> str:
    """Returns the grammar in llguidance's Lark. Raises ValueError where it cannot be read."""
    if kind == "regex":
        from llguidance import regex_to_lark

        return f"{OPTIONS}start: /{regex_to_lark(text, 'd')}/"
    if kind == "lark":
        return OPTIONS + _lark(text)
    if kind == "choice":
        # The choices are one terminal. As alternatives of a rule, many choices would be too many items for the parser.
        choices = " | ".join(json.dumps(choice, ensure_ascii=False) for choice in json.loads(text))
        return f"{OPTIONS}start: CHOICE\nCHOICE: {choices}"
    schema = json.loads('{"type":"object"}' if kind == "json_object" else text)
    if isinstance(schema, bool):  # the library adds its options to an object
        schema = {} if schema else {"enum": []}
    schema["x-guidance"] = FORM
    return f"{OPTIONS}start: %json {json.dumps(schema)}"


def _lark(text: str) -> str:
    """Returns Lark unchanged, and GBNF translated into Lark."""
    from llguidance.gbnf_to_lark import any_to_lark

    if "%llguidance" in text:
        raise ValueError("the directive %llguidance is not accepted")
    try:
        made: str = any_to_lark(text)
    except Exception as error:  # the converter raises bare Exceptions
        raise ValueError(f"{error}") from None
    return made.removeprefix("%llguidance {}")


def fault_of(source: str, tokens: llguidance.LLTokenizer, limits: llguidance.LLParserLimits) -> str:
    """Returns the fault of the grammar, found by compiling it and by making its first mask; an empty text where there
    is none.

    If no token can begin a text of the grammar, this is not a fault, because the process has only a few of the model's
    tokens.
    """
    import llguidance

    matcher = llguidance.LLMatcher(tokens, source, log_level=0, limits=limits)
    if not matcher.is_error():
        matcher.compute_bitmask()
    fault = matcher.get_error()
    return "" if fault.startswith("NoExtension") else fault


def main() -> None:
    """Reads, compiles and answers until the input ends."""
    import llguidance

    opening = json.loads(sys.stdin.readline())
    tokens = llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Tokens(opening)), eos_token=opening["ends"])
    limits = llguidance.LLParserLimits(**opening["limits"])
    try:
        here.limit_memory(opening["memory_bytes"])
    except OSError as error:
        print(json.dumps({"refused": f"setrlimit: {error.strerror}"}), flush=True)
        return
    here.stand_back(opening["niceness"])
    for line in sys.stdin:
        job = json.loads(line)
        # The system ends this process if the parent is gone, because no other process would end it.
        here.end_after(wall_s=2 * opening["wall_s"], cpu_s=job["cpu_s"])
        try:
            source = source_of(job["kind"], job["text"])
            fault = fault_of(source, tokens, limits)
        except (ValueError, RecursionError) as error:
            source, fault = "", f"{error}" or "it cannot be read"
        here.end_after(wall_s=0, cpu_s=0)
        print(json.dumps({"fault": fault} if fault else {"source": source}), flush=True)


if __name__ == "__main__":
    main()
