"""Folders of tiny retrieval models, as sentence-transformers writes them, with tokenizers and files next to the model.
What a judge made of them is kept (tests/kept.py), so that no judge is imported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from tests import kept
from tests.judged import code_of
from tests.models.families import stored

MARKS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
WORDS = (
    "the a of decode reads one token query passage time weights memory page cache what is [ ] SEP CLS yes no".split()
)
QUERY = "Instruct: Find what answers the query\nQuery:"
EXACT: dict[str, Any] = {"weights": "f32", "kv_format": "f32", "threads": 2, "context": 256, "kv_memory": "20MB"}
TEXTS = ["decode reads one token at a time", "a page", "What is the KV cache? " * 8]
BAR = 1e-4
"""The largest 1 - cosine."""


def cosine_error(found: np.ndarray, expected: np.ndarray) -> float:
    """The greatest 1 - cosine."""
    lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
    return float(1 - ((found * expected).sum(axis=1) / lengths).min())


def qwen_tokenizer() -> tokenizers.Tokenizer:
    """Byte-level; <|endoftext|> after a text, as Qwen3-Embedding has it."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {piece: place for place, piece in enumerate([*alphabet, "ye", "yes", "no"])}
    made = tokenizers.Tokenizer(models.BPE(vocab, [("y", "e"), ("ye", "s"), ("n", "o")]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(text, special=True) for text in MARKS])
    end = made.token_to_id(MARKS[0])
    made.post_processor = processors.TemplateProcessing(
        single=f"$A {MARKS[0]}", pair=f"$A $B {MARKS[0]}", special_tokens=[(MARKS[0], end)]
    )
    return made


def bert_tokenizer() -> tokenizers.Tokenizer:
    """WordPiece, lower case, [CLS] a [SEP] b [SEP] with token types."""
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *letters,
        *(f"##{each}" for each in letters),
        *WORDS,
        ".",
        "?",
    ]
    vocab = {word: place for place, word in enumerate(dict.fromkeys(words))}
    made = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.add_special_tokens([AddedToken(text, special=True) for text in words[:5]])
    special = [("[CLS]", vocab["[CLS]"]), ("[SEP]", vocab["[SEP]"])]
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=special
    )
    return made


def roberta_tokenizer() -> tokenizers.Tokenizer:
    """Unigram, <s> a </s></s> b </s>."""
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    words = ["<s>", "<pad>", "</s>", "<unk>", "▁", *letters, *(f"▁{word}" for word in WORDS), ".", "?"]
    made = tokenizers.Tokenizer(models.Unigram([(word, -1.0 - i / 10) for i, word in enumerate(words)], 3, False))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    made.decoder = decoders.Metaspace(prepend_scheme="always")
    made.add_special_tokens([AddedToken(text, special=True) for text in words[:4]])
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return made


def with_sentence_files(folder: Path, pooling: dict[str, Any], *, prompts: dict[str, str] | None = None) -> None:
    """modules.json and what it names."""
    steps = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    listed = [
        {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{name}"}
        for place, (path, name) in enumerate(steps)
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    if prompts is not None:
        (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts}))


def _write(folder: Path, kind: str, *asked: str) -> None:
    def make(place: Path) -> dict[str, Any]:
        from tests.retrieval import checkpoints

        getattr(checkpoints, kind)(place, *asked)
        return {}

    here = Path(__file__).parent
    sources = (code_of(here / name) for name in ("checkpoints.py", "folders.py"))
    folder.mkdir(parents=True, exist_ok=True)
    kept.made((kind, *asked, *sources, *stored.facts()), make).unpack(folder)


def write_embedding(folder: Path) -> None:
    """The folder of `checkpoints.qwen_embedding`."""
    _write(folder, "qwen_embedding")


def write_reranker(folder: Path) -> None:
    """The folder of `checkpoints.qwen_reranker`."""
    _write(folder, "qwen_reranker")


def write_encoder(folder: Path, family: str) -> None:
    """The folder of `checkpoints.encoder`."""
    _write(folder, "encoder", family)
