"""Tiny random checkpoints of retrieval models, made by the judge, and what it computes with them. Each function imports
the judge: tests that need none take tests/retrieval/folders.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from tests.retrieval.folders import QUERY, bert_tokenizer, qwen_tokenizer, roberta_tokenizer, with_sentence_files
from tests.weights.checkpoints import save

Product = dict[str, np.ndarray]
"""weight (outputs, inputs), and bias where it has one."""


def write(
    folder: Path,
    kind: str,
    config: Any,
    tokenizer: tokenizers.Tokenizer,
) -> Any:
    """A random float32 checkpoint with this tokenizer; returns the model of transformers. kind: its class."""
    import torch
    import transformers

    torch.manual_seed(7)
    model = getattr(transformers, kind)._from_config(config, attn_implementation="eager")
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


def rows_of(model: Any, ids: list[int]) -> np.ndarray:
    """Hidden states (T, hidden) of one text."""
    import torch

    with torch.no_grad():
        found: np.ndarray = model(torch.tensor([ids])).last_hidden_state[0].numpy()
    return found


def logits_of(model: Any, ids: list[int], **inputs: list[int]) -> np.ndarray:
    """The logits of one text: (T, V) of a model that generates, (labels,) of a classifier. inputs: further ones of the
    model."""
    import torch

    with torch.no_grad():
        made = model(torch.tensor([ids]), **{name: torch.tensor([values]) for name, values in inputs.items()})
    found: np.ndarray = made.logits[0].double().numpy()
    return found


def encoder(folder: Path, family: str) -> tuple[Any, tokenizers.Tokenizer]:
    """A random checkpoint of the family with a tokenizer of its kind."""
    from tests.models.families.encoders import ENCODERS

    library = roberta_tokenizer() if "roberta" in family or family == "mpnet" else bert_tokenizer()
    config = ENCODERS[family]()
    if "classifier" in family:
        config.num_labels = 1
    return write(folder, config.architectures[0], config, library), library


def with_dense_steps(folder: Path, *steps: tuple[Product, str], dtype: str = "F32") -> None:
    """Steps Dense between pooling and the norm. steps: a product, and the word of the function after it. dtype: the
    tensors' type, as safetensors calls it."""
    listed = json.loads((folder / "modules.json").read_text())
    for number, (product, function) in enumerate(steps, 2):
        place = folder / f"{number}_Dense"
        place.mkdir()
        sizes = dict(zip(("out_features", "in_features"), product["weight"].shape, strict=True))
        said = {**sizes, "bias": "bias" in product, "activation_function": f"torch.nn.modules.{function}"}
        (place / "config.json").write_text(json.dumps(said))
        save(place / "model.safetensors", {f"linear.{name}": values for name, values in product.items()}, dtype)
        listed.insert(number, {"path": place.name, "type": "sentence_transformers.models.Dense"})
    (folder / "modules.json").write_text(json.dumps(listed))


def qwen_config(**changes: Any) -> Any:
    """Tiny Qwen3."""
    import transformers

    from tests.models.families.dense import SIZES

    return transformers.Qwen3Config(
        **{**SIZES, "vocab_size": 271, "head_dim": 24, "tie_word_embeddings": True, **changes}
    )


def qwen_embedding(folder: Path, pooling: str = "lasttoken", **changes: Any) -> Any:
    """A checkpoint like Qwen3-Embedding's: named Qwen3ForCausalLM, without a head, with names without `model.`."""
    model = write(folder, "Qwen3Model", qwen_config(**changes), qwen_tokenizer())
    place = folder / "config.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), "architectures": ["Qwen3ForCausalLM"]}))
    with_sentence_files(folder, {f"pooling_mode_{pooling}": True}, prompts={"query": QUERY, "document": ""})
    return model


def qwen_reranker(folder: Path) -> Any:
    """A checkpoint like Qwen3-Reranker's: a causal model and nothing else."""
    return write(folder, "Qwen3ForCausalLM", qwen_config(max_position_embeddings=1024), qwen_tokenizer())
