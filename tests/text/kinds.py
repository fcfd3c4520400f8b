"""Small tokenizers of every kind that detokenizers must handle, made during the tests."""

from __future__ import annotations

import functools

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers

from twostroke.text.special_tokens import SpecialTokens
from twostroke.text.tokenizer import Tokenizer

CORPUS = [
    "Prefill reads the whole prompt at once; decode reads one token at a time.",
    "naïve café, 你好世界, 🙂🚀 and ｆｕｌｌ",
    "def run(x):\n\treturn  x  # two  spaces",
    "don't you're it's . , !",
] * 8
SPECIALS = ["<s>", "</s>", "<|end|>"]


def _special(**texts: str) -> SpecialTokens:
    return SpecialTokens({"bos_token": "<s>", "eos_token": "</s>", **texts}, frozenset())


def byte_level() -> tokenizers.Tokenizer:
    """GPT-2, Llama 3 and Qwen style."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens(["<tool>", "naïve tôken"])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def byte_fallback() -> tokenizers.Tokenizer:
    """Llama 2 and Mistral style: SentencePiece BPE with <0xXX> tokens."""
    pieces = ["<unk>", *SPECIALS, *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", "▁▁", "▁a", "▁the", "t", "h", "e", "a", "ing", ".", "\n", "▁é", "你", "🙂", "▁<", "x▁y"]
    tokenizer = tokenizers.Tokenizer(
        models.BPE(
            vocab={piece: i for i, piece in enumerate(pieces)},
            merges=[("▁", "▁"), ("▁", "a")],
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in ("<unk>", *SPECIALS)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def metaspace() -> tokenizers.Tokenizer:
    """T5 style: Unigram with a space before the text."""
    words = ["<unk>", *SPECIALS, "▁", "▁a", "▁the", "s", "ing", "▁▁x", "é", "你", "🙂", ".", "▁.", "a▁b"]
    tokenizer = tokenizers.Tokenizer(models.Unigram([(word, -1.0 - i) for i, word in enumerate(words)], 0, False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in SPECIALS])
    return tokenizer


def word_piece() -> tokenizers.Tokenizer:
    """BERT style: ## joins."""
    words = ["[UNK]", *SPECIALS, "a", "##b", "the", "##ing", ".", ",", "do", "n't", "é", "##🙂", "'s", "!"]
    tokenizer = tokenizers.Tokenizer(models.WordPiece({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in SPECIALS])
    return tokenizer


def end_of_word() -> tokenizers.Tokenizer:
    """First BPE tokenizers: </w> marks the end of a word."""
    words = ["<unk>", *SPECIALS, "a", "b", "a</w>", "b</w>", "é</w>", "ab", ".</w>"]
    tokenizer = tokenizers.Tokenizer(models.BPE({w: i for i, w in enumerate(words)}, [], end_of_word_suffix="</w>"))
    tokenizer.decoder = decoders.BPEDecoder()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in SPECIALS])
    return tokenizer


def byte_level_in_sequence() -> tokenizers.Tokenizer:
    """Byte-level with a second decoder step."""
    tokenizer = byte_level()
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    return tokenizer


MAKERS = {
    "byte_level_in_sequence": byte_level_in_sequence,
    "byte_level": byte_level,
    "byte_fallback": byte_fallback,
    "metaspace": metaspace,
    "word_piece": word_piece,
    "end_of_word": end_of_word,
}


@functools.cache
def make(kind: str) -> Tokenizer:
    """The tokenizer of this kind (built once)."""
    return Tokenizer(MAKERS[kind](), _special())
