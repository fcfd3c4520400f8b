"""Writes calls as a model writes them, for histories in which the template leaves the calls out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from twostroke.text.talk.format import CallForm, Format


def written(form: Format, calls: Sequence[tuple[str, Mapping[str, Any], str]]) -> str:
    """Returns the calls of a turn with all marks around them. calls: (name, arguments, id) of each."""
    said = form.messages
    if said is None or not said.inside:
        return calls_as(form.calls[0], calls)
    each = [said.recipient + call[0] + said.body + calls_as(form.calls[0], [call]) for call in calls]
    return (said.ends[0] + said.start).join(each)


def calls_as(form: CallForm, calls: Sequence[tuple[str, Mapping[str, Any], str]]) -> str:
    """Returns the calls in this form."""
    each = [form.open + form.notation.write(name, given, own) + form.close for name, given, own in calls]
    inner = form.between.join(each)
    return form.begin + (f"[{inner}]" if form.listed else inner) + form.end
