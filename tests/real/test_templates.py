"""Chat templates of published models: the format that is found, the words that reach the prompt, and the end of a turn.

They are read from the wheel of trl, and nothing in it is run. The tables are lower bounds: their entries must hold.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from tests.serve.fakes import END_ID, MODEL, VOCAB, FakeEngine, fake_parts
from twostroke.engine.limits import EngineLimits
from twostroke.server.prompts import chat_call
from twostroke.text.talk.ends import turn_end_ids
from twostroke.text.talk.format import Format
from twostroke.text.talk.learn.derive import derived
from twostroke.text.talk.learn.find import ends_of_turns, find_format
from twostroke.text.talk.learn.probe import TemplateProbe
from twostroke.text.templates.chat_template import ChatTemplate

TOKEN = re.compile(r"<\|[^|<>{}\s]+\|?>|<｜[^｜<>{}\s]+｜>|<[a-z_]+\|>|</?[a-z_]+>|\[/?[A-Z_]+\]")
"""The marks of templates that are special tokens, or may be."""
DEEPSEEK_CALLS = tuple(f"<｜tool▁{name}｜>" for name in ("calls▁begin", "call▁begin", "sep", "call▁end", "calls▁end"))
TOKENS_ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    "deepseek_r1_distill": DEEPSEEK_CALLS,
    "lfm2": ("<|tool_call_start|>", "<|tool_call_end|>"),
}
"""Tokens of the model's vocabulary that its template does not write."""
BOS, EOS = "<s>", "</s>"

HAND, COMMON = "by hand", "common"
FOUND: Mapping[str, tuple[str, str]] = {
    "cohere": (COMMON, "<|END_OF_TURN_TOKEN|>"),
    "cohere2": (COMMON, "<|END_OF_TURN_TOKEN|>"),
    "deepseek_r1_distill": ("deepseek3", "<｜end▁of▁sentence｜>"),
    "deepseekv3": ("deepseek3", "<｜end▁of▁sentence｜>"),
    "diffusion_gemma": ("gemma4", "<turn|>"),
    "gemma": (COMMON, "<end_of_turn>"),
    "gemma3": (COMMON, "<end_of_turn>"),
    "gemma4": ("gemma4", "<turn|>"),
    "gemma4_v2": ("gemma4", "<turn|>"),
    "gemma4_v3": ("gemma4", "<turn|>"),
    "gemma4_v4": ("gemma4", "<turn|>"),
    "gemma4_v5": ("gemma4", "<turn|>"),
    "glm4moe": ("glm", "<|user|>"),
    "gptoss": ("harmony", "<|return|>"),
    "idefics3": (COMMON, "<end_of_utterance>"),
    "lfm2": ("lfm2", "<|im_end|>"),
    "lfm2_2_5": ("lfm2", "<|im_end|>"),
    "lfm2_2_5_v2": ("lfm2", "<|im_end|>"),
    "lfm2_2_5_vl": ("lfm2", "<|im_end|>"),
    "lfm2_v2": ("lfm2", "<|im_end|>"),
    "llama3": (COMMON, "<|eot_id|>"),
    "llama3_1": ("llama3", "<|eot_id|>"),
    "llama3_2": ("llama3", "<|eot_id|>"),
    "llava_next": (COMMON, EOS),
    "muse_glimmer": ("atem", "<|eot|>"),
    "nemotron_3_5_lightning": ("qwen3_coder", "<|im_end|>"),
    "nemotron_3_nano": ("qwen3_coder", "<|im_end|>"),
    "nemotron_3_super": ("qwen3_coder", "<|im_end|>"),
    "nemotron_3_ultra": ("qwen3_coder", "<|im_end|>"),
    "phi3": (COMMON, "<|end|>"),
    "phi3_5": (COMMON, "<|end|>"),
    "qwen2_5": ("hermes", "<|im_end|>"),
    "qwen2_5_vl": (COMMON, "<|im_end|>"),
    "qwen3": ("hermes", "<|im_end|>"),
    "qwen3_5_nothink": ("qwen3_coder", "<|im_end|>"),
    "qwen3_5_think": ("qwen3_coder", "<|im_end|>"),
    "qwen3_6": ("qwen3_coder", "<|im_end|>"),
    "qwen3_8": ("qwen3_coder", "<|im_end|>"),
    "qwen3_instruct_2507": ("hermes", "<|im_end|>"),
    "qwen3_vl": ("hermes", "<|im_end|>"),
    "smolvlm": (COMMON, "<end_of_utterance>"),
}
"""Name -> the format that is found, and the token that ends a turn."""
DERIVED = frozenset(
    name
    for name, (form, _) in FOUND.items()
    if form in ("glm", "hermes", "llama3", "qwen3_coder") or name in ("lfm2_2_5_vl", "lfm2_v2")
)
"""The templates from which a format follows that reads their own turns, without any format by hand."""
LOST: Mapping[str, frozenset[str]] = {
    "deepseek_r1_distill": frozenset({"qzMon", "qzTue", "qzbell", "qzabout"}),
    "deepseekv3": frozenset({"qzabout"}),
    "gptoss": frozenset({"qzbeside"}),
    "lfm2": frozenset({"qzMon", "qzTue"}),
    "llama3_1": frozenset({"qzbeside"}),
    "llama3_2": frozenset({"qzbeside"}),
    "muse_glimmer": frozenset({"qzbeside"}),
}
"""Words of the conversation that do not reach the prompt. These are misses, and there may be no more of them."""


class Vocabulary:
    """A vocabulary in which each mark is a special token, and any other character is a token of its own."""

    def __init__(self, name: str, source: str) -> None:
        self._texts = sorted({*TOKEN.findall(source), *TOKENS_ELSEWHERE.get(name, ()), BOS, EOS})
        self.special_ids = frozenset(range(len(self._texts)))

    def id_of(self, token: str) -> int | None:
        return self._texts.index(token) if token in self._texts else None

    def token_text(self, token_id: int) -> str:
        return self._texts[token_id] if token_id < len(self._texts) else "?"

    def encode_rendered(self, text: str) -> list[int]:
        longest_first = sorted(self._texts, key=len, reverse=True)
        pieces = re.findall("|".join([*map(re.escape, longest_first), r"(?s:.)"]), text)
        return [self._texts.index(piece) if piece in self._texts else len(self._texts) for piece in pieces]


def template_of(source: str) -> ChatTemplate:
    return ChatTemplate({"default": source}, {"bos_token": BOS, "eos_token": EOS})


@cache
def format_of(name: str, source: str) -> Format:
    return find_format(template_of(source), Vocabulary(name, source))


def test_the_wheel_has_these_templates_and_no_others(published_templates: dict[str, str]) -> None:
    assert set(published_templates) == set(FOUND) and len(FOUND) == 41


@pytest.mark.parametrize("name", FOUND)
def test_the_format_is_found(name: str, published_templates: dict[str, str]) -> None:
    found = format_of(name, published_templates[name])
    assert found.name == FOUND[name][0], found.note
    right = re.search(r"(\d+) of (\d+) turns were read back", found.note)
    assert right is None or int(right[1]) >= int(right[2]) - 1, found.note


@pytest.mark.parametrize("name", FOUND)
def test_an_end_of_a_turn_is_found(name: str, published_templates: dict[str, str]) -> None:
    source = published_templates[name]
    vocabulary = Vocabulary(name, source)
    ends = {vocabulary.token_text(token_id) for token_id in turn_end_ids(template_of(source), vocabulary)}
    assert FOUND[name][1] in ends | set(format_of(name, source).ends)


@pytest.mark.parametrize("name", sorted(DERIVED))
def test_a_format_follows_from_the_template_alone(name: str, published_templates: dict[str, str]) -> None:
    source = published_templates[name]
    vocabulary = Vocabulary(name, source)
    ends = ends_of_turns(vocabulary.token_text(token_id) for token_id in vocabulary.special_ids)
    found = derived(TemplateProbe(template_of(source)), ends)
    assert found is not None and "read back" in found.note


def _call(call_id: str, name: str, arguments: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def _tool(name: str, about: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "description": about, "parameters": parameters}}


TOOLS = [_tool("qzhours", "qzabout", day={"type": "string"}), _tool("qzbell", "")]
LONG_ID, OTHER_ID = "call_abcdef0123456789", "toolu_1"
HISTORY: list[dict[str, Any]] = [
    {"role": "system", "content": "qzsystem"},
    {"role": "user", "content": "qzone"},
    {"role": "user", "content": [{"type": "text", "text": "qztwo"}, {"type": "text", "text": "qzthree"}]},
    {
        "role": "assistant",
        "content": "qzbeside",
        "reasoning_content": "qzthought",
        "tool_calls": [_call(LONG_ID, "qzhours", {"day": "qzMon"}), _call(OTHER_ID, "qzhours", {"day": "qzTue"})],
    },
    {"role": "tool", "tool_call_id": LONG_ID, "content": [{"type": "text", "text": "qznine"}]},
    {"role": "tool", "tool_call_id": OTHER_ID, "content": "qzten"},
    {"role": "assistant", "content": None, "tool_calls": [_call("x", "qzbell", {})]},
    {"role": "tool", "tool_call_id": "x", "content": ""},
    {"role": "assistant", "content": ""},
    {"role": "assistant", "content": "qzanswer"},
    {"role": "user", "content": "qzlast"},
]
"""Two users in a row, parts, a text next to calls, two calls in a turn, foreign ids, and empty results and answers."""
WORDS = "qzsystem qzone qztwo qzthree qzbeside qzMon qzTue qznine qzten qzbell qzanswer qzlast qzabout".split()
ROOM = 60_000


@pytest.mark.parametrize("name", FOUND)
def test_tools_and_a_history_of_any_form_reach_the_prompt(name: str, published_templates: dict[str, str]) -> None:
    source = published_templates[name]
    engine = FakeEngine()
    engine.limits = EngineLimits(ROOM, VOCAB, pool_tokens=ROOM, end_token_ids=frozenset({END_ID}))
    own = {"template": template_of(source), "format": format_of(name, source)}
    parts = fake_parts(engine, context_tokens=ROOM, **own)
    body = json.dumps({"model": MODEL, "messages": HISTORY, "tools": TOOLS}).encode()
    prompt = bytes(chat_call(body, parts.serving).prompts[0].token_ids).decode()
    missing = {word for word in WORDS if word not in prompt}
    assert missing <= LOST.get(name, frozenset()), prompt
