"""Parts of tokenizer.json that several kinds of vocabularies share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def bpe(vocab: dict[str, int], merges: list[list[str]], **more: Any) -> dict[str, Any]:
    """Returns the model of byte-pair merges. `more` replaces the usual values of the model's members."""
    usual: dict[str, Any] = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None}
    usual |= {"end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False}
    return {**usual, **more, "vocab": vocab, "merges": merges}


def split(pattern: str) -> dict[str, Any]:
    """Returns a step that makes each match of a pattern, and each text between two matches, a piece of its own."""
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def sequence(kind: str, steps: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns several steps in order. kind: "normalizers", "pretokenizers" or "decoders"."""
    return {"type": "Sequence", kind: steps}


def added(token_id: int, text: str, *, special: bool) -> dict[str, Any]:
    """Returns a token that is found in a text before the text is split."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": special}
    return {"id": token_id, "content": text, **flags}


def begins_with(text: str, token_id: int) -> dict[str, Any]:
    """Returns the post-processor that puts one special token in front of each text."""
    first = {"SpecialToken": {"id": text, "type_id": 0}}
    single = [first, {"Sequence": {"id": "A", "type_id": 0}}]
    second = [{"SpecialToken": {"id": text, "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}]
    known = {text: {"id": text, "ids": [token_id], "tokens": [text]}}
    return {"type": "TemplateProcessing", "single": single, "pair": [*single, *second], "special_tokens": known}


def tokenizer(model: Mapping[str, Any], added_tokens: list[dict[str, Any]], **steps: Any) -> dict[str, Any]:
    """Returns all members of tokenizer.json. steps: normalizer, pre_tokenizer, post_processor, decoder; a step that is
    not given is null."""
    none = dict.fromkeys(("normalizer", "pre_tokenizer", "post_processor", "decoder"))
    head = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added_tokens}
    return {**head, **none, **steps, "model": dict(model)}
