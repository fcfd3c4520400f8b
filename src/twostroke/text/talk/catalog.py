"""All formats that are known by hand, by name.

Knows: the files of formats.
Must not know: which model has which.
"""

from __future__ import annotations

from functools import cache

from twostroke.text.talk.format import Example, Format, ThoughtMarks
from twostroke.text.talk.formats import thoughts, unknown
from twostroke.text.talk.formats.named import deepseek3, deepseek31, harmony, kimi, mistral
from twostroke.text.talk.formats.objects import hermes, llama3, mistral_list
from twostroke.text.talk.formats.tagged import dsml, glm, glm47, longcat, minimax_m2, qwen3_coder, seed, step3

_FILES = (hermes, llama3, mistral_list, mistral, deepseek3, deepseek31, kimi, harmony, qwen3_coder, glm, glm47, minimax_m2, dsml, seed, step3, longcat)
FORMATS: dict[str, Format] = {file.FORMAT.name: file.FORMAT for file in _FILES}
EXAMPLES: dict[str, tuple[Example, ...]] = {file.FORMAT.name: file.EXAMPLES for file in _FILES}

UNKNOWN = unknown.FORMAT
THOUGHTS: tuple[ThoughtMarks, ...] = (thoughts.THINK, thoughts.BRACKETS)


@cache
def known_marks() -> frozenset[str]:
    """What models write in their answers as marks, in any format."""
    return frozenset(text for form in FORMATS.values() for text in form.texts)
