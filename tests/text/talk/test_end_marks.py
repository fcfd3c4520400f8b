"""The marks that end an answer, written down a second time, so that a change by mistake is found.

A template often writes the same mark, and then no other test finds a wrong one in the format. The table was written
from the formats themselves. So it does not find a mark that differs from its publisher's since the beginning.
"""

from __future__ import annotations

from twostroke.text.talk.catalog import FORMATS

ENDS: dict[str, tuple[str, ...]] = {
    "harmony": ("<|return|>", "<|call|>"),
    "atem": ("<|eot|>",),
    "solar": ("<|calls|>", "<|flush|>"),
    "functionary32": ("<|eot_id|>",),
    "kimi_k3": (),
    "kimi": ("<|im_end|>",),
    "deepseek3": ("<｜end▁of▁sentence｜>",),
    "deepseek31": ("<｜end▁of▁sentence｜>",),
    "mistral_ids": ("</s>",),
    "mistral": ("</s>",),
    "mistral_list": ("</s>",),
    "gemma4": ("<turn|>", "<|tool_response>", "<eos>"),
    "functiongemma": ("<end_of_turn>", "<start_function_response>"),
    "lfm2": ("<|im_end|>",),
    "minimax_m3": ("[e~[",),
    "minimax_m2": ("[e~[",),
    "dsml": ("<｜end▁of▁sentence｜>",),
    "dsml32": ("<｜end▁of▁sentence｜>",),
    "seed": ("<seed:eos>",),
    "step3": (),
    "hunyuan3": ("<｜hy_eos:opensource｜>",),
    "longcat": (),
    "glm": ("<|user|>", "<|observation|>", "<|endoftext|>"),
    "glm47": ("<|user|>", "<|observation|>", "<|endoftext|>"),
    "minicpm5": ("<|im_end|>",),
    "cohere": ("<|END_OF_TURN_TOKEN|>",),
    "command_r": ("<|END_OF_TURN_TOKEN|>",),
    "apertus": ("<|assistant_end|>",),
    "internlm": ("<|im_end|>",),
    "phi4_mini": ("<|end|>",),
    "granite3": ("<|end_of_text|>",),
    "tool_calls": ("<|eom|>",),
    "hunyuan": ("<|eos|>",),
    "apriel": ("<|end|>",),
    "minimax_m1": (),
    "nemotron": ("<SPECIAL_12>",),
    "functools": (),
    "olmo3": ("<|im_end|>",),
    "qwen3_coder": ("<|im_end|>",),
    "functionary31": ("<|eot_id|>", "<|eom_id|>"),
    "llama4": ("<|eot|>", "<|eom|>"),
    "hermes": ("<|im_end|>",),
    "llama3": ("<|eot_id|>", "<|eom_id|>"),
    "xlam": (),
}
"""The tokens after which a model of this format has ended its turn. Formats without a mark of their own end as the
model's configuration tells."""


def test_each_format_ends_an_answer_with_the_marks_of_the_table() -> None:
    assert {name: form.ends for name, form in FORMATS.items()} == ENDS
