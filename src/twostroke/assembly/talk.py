"""How a model writes its turns, without its weights: its template and its vocabulary are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twostroke.assembly.engine import find_model
from twostroke.assembly.folders import own_template
from twostroke.assembly.optional import chat_template
from twostroke.text.talk.ask import asked_format
from twostroke.text.talk.format import Format
from twostroke.text.talk.learn.find import find_format
from twostroke.text.tokenizer import Tokenizer


def format_of(model: str, options: Mapping[str, Any]) -> Format | None:
    """The format that serving this model would use; None for a model without a chat template. Raises TwostrokeError."""
    found = find_model(model, options)
    folder, file = found.folder.path, own_template(found.resolver)
    template = chat_template.ChatTemplate.from_folder(folder, file)
    if template is None:
        return None
    asked = [found.resolver.asked_value(name) for name in ("tool_format", "reasoning_format")]
    return asked_format(find_format(template, Tokenizer.from_folder(folder, file)), *asked)
