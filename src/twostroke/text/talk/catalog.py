"""All formats that were written by hand, by name."""

from __future__ import annotations

from functools import cache

from twostroke.text.talk.format import Example, Format, ThoughtMarks
from twostroke.text.talk.formats import common, thoughts
from twostroke.text.talk.formats.named import (
    deepseek3,
    deepseek31,
    functionary31,
    functionary32,
    harmony,
    kimi,
    mistral,
    mistral_ids,
    solar,
)
from twostroke.text.talk.formats.objects import (
    apertus,
    apriel,
    cohere,
    command_r,
    functools,
    granite3,
    hermes,
    hunyuan,
    internlm,
    llama3,
    minimax_m1,
    mistral_list,
    nemotron,
    phi4_mini,
    tool_calls,
    xlam,
)
from twostroke.text.talk.formats.others import functiongemma, gemma4, lfm2, llama4, olmo3
from twostroke.text.talk.formats.tagged import (
    atem,
    dsml,
    dsml32,
    glm,
    glm47,
    hunyuan3,
    kimi_k3,
    longcat,
    minicpm5,
    minimax_m2,
    minimax_m3,
    qwen3_coder,
    seed,
    step3,
)

_FILES = (
    *(harmony, atem, solar, functionary32, kimi_k3, kimi, deepseek3, deepseek31, mistral_ids, mistral, mistral_list),
    *(gemma4, functiongemma, lfm2, minimax_m3, minimax_m2, dsml, dsml32, seed, step3, hunyuan3, longcat, glm, glm47),
    *(minicpm5, cohere, command_r, apertus, internlm, phi4_mini, granite3, tool_calls, hunyuan, apriel, minimax_m1),
    *(nemotron, functools, olmo3, qwen3_coder, functionary31, llama4, hermes, llama3, xlam),
)
"""The formats' files in the order in which they are tried: formats with marks of their own come first."""
FORMATS: dict[str, Format] = {file.FORMAT.name: file.FORMAT for file in _FILES}
EXAMPLES: dict[str, tuple[Example, ...]] = {file.FORMAT.name: file.EXAMPLES for file in _FILES}

COMMON = common.FORMAT
THOUGHTS: tuple[ThoughtMarks, ...] = (thoughts.THINK, thoughts.BRACKETS)


@cache
def known_marks() -> frozenset[str]:
    """Returns the texts that models write in their answers as marks, in any format."""
    return frozenset(text for form in FORMATS.values() for text in form.texts)
