"""Makes the GGUF keys of a tokenizer from tokenizer.json, whose content is called `said`. This file is for tokenizers
with merges over bytes. merged_vocabulary.py is for merges over characters, encoder_vocabulary.py for encoders.

GGUF has a name for the way in which texts are split before merges. The name is found by the patterns that the reader
knows. Other tokenizers are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from twostroke.quantize.gguf.container import KeyValue
from twostroke.quantize.gguf.encoder_vocabulary import frame_keys, listed, refused, unigram_keys, wordpiece_keys
from twostroke.quantize.gguf.merged_vocabulary import checked_keys, merged_keys
from twostroke.text.tokenizer_file import read_tokenizer, tokenizer_members
from twostroke.weights.gguf.vocabulary.pre_splits import GPT2, PRE_SPLITS
from twostroke.weights.gguf.vocabulary.token_list import PREFIX
from twostroke.weights.json_file import read_object


def vocabulary_keys(folder: Path, config: Mapping[str, Any], vocab_size: int) -> dict[str, KeyValue]:
    """Returns the GGUF keys of the tokenizer in a model's folder. Raises UnsupportedModel."""
    said = tokenizer_members(folder)
    kind = _kind(said)
    if kind not in MAKERS:
        raise refused(f"Its kind is none of {', '.join(MAKERS)}.")
    keys = MAKERS[kind](said, vocab_size)
    for ours, theirs in (("bos_token_id", "bos_token_id"), ("eos_token_id", "eos_token_id")):
        found = config.get(ours)
        found = found[0] if isinstance(found, list) and found else found
        if isinstance(found, int):
            keys[PREFIX + theirs] = found
    if isinstance(config.get("pad_token_id"), int):
        keys[PREFIX + "padding_token_id"] = config["pad_token_id"]
    if isinstance(config.get("type_vocab_size"), int):
        keys[PREFIX + "token_type_count"] = config["type_vocab_size"]
    keys |= frame_keys(said, keys.get(PREFIX + "eos_token_id"))
    template = _template(folder)
    if template:
        keys["tokenizer.chat_template"] = template
    return checked_keys(read_tokenizer(folder), said, keys) if kind == CHARACTERS else keys


def _kind(said: Mapping[str, Any]) -> str:
    """Returns the type of a tokenizer's model, such as BPE or WordPiece. BPE over characters has the name CHARACTERS.
    said: the content of tokenizer.json."""
    model = said.get("model")
    kind = str(model.get("type")) if isinstance(model, dict) else ""
    if kind != "BPE" or not isinstance(model, dict) or not model.get("byte_fallback"):
        return kind
    over_bytes = any(step.get("type") == "ByteLevel" for step in _steps(said.get("pre_tokenizer")))
    return kind if over_bytes else CHARACTERS


def _bytes(said: Mapping[str, Any], vocab_size: int) -> dict[str, KeyValue]:
    model = said["model"]
    tokens, types = listed(model["vocab"], said, vocab_size)
    return {
        PREFIX + "model": "gpt2",
        PREFIX + "pre": _pre(said),
        PREFIX + "tokens": tokens,
        PREFIX + "token_type": types,
        PREFIX + "merges": [each if isinstance(each, str) else " ".join(each) for each in model["merges"]],
    }


CHARACTERS = "BPE with byte_fallback"
MAKERS: Mapping[str, Callable[[Mapping[str, Any], int], dict[str, KeyValue]]] = {
    "BPE": _bytes,
    CHARACTERS: merged_keys,
    "WordPiece": wordpiece_keys,
    "Unigram": unigram_keys,
}
"""The functions that make a tokenizer's GGUF keys, by the type that `_kind` returns."""


def _pre(said: Mapping[str, Any]) -> str:
    steps = _steps(said.get("pre_tokenizer"))
    patterns = []
    for step in steps:
        if step.get("type") == "Split" and not step.get("invert"):
            patterns.append(step.get("pattern", {}).get("Regex", ""))
        elif step.get("type") == "Digits" and step.get("individual_digits"):
            patterns.append(r"\p{N}")
        elif step.get("type") == "ByteLevel" and not step.get("add_prefix_space"):
            patterns += [GPT2] if step.get("use_regex", True) else []
        else:
            raise refused(f"Its pre-tokenizer {str(step.get('type'))[:40]} has no name in GGUF.")
    kind = (said.get("normalizer") or {}).get("type")
    for name, known in PRE_SPLITS.items():
        whole = bool(said["model"].get("ignore_merges"))
        if known.patterns == tuple(patterns) and known.composed == (kind == "NFC") and known.whole_words == whole:
            return name
    raise refused("How it splits texts has no name in GGUF that is known here.")


def _steps(found: Any) -> list[dict[str, Any]]:
    if not isinstance(found, dict):
        return []
    return list(found.get("pretokenizers", ())) if found.get("type") == "Sequence" else [found]


def _template(folder: Path) -> str:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    said = read_object(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").is_file() else {}
    found = said.get("chat_template")
    return found if isinstance(found, str) else ""
