"""The ways in which texts are split before merges, by the name that a GGUF file gives its tokenizer
(`tokenizer.ggml.pre`).

Each entry is a list of patterns, used one after the other: a match of a pattern is one piece, and the text between two
matches is another. Source: the tokenizer.json of the models for which the names stand, as llama-vocab.cpp of llama.cpp
lists them. A name without an entry is refused.
"""

from __future__ import annotations

from msgspec import Struct

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r"\s*[\r\n]+|\s+(?!\S)|\s+"
SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{SYMBOLS}|{REST}"
QWEN2 = rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{SYMBOLS}|{REST}"
QWEN35 = rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{REST}"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASED = r"[^\r\n\p{L}\p{N}]?"
TEKKEN = rf"{CASED}{UPPER}*{LOWER}+|{CASED}{UPPER}+{LOWER}*|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{REST}"
GPT4O = (
    rf"{CASED}{UPPER}*{LOWER}+{CONTRACTIONS}?|{CASED}{UPPER}+{LOWER}*{CONTRACTIONS}?|\p{{N}}{{1,3}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{REST}"
)
DEEPSEEK_V3 = (
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
)
DEEPSEEK_LETTERS = (
    "[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅ"
    "Ὀ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯ"
    "ꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]"
)
DEEPSEEK_LLM = (
    r"[\r\n]",
    rf"\s?{DEEPSEEK_LETTERS}+",
    r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
    r"\s+$",
    "[一-龥ࠀ-一가-\ud7ff]+",
    r"\p{N}+",
)
DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\ud7ff]+", r"\p{N}")
FALCON = (r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]")
NEWLINES = (r"[^\n]+|[\n]+",)


class PreSplit(Struct, frozen=True):
    """whole_words: True where a piece that is a token is taken unchanged, whatever the merges would make of it.

    begins: whether BOS stands before a text where the file has no key for this. composed: True where texts are
    converted to NFC first.
    """

    patterns: tuple[str, ...]
    whole_words: bool = False
    begins: bool = False
    composed: bool = False


_LLAMA3 = PreSplit((LLAMA3,), whole_words=True, begins=True)
_GPT2 = PreSplit((GPT2,))
_DIGITS = PreSplit((r"\p{N}", GPT2))
_QWEN2 = PreSplit((QWEN2,), composed=True)

PRE_SPLITS: dict[str, PreSplit] = {
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "lfm2"), _LLAMA3),
    **dict.fromkeys(("dbrx", "smaug-bpe"), PreSplit((LLAMA3,))),
    **dict.fromkeys(("glm4", "chatglm-bpe"), PreSplit((LLAMA3,), whole_words=True)),
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "olmo", "jais", "mellum", "exaone4", "trillion", "roberta-bpe"), _GPT2),
    "modern-bert": PreSplit((GPT2,), composed=True),
    **dict.fromkeys(("smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b"), _DIGITS),
    "command-r": PreSplit((r"\p{N}", GPT2), composed=True),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez", "stablelm2", "hunyuan"), _QWEN2),
    "qwen35": PreSplit((QWEN35,), composed=True),
    "tekken": PreSplit((TEKKEN,), whole_words=True, begins=True),
    **dict.fromkeys(("gpt-4o", "llama4"), PreSplit((GPT4O,))),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense"), PreSplit(DEEPSEEK_V3)),
    "deepseek-llm": PreSplit(DEEPSEEK_LLM),
    "deepseek-coder": PreSplit(DEEPSEEK_CODER),
    "falcon": PreSplit(FALCON),
}
