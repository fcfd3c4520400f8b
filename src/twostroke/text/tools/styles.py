"""Which style a model writes its calls in: found in its chat template, or by name.

Knows: all styles.
Must not know: configuration, requests.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from twostroke.text.tools.deepseek import BEGIN_CALL, BEGIN_CALLS, END_CALL, END_CALLS, SEPARATOR, DeepSeekReader
from twostroke.text.tools.hermes import CLOSE, OPEN, HermesReader
from twostroke.text.tools.llama3 import TAG, Llama3Reader
from twostroke.text.tools.mistral import ARGS, CALL_ID, MistralReader
from twostroke.text.tools.mistral import OPEN as MISTRAL_OPEN
from twostroke.text.tools.pieces import Reader
from twostroke.text.tools.qwen3_coder import PARAMETER, Qwen3CoderReader

CALL_ID_CHARACTERS = 24
MISTRAL_ID_CHARACTERS = 9


@dataclass(frozen=True, slots=True)
class ToolStyle:
    """reader(names): a fresh machine; a style that types its values reads schemas where names map to them. marks: texts
    that matter even where the vocabulary calls them special.

    call_id_prefix, call_id_characters: the form of ids that the model's own template accepts back.
    """

    name: str
    reader: Callable[[Collection[str]], Reader]
    marks: tuple[str, ...]
    call_id_prefix: str = "call_"
    call_id_characters: int = CALL_ID_CHARACTERS


HERMES = ToolStyle("hermes", HermesReader, (OPEN, CLOSE))
LLAMA3 = ToolStyle("llama3", Llama3Reader, (TAG,))
MISTRAL = ToolStyle("mistral", MistralReader, (MISTRAL_OPEN, ARGS, CALL_ID), "", MISTRAL_ID_CHARACTERS)
DEEPSEEK = ToolStyle("deepseek", DeepSeekReader, (BEGIN_CALLS, END_CALLS, BEGIN_CALL, END_CALL, SEPARATOR))
QWEN3_CODER = ToolStyle("qwen3_coder", Qwen3CoderReader, (OPEN, CLOSE))
STYLES = {style.name: style for style in (HERMES, LLAMA3, MISTRAL, DEEPSEEK, QWEN3_CODER)}

_TOLD_BY = (
    (BEGIN_CALLS, DEEPSEEK),
    (MISTRAL_OPEN, MISTRAL),
    (PARAMETER, QWEN3_CODER),
    (OPEN, HERMES),
    (TAG, LLAMA3),
    ('"parameters": ', LLAMA3),
)


def style_of_template(source: str) -> ToolStyle | None:
    """The style by the marks that the template writes; None where it renders no tools."""
    if "tools" not in source:
        return None
    return next((style for mark, style in _TOLD_BY if mark in source), None)
