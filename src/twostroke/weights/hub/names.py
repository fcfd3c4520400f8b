"""Names of models as other programs write them, and the names of the same models on the hub."""

from __future__ import annotations

import re

OLLAMA = {
    "llama2": "meta-llama/Llama-2-{size}-chat-hf 7b",
    "llama3": "meta-llama/Meta-Llama-3-{SIZE}-Instruct 8b",
    "llama3.1": "meta-llama/Llama-3.1-{SIZE}-Instruct 8b",
    "llama3.2": "meta-llama/Llama-3.2-{SIZE}-Instruct 3b",
    "llama3.3": "meta-llama/Llama-3.3-{SIZE}-Instruct 70b",
    "mistral": "mistralai/Mistral-{SIZE}-Instruct-v0.3 7b",
    "qwen2": "Qwen/Qwen2-{SIZE}-Instruct 7b",
    "qwen2.5": "Qwen/Qwen2.5-{SIZE}-Instruct 7b",
    "qwen2.5-coder": "Qwen/Qwen2.5-Coder-{SIZE}-Instruct 7b",
    "qwen3": "Qwen/Qwen3-{SIZE} 8b",
    "smollm2": "HuggingFaceTB/SmolLM2-{SIZE}-Instruct 1.7b",
    "tinyllama": "TinyLlama/TinyLlama-1.1B-Chat-v1.0 1.1b",
}
"""Ollama's name -> hub id with a placeholder for the size, and the size that Ollama takes where none is given."""

HOSTS = ("huggingface.co", "hf.co")


def hub_id_of(name: str) -> str | None:
    """Returns the hub id for a name: "llama3.2:1b" -> "meta-llama/Llama-3.2-1B-Instruct"; an address of the hub -> its
    id. Returns None for other names."""
    address = re.fullmatch(r"(?:https?://)?(?:www\.)?([^/]+)/([^/?#]+/[^/?#]+)(?:[/?#].*)?", name)
    if address and address[1].lower() in HOSTS:
        return address[2]
    family, _, tag = name.lower().partition(":")
    known = OLLAMA.get(family)
    if known is None:
        return None
    pattern, _, usual = known.partition(" ")
    size = re.match(r"\d+(?:\.\d+)?[bm]\b", tag)
    chosen = size[0] if size else usual
    return pattern.format(size=chosen, SIZE=chosen.upper())
