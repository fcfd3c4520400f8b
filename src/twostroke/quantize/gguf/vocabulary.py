"""The keys of a tokenizer of merges over bytes, made of tokenizer.json.

How texts are split is a name in GGUF; it is found by the patterns that the reader knows. Other tokenizers are refused.

Knows: tokenizer.json, tokenizer.ggml.*.
Must not know: files' places, models.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twostroke.quantize.gguf.container import KeyValue
from twostroke.types.errors import UnsupportedModel
from twostroke.weights.gguf.pre_splits import GPT2, PRE_SPLITS
from twostroke.weights.gguf.tokenizer import CONTROL, NORMAL, PREFIX, UNUSED, USER_DEFINED
from twostroke.weights.json_file import read_object

FIX = "Convert it with llama.cpp's own converter, or write --to int4, gptq or awq, which keep tokenizer.json."


def vocabulary_keys(folder: Path, config: Mapping[str, Any], vocab_size: int) -> dict[str, KeyValue]:
    """The keys of a folder's vocabulary. Raises UnsupportedModel."""
    said = read_object(folder / "tokenizer.json")
    model = said.get("model")
    if not isinstance(model, dict) or model.get("type") != "BPE" or model.get("byte_fallback"):
        raise _refused("It is no tokenizer of merges over bytes.")
    tokens = [f"[PAD{index}]" for index in range(vocab_size)]
    types = [UNUSED] * vocab_size
    for text, index in model["vocab"].items():
        tokens[index], types[index] = text, NORMAL
    for token in said.get("added_tokens", ()):
        tokens[token["id"]] = token["content"]
        types[token["id"]] = CONTROL if token["special"] else USER_DEFINED
    keys: dict[str, KeyValue] = {
        PREFIX + "model": "gpt2",
        PREFIX + "pre": _pre(said),
        PREFIX + "tokens": tokens,
        PREFIX + "token_type": types,
        PREFIX + "merges": [each if isinstance(each, str) else " ".join(each) for each in model["merges"]],
        PREFIX + "add_bos_token": _adds_bos(said),
    }
    for ours, theirs in (("bos_token_id", "bos_token_id"), ("eos_token_id", "eos_token_id")):
        found = config.get(ours)
        found = found[0] if isinstance(found, list) and found else found
        if isinstance(found, int):
            keys[PREFIX + theirs] = found
    if isinstance(config.get("pad_token_id"), int):
        keys[PREFIX + "padding_token_id"] = config["pad_token_id"]
    template = _template(folder)
    if template:
        keys["tokenizer.chat_template"] = template
    return keys


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
            raise _refused(f"Its pre-tokenizer {str(step.get('type'))[:40]} has no name in GGUF.")
    kind = (said.get("normalizer") or {}).get("type")
    for name, known in PRE_SPLITS.items():
        whole = bool(said["model"].get("ignore_merges"))
        if known.patterns == tuple(patterns) and known.composed == (kind == "NFC") and known.whole_words == whole:
            return name
    raise _refused("How it splits texts has no name in GGUF that is known here.")


def _steps(found: Any) -> list[dict[str, Any]]:
    if not isinstance(found, dict):
        return []
    return list(found.get("pretokenizers", ())) if found.get("type") == "Sequence" else [found]


def _adds_bos(said: Mapping[str, Any]) -> bool:
    """Does a text begin with a special token?"""
    after = said.get("post_processor") or {}
    each = after.get("processors", [after]) if isinstance(after, dict) else []
    single = next((one.get("single") for one in each if one.get("type") == "TemplateProcessing"), None) or [{}]
    return "SpecialToken" in single[0]


def _template(folder: Path) -> str:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    said = read_object(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").is_file() else {}
    found = said.get("chat_template")
    return found if isinstance(found, str) else ""


def _refused(why: str) -> UnsupportedModel:
    return UnsupportedModel("The tokenizer cannot be written as GGUF.", why=why, fix=FIX)
