"""Tiny random checkpoints of retrieval models, with tokenizers and the files that sentence-transformers writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from safetensors.torch import save_file
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from tests.models.families.dense import SIZES

MARKS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
WORDS = (
    "the a of decode reads one token query passage time weights memory page cache what is [ ] SEP CLS yes no".split()
)
QUERY = "Instruct: Find what answers the query\nQuery:"


def qwen_tokenizer() -> tokenizers.Tokenizer:
    """A byte-level tokenizer with <|endoftext|> after a text, as Qwen3-Embedding has it."""
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
    """A WordPiece tokenizer in lower case: [CLS] a [SEP] b [SEP], with token types."""
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
    """A Unigram tokenizer: <s> a </s></s> b </s>."""
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


def write(
    folder: Path,
    kind: type[transformers.PreTrainedModel],
    config: transformers.PretrainedConfig,
    tokenizer: tokenizers.Tokenizer,
) -> transformers.PreTrainedModel:
    """Writes a random float32 checkpoint with this tokenizer. Returns the transformers model."""
    torch.manual_seed(7)
    model = kind._from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.copy_(0.3 * torch.randn_like(parameter))
            elif parameter.ndim == 1:
                parameter.copy_(1 + 0.3 * torch.randn_like(parameter))
    model.eval().save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text("{}")
    return model


def with_sentence_files(folder: Path, pooling: dict[str, Any], *, prompts: dict[str, str] | None = None) -> None:
    """Adds modules.json and the files that it names."""
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


def with_dense_steps(folder: Path, *steps: tuple[torch.nn.Linear, str], dtype: torch.dtype = torch.float32) -> None:
    """Adds the steps Dense between pooling and the norm. steps: a product, and the name of the function after it."""
    listed = json.loads((folder / "modules.json").read_text())
    for number, (product, function) in enumerate(steps, 2):
        place = folder / f"{number}_Dense"
        place.mkdir()
        sizes = {"in_features": product.in_features, "out_features": product.out_features}
        said = {**sizes, "bias": product.bias is not None, "activation_function": f"torch.nn.modules.{function}"}
        (place / "config.json").write_text(json.dumps(said))
        tensors = {f"linear.{name}": tensor.detach().to(dtype) for name, tensor in product.named_parameters()}
        save_file(tensors, place / "model.safetensors")
        listed.insert(number, {"path": place.name, "type": "sentence_transformers.models.Dense"})
    (folder / "modules.json").write_text(json.dumps(listed))


def qwen_config(**changes: Any) -> transformers.PretrainedConfig:
    """Tiny Qwen3."""
    return transformers.Qwen3Config(
        **{**SIZES, "vocab_size": 271, "head_dim": 24, "tie_word_embeddings": True, **changes}
    )


def qwen_embedding(folder: Path, pooling: str = "lasttoken", **changes: Any) -> transformers.PreTrainedModel:
    """A checkpoint like Qwen3-Embedding's: named Qwen3ForCausalLM, without a head, with names without `model.`."""
    model = write(folder, transformers.Qwen3Model, qwen_config(**changes), qwen_tokenizer())
    place = folder / "config.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), "architectures": ["Qwen3ForCausalLM"]}))
    with_sentence_files(folder, {f"pooling_mode_{pooling}": True}, prompts={"query": QUERY, "document": ""})
    return model


def qwen_reranker(folder: Path) -> transformers.PreTrainedModel:
    """A checkpoint like Qwen3-Reranker's: a causal model and nothing else."""
    return write(folder, transformers.Qwen3ForCausalLM, qwen_config(max_position_embeddings=1024), qwen_tokenizer())
