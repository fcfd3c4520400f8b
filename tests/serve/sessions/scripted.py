"""A checkpoint of a few megabytes that answers with a given text, whatever the prompt is.

The embedding of a token is one axis, the only layer adds zero, and the head leads from each token to the next token of
the text. So a session of an agent gets the calls that it needs to go on, from a real engine with a real cache.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from twostroke.text.byte_alphabet import bytes_of

CONTEXT = 32_768
HEAD, HEADS = 16, 2
END, OPEN = "<|im_end|>", "<|im_start|>"
TEMPLATE = """
{%- if tools %}{{ '<|im_start|>system\\n' }}{% if messages[0].role == 'system' %}{{ messages[0].content + '\\n\\n' }}
{%- endif %}{{ '# Tools' }}{% for tool in tools %}{{ '\\n' + (tool | tojson) }}{% endfor %}{{ '<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}{{ '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}{% endif %}
{%- for m in messages %}
{%- if m.role == 'system' %}{% if not loop.first %}{{ raise_exception('System message must be at the beginning.') }}
{%- endif %}
{%- elif m.role == 'user' %}{{ '<|im_start|>user\\n' + m.content + '<|im_end|>\\n' }}
{%- elif m.role == 'assistant' %}{{ '<|im_start|>assistant\\n' + (m.content or '') }}
{%- for call in m.tool_calls or [] %}
{{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": {' }}
{%- for key, value in call.function.arguments.items() %}
{{- ('"' + key + '": ') + (value | tojson) + ('' if loop.last else ', ') }}{% endfor %}{{ '}}\\n</tool_call>' }}
{%- endfor %}{{ '<|im_end|>\\n' }}
{%- elif m.role == 'tool' %}{{ '<|im_start|>user\\n<tool_response>\\n' + m.content }}
{{- '\\n</tool_response><|im_end|>\\n' }}
{%- endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
"""Strict on purpose: one system message comes first, and arguments must be objects."""


def pieces_of(answer: str) -> list[str]:
    """The answer cut into words, each of which occurs once and is a token."""
    made: list[str] = []
    for word in re.findall(r"\s*[^\s]+\s*?", answer) or [answer]:
        while word in made or len(word) < 2:
            word = made.pop() + word if made else word + " "
        made.append(word)
    return made


def write_scripted(folder: Path, answer: str) -> Path:
    """Writes the checkpoint that answers with `answer`."""
    alphabet = sorted((chr(code) for code in range(33, 324) if len(bytes_of(chr(code))) == 1), key=bytes_of)
    pieces = pieces_of(answer)
    tokens = [*alphabet, END, OPEN, *pieces]
    ids = [len(alphabet) + 2 + place for place in range(len(pieces))]
    chain = [tokens.index(alphabet[10]), *ids]  # after a line end
    rows = -(-len(tokens) // 64) * 64
    embed, head = np.zeros((rows, rows), np.float32), np.zeros((rows, rows), np.float32)
    after = dict(zip(chain, chain[1:], strict=False))
    for row in range(rows):
        embed[row, row] = 1.0
        head[after.get(row, len(alphabet)), row] = 2.0
    folder.mkdir(parents=True)
    save_file(_tensors(rows, embed, head), folder / "model.safetensors")
    added = [_added(len(alphabet), END, True), _added(len(alphabet) + 1, OPEN, True)]
    added += [_added(token_id, piece, False) for token_id, piece in zip(ids, pieces, strict=True)]
    (folder / "tokenizer.json").write_text(json.dumps(_tokenizer(tokens, added)))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": END, "chat_template": TEMPLATE}))
    (folder / "config.json").write_text(json.dumps(_config(rows, len(alphabet))))
    return folder


def _tensors(hidden: int, embed: Any, head: Any) -> dict[str, Any]:
    wide, layer = HEAD * HEADS, "model.layers.0."
    projections = {f"{layer}self_attn.{name}_proj.weight": np.zeros((wide, hidden), np.float32) for name in "qkv"}
    gates = {f"{layer}mlp.{name}_proj.weight": np.zeros((64, hidden), np.float32) for name in ("gate", "up")}
    norms = [f"{layer}input_layernorm.weight", f"{layer}post_attention_layernorm.weight", "model.norm.weight"]
    return {
        "model.embed_tokens.weight": embed,
        "lm_head.weight": head,
        f"{layer}self_attn.o_proj.weight": np.zeros((hidden, wide), np.float32),
        f"{layer}mlp.down_proj.weight": np.zeros((hidden, 64), np.float32),
        **dict.fromkeys(norms, np.ones(hidden, np.float32)),
        **projections,
        **gates,
    }


def _config(rows: int, end: int) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": rows,
        "hidden_size": rows,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "head_dim": HEAD,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "eos_token_id": end,
        "torch_dtype": "float32",
        "hidden_act": "silu",
    }


def _added(token_id: int, text: str, special: bool) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": token_id, "content": text, "special": special, **flags}


def _tokenizer(tokens: list[str], added: list[dict[str, Any]]) -> dict[str, Any]:
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    names = {entry["content"] for entry in added}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "normalizer": None,
        "post_processor": None,
        "added_tokens": added,
        "pre_tokenizer": level,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "vocab": {token: place for place, token in enumerate(tokens) if token not in names},
            "merges": [],
        },
    }
