"""Functionary 3.2: each message begins with its recipient's line."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format, Messages
from twostroke.text.talk.notations.named import NamedNotation

FORMAT = Format(
    "functionary32",
    calls=(CallForm(NamedNotation("\n"), between=">>>"),),
    messages=Messages(start=">>>", body="\n", ends=(), everyone=("all",)),
    ends=("<|eot_id|>",),
    offer=(">>>${recipient}",),
)
EXAMPLES = (
    Example("all\nI look.>>>bell\n{}", "I look.", calls=(("bell", "{}"),), prompt=">>>"),
    Example('hours\n{"day": "Mon"}>>>bell\n{}', calls=(("hours", '{"day": "Mon"}'), ("bell", "{}")), prompt=">>>"),
    Example("all\nType >>> x", "Type >>> x", prompt=">>>"),
)
