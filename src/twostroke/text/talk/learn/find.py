"""Finds the format of a model from the text that its template writes, from its vocabulary, and from its offer of tools,
in this order."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Protocol

from msgspec import structs

from twostroke.text.talk.catalog import COMMON, FORMATS, THOUGHTS
from twostroke.text.talk.ends import ends_of_turns
from twostroke.text.talk.format import Format, ThoughtMarks
from twostroke.text.talk.learn.derive import derived
from twostroke.text.talk.learn.described import described
from twostroke.text.talk.learn.probe import CHECKS, IDS, THOUGHT, Renders, TemplateProbe, TurnCase
from twostroke.text.talk.learn.round_trip import checked, fits, same_in_characters
from twostroke.text.talk.write import written

_LOG = logging.getLogger(__name__)


class TokenTexts(Protocol):
    """The part of a vocabulary with which the texts of special tokens, such as `<tool_call>`, are looked up."""

    special_ids: frozenset[int]

    def id_of(self, token: str) -> int | None:
        """The id of a token as written in the vocabulary, or None."""

    def token_text(self, token_id: int) -> str:
        """The token's text."""


def find_format(template: Renders, vocabulary: TokenTexts) -> Format:
    """Returns the format in which the model with this template writes calls and thoughts. Its note tells how the format
    was found and which checks were made."""
    probe = TemplateProbe(template)
    ends = tuple(filter(None, (vocabulary.token_text(token_id) for token_id in vocabulary.special_ids)))
    found = _found(probe, vocabulary, ends)
    thought = _thought(found, probe, vocabulary)
    _LOG.info("format %s: %s", found.name, found.note)
    return structs.replace(found, thought=thought)


def _found(probe: TemplateProbe, vocabulary: TokenTexts, ends: tuple[str, ...]) -> Format:
    reading = [(_score(form, probe, _ends_of(form, ends)), form) for form in FORMATS.values()]
    best, form = max(reading, key=lambda pair: pair[0])
    if best > (0, 0, 0, 0):
        result = checked(form, probe, _ends_of(form, ends), same_in_characters)
        note = f"its template writes it; {result.right} of {result.right + len(result.wrong)} turns were read back"
        return structs.replace(form, note=note)
    said = described(probe.described)
    if said is not None:
        result = checked(said, probe, ends_of_turns(ends), same_in_characters)
        if not result.wrong:
            note = f"the checkpoint describes it; {result.right} turns of its template were read back"
            return structs.replace(said, calls=said.calls or COMMON.calls, note=note)
        _LOG.warning("the checkpoint's response_template is not used: it does not read what the template writes")
    form_of_its_own = derived(probe, ends_of_turns(ends))
    if form_of_its_own is not None:
        return form_of_its_own
    for form in FORMATS.values():
        if form.vocabulary and all(vocabulary.id_of(text) is not None for text in form.vocabulary):
            return structs.replace(form, note="its marks are tokens of the vocabulary")
    for form in FORMATS.values():
        if any(text in probe.offer for text in form.offer):
            return structs.replace(form, note="its template offers tools in these words")
    return structs.replace(COMMON, note="nothing tells a format of its own: calls in common notations are read")


def _score(form: Format, probe: TemplateProbe, ends: tuple[str, ...]) -> tuple[int, int, int, int]:
    """Returns four counts, of which the first counts most; all are 0 where the format does not read the first test turn
    back. The first two count test turns that the format reads back, and those that it writes as the template does. The
    third counts turns read back with only the first of the format's `calls`. The fourth counts the format's marks
    around thoughts and answers that the template writes."""
    if not fits(form, probe, ends):
        return (0, 0, 0, 0)
    same = sum(_calls_of(form, case) in (probe.turn(case) or "") for case in CHECKS)
    own = structs.replace(form, calls=form.calls[:1])
    return (_num_right(form, probe, ends), same, _num_right(own, probe, ends), _num_shown(form, probe))


def _num_shown(form: Format, probe: TemplateProbe) -> int:
    marks = {*form.wraps, *((form.thought.opening, form.thought.closing) if form.thought else ())}
    turn = probe.turn(TurnCase(content="Qzanswer", thought=THOUGHT)) or ""
    return sum(mark.strip() in turn or mark.strip() in probe.prompt for mark in marks)


def _num_right(form: Format, probe: TemplateProbe, ends: tuple[str, ...]) -> int:
    return sum(fits(form, probe, ends, case) is True for case in CHECKS)


def _calls_of(form: Format, case: TurnCase) -> str:
    made = enumerate(zip(IDS, case.calls, strict=False))
    calls = [(name, given, form.ids.legal(own, name, place)) for place, (own, (name, given)) in made]
    return written(form, calls).strip()


def _ends_of(form: Format, ends: Iterable[str]) -> tuple[str, ...]:
    """Returns the special tokens at which an answer ends: those of the format, and those of `ends` that the format does
    not use within a turn."""
    texts = form.texts
    return (*form.ends, *(end for end in ends if end not in texts))


def _thought(form: Format, probe: TemplateProbe, vocabulary: TokenTexts) -> ThoughtMarks | None:
    """Returns the tags around the model's thoughts: the first pair that the template writes or removes, or whose
    opening tag is in the vocabulary. The format's own pair is tried first. None where there is none, or where thoughts
    are messages."""
    if form.messages is not None:
        return None
    candidates = [form.thought] if form.thought is not None else []
    candidates += [marks for marks in THOUGHTS if marks not in candidates]
    return next((marks for marks in candidates if any(_shows(marks, probe, vocabulary))), None)


def _shows(marks: ThoughtMarks, probe: TemplateProbe, vocabulary: TokenTexts) -> Iterator[bool]:
    opening, closing = marks.opening.strip(), marks.closing.strip()
    yield any(marks.opened_by(prompt) or marks.closed_by(prompt) for prompt in probe.prompts)
    turn = probe.turn(TurnCase(content="Qzanswer", thought=THOUGHT)) or ""
    yield THOUGHT in turn and opening in turn.partition(THOUGHT)[0] and closing in turn
    yield vocabulary.id_of(opening) is not None
    yield probe.drops_thought(marks.opening, marks.closing)
