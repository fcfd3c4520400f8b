"""Grammars for a model that thinks first: a thought, then the text that the request's grammar describes."""

from __future__ import annotations

import json
import re

from twostroke.types.grammar import ThoughtFirst

_PARTS = re.compile(r'"(?:\\.|[^"\\])*"|/(?:\\.|[^/\\\n])+/|//[^\n]*|%json[^\n]*|\bstart\b')
"""Matches the parts that may hold the word `start`: texts, patterns, comments, schemas; the last alternative is the
rule's name."""
_RULES = r"""start: {first}
thought_first: {thought} THOUGHT_BREAK
THOUGHT_TEXT: /(.|\n)*/
THOUGHT_BREAK: /[ \n]{{0,4}}/
"""


def after_thought(source: str, thought: ThoughtFirst) -> str:
    """Returns a grammar of a thought followed by the text that `source` describes. The thought may be left out, unless
    the prompt has begun it. source: a grammar in llguidance's Lark, with its options in the first line."""
    options, _, rules = source.partition("\n")
    form = _PARTS.sub(lambda found: "answer_form" if found[0] == "start" else found[0], rules)
    if thought.around:
        return f"{options}\n{thought.around}{form}"
    if thought.closing_id is not None:
        whole, more = f"THOUGHT_TEXT <[{thought.closing_id}]>", ""
    else:  # the thought ends at the first occurrence of the mark
        whole, more = "thought_closed", f"thought_closed[lazy]: THOUGHT_TEXT {json.dumps(thought.closing)}\n"
    opening = json.dumps(thought.opening) if thought.opening_id is None else f"<[{thought.opening_id}]>"
    first = "thought_first answer_form"
    if not thought.begun:
        first = f"answer_form | {opening} {first}"
    return f"{options}\n{_RULES.format(first=first, thought=whole)}{more}{form}"
