"""Makes the tokenizer keys of a GGUF file from tokenizer.json: for encoders' tokenizers (WordPiece, Unigram), and for
the special tokens before and after a text. `said` is the content of tokenizer.json, `vocab_size` the number of tokens
that the model has rows for."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from twostroke.quantize.gguf.container import KeyValue
from twostroke.types.errors import UnsupportedModel
from twostroke.weights.gguf.vocabulary.encoder_tokenizers import CONTINUES
from twostroke.weights.gguf.vocabulary.token_list import (
    CONTROL,
    NORMAL,
    PREFIX,
    SPACE,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
)

FIX = "Convert it with llama.cpp's own converter, or write --to int4, gptq or awq, which keep tokenizer.json."
UNUSED_SCORE = -10000.0
Lists = tuple[list[str], list[int]]


def refused(why: str) -> UnsupportedModel:
    """Returns the error for a tokenizer that has no form in GGUF."""
    return UnsupportedModel("The tokenizer cannot be written as GGUF.", why=why, fix=FIX)


def listed(vocab: Mapping[str, int], said: Mapping[str, Any], vocab_size: int) -> Lists:
    """Returns the text and the GGUF token type of each id below `vocab_size`. Ids without a token get the type UNUSED.
    Tokens for which the model has no row are left out. For example, Gemma 3 1B has none for the token of an image,
    which its tokenizer shares with larger models."""
    tokens = [f"[PAD{index}]" for index in range(vocab_size)]
    types = [UNUSED] * vocab_size
    found = [(text, index, NORMAL) for text, index in vocab.items()]
    for token in said.get("added_tokens", ()):
        found.append((token["content"], token["id"], CONTROL if token["special"] else USER_DEFINED))
    for text, index, kind in found:
        if index < vocab_size:
            tokens[index], types[index] = text, kind
    return tokens, types


def wordpiece_keys(said: Mapping[str, Any], vocab_size: int) -> dict[str, KeyValue]:
    """Returns the GGUF keys of a WordPiece tokenizer (BERT's). said: the content of tokenizer.json. Raises
    UnsupportedModel."""
    model, normal = said["model"], said.get("normalizer") or {}
    pre = (said.get("pre_tokenizer") or {}).get("type")
    if normal.get("type") != "BertNormalizer" or pre != "BertPreTokenizer":
        raise refused("A WordPiece tokenizer must have BertNormalizer and BertPreTokenizer.")
    if model.get("continuing_subword_prefix", CONTINUES) != CONTINUES:
        raise refused(f"Pieces inside words must begin with {CONTINUES}.")
    tokens, types = listed(model["vocab"], said, vocab_size)
    unknown = model["vocab"].get(model.get("unk_token"))
    stored = [
        text if kind in (CONTROL, UNUSED) else text.removeprefix(CONTINUES) if inside(text) else SPACE + text
        for text, kind in zip(tokens, types, strict=True)
    ]
    lower = bool(normal.get("lowercase", True))
    strips = normal.get("strip_accents")
    return {
        PREFIX + "model": "bert",
        PREFIX + "pre": "default",
        PREFIX + "tokens": stored,
        PREFIX + "token_type": types,
        PREFIX + "normalizer.lowercase": lower,
        PREFIX + "normalizer.strip_accents": lower if strips is None else bool(strips),
        **({} if unknown is None else {PREFIX + "unknown_token_id": int(unknown)}),
    }


def inside(text: str) -> bool:
    """Returns whether a WordPiece token continues a word: its text begins with ##."""
    return text.startswith(CONTINUES)


def unigram_keys(said: Mapping[str, Any], vocab_size: int) -> dict[str, KeyValue]:
    """Returns the GGUF keys of a Unigram tokenizer, such as XLM-RoBERTa's. said: the content of tokenizer.json. Raises
    UnsupportedModel."""
    model, normal = said["model"], said.get("normalizer")
    if normal is not None and normal.get("type") != "Precompiled":
        raise refused("A Unigram tokenizer must have the normalizer Precompiled, or none.")
    pre = said.get("pre_tokenizer") or {}
    steps = list(pre.get("pretokenizers", ())) if pre.get("type") == "Sequence" else [pre]
    kinds = [step.get("type") for step in steps]
    if kinds not in (["Metaspace"], ["WhitespaceSplit", "Metaspace"]):
        raise refused("A Unigram tokenizer must have the pre-tokenizer Metaspace, perhaps after WhitespaceSplit.")
    pieces = model["vocab"]
    tokens, types = listed({piece: index for index, (piece, _) in enumerate(pieces)}, said, vocab_size)
    types[model["unk_id"]] = UNKNOWN
    scores = [float(score) for _, score in pieces] + [UNUSED_SCORE] * (vocab_size - len(pieces))
    keys: dict[str, KeyValue] = {
        PREFIX + "model": "t5",
        PREFIX + "pre": "default",
        PREFIX + "tokens": tokens,
        PREFIX + "token_type": types,
        PREFIX + "scores": scores,
        PREFIX + "unknown_token_id": int(model["unk_id"]),
        PREFIX + "add_space_prefix": steps[-1].get("prepend_scheme", "always") != "never",
        PREFIX + "remove_extra_whitespaces": len(steps) == 2,
    }
    if normal is not None:
        keys[PREFIX + "precompiled_charsmap"] = base64.b64decode(normal["precompiled_charsmap"])
    return keys


def frame_keys(said: Mapping[str, Any], end: KeyValue | None) -> dict[str, KeyValue]:
    """Returns the GGUF keys for the special tokens before and after a text. said: the content of tokenizer.json. end:
    the id that ends an answer. If the token after a text is another one, that one becomes eos_token_id and `end`
    becomes eot_token_id."""
    first, last, twice = _marks(said)
    keys: dict[str, KeyValue] = {PREFIX + "add_bos_token": first is not None}
    if first is not None:
        keys[PREFIX + "bos_token_id"] = first
    if last is not None:
        keys |= {PREFIX + "add_eos_token": True, PREFIX + "eos_token_id": last, PREFIX + "seperator_token_id": last}
        keys |= {PREFIX + "eot_token_id": end} if isinstance(end, int) and end != last else {}
        keys |= {PREFIX + "add_sep_token": True} if twice else {}
    return keys


def _marks(said: Mapping[str, Any]) -> tuple[int | None, int | None, bool]:
    """Returns the id of the special token before a text (BOS or CLS), that of the token after it (EOS or SEP), and
    whether the latter stands twice between the two texts of a pair, as in RoBERTa."""
    after = said.get("post_processor") or {}
    for each in after.get("processors", [after]) if isinstance(after, dict) else ():
        kind = each.get("type")
        if kind in ("RobertaProcessing", "BertProcessing"):
            return int(each["cls"][1]), int(each["sep"][1]), kind == "RobertaProcessing"
        if kind == "TemplateProcessing":
            ids = {name: token["ids"][0] for name, token in each.get("special_tokens", {}).items()}
            single = [step.get("SpecialToken", {}).get("id") for step in each.get("single", ())]
            pair = [step.get("SpecialToken", {}).get("id") for step in each.get("pair", ())]
            first, last = (ids.get(single[place]) if single else None for place in (0, -1))
            return first, last, sum(name is not None and ids.get(name) == last for name in pair) > 2
    return None, None, False
