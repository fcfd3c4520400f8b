"""The special tokens around one text and around two texts, in the form of tokenizer.json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twostroke.weights.gguf.vocabulary.token_list import TokenList

Piece = tuple[str, int]
"""A piece of a sequence for the model, and its token type. The piece is a special token, or "A" or "B" for all tokens
of the first or the second text."""

TEXTS = ("A", "B")


def around(vocabulary: TokenList, *, begins: bool, ends: bool = False) -> dict[str, Any] | None:
    """Returns the step that puts BOS before and EOS after a text, by the file's keys; None where neither is put.
    begins, ends: the values where the file has no keys.

    With add_sep_token a second text stands after EOS and a separator, as in RoBERTa. Without it, the second text is
    framed as the first is.
    """
    first = vocabulary.text_of("bos_token_id") if vocabulary.truth("add_bos_token", begins) else None
    last = vocabulary.text_of("eos_token_id") if vocabulary.truth("add_eos_token", ends) else None
    if first is None and last is None:
        return None
    before, behind = ([] if text is None else [text] for text in (first, last))
    single = _typed([*before, "A", *behind], 0)
    if not vocabulary.truth("add_sep_token", False):
        return template(vocabulary, single, [*single, *_typed([*before, "B", *behind], 1)])
    separator = vocabulary.text_of("seperator_token_id")
    middle = behind if separator is None else [separator]
    return template(vocabulary, single, [*single, *_typed([*middle, "B", *behind], 0)])


def template(vocabulary: TokenList, single: Sequence[Piece], pair: Sequence[Piece]) -> dict[str, Any]:
    """Returns a TemplateProcessing. If several ids have a special token's text, the first id counts."""
    texts = dict.fromkeys(text for text, _ in (*single, *pair) if text not in TEXTS)
    return {
        "type": "TemplateProcessing",
        "single": [_step(*piece) for piece in single],
        "pair": [_step(*piece) for piece in pair],
        "special_tokens": {
            text: {"id": text, "ids": [vocabulary.tokens.index(text)], "tokens": [text]} for text in texts
        },
    }


def _typed(texts: Sequence[str], token_type: int) -> list[Piece]:
    return [(text, token_type) for text in texts]


def _step(text: str, token_type: int) -> dict[str, Any]:
    kind = "Sequence" if text in TEXTS else "SpecialToken"
    return {kind: {"id": text, "type_id": token_type}}
