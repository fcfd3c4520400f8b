"""Encoders: BERT and RoBERTa, Nomic-BERT, ModernBERT, and classifiers on them.

Sources: conversion/bert.py of llama.cpp, MODEL_TENSORS of the `gguf` package. The converter leaves out the rows of
positions that RoBERTa keeps for padding, so that a file of RoBERTa is a file of BERT with another tokenizer. RoBERTa's
head is computed as BERT's pooler and classifier: a product, tanh, a product.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from twostroke.types.errors import CorruptModel, UnsupportedModel
from twostroke.types.pooling import Task
from twostroke.weights.gguf.families import dense
from twostroke.weights.gguf.families.family import Config, Family
from twostroke.weights.gguf.families.names import DENSE, Names
from twostroke.weights.gguf.keys import Keys
from twostroke.weights.gguf.pooling import RANK, pooling_number

NORM_EPS = {"layer_norm_epsilon": "layer_norm_eps"}
HEAD, SCORE = "cls.weight", "cls.output.weight"
"""Names of the stored tensors of a classifier: its first product, and its last one, which has a row for each label."""

BERT_OUTER: Names = {
    "token_embd": "bert.embeddings.word_embeddings",
    "position_embd": "bert.embeddings.position_embeddings",
    "token_types": "bert.embeddings.token_type_embeddings",
    "token_embd_norm": "bert.embeddings.LayerNorm",
}
BERT_LAYER: Names = {
    **{f"attn_{letter}": f"attention.self.{name}" for letter, name in {"q": "query", "k": "key", "v": "value"}.items()},
    "attn_output": "attention.output.dense",
    "attn_output_norm": "attention.output.LayerNorm",
    "ffn_up": "intermediate.dense",
    "ffn_down": "output.dense",
    "layer_output_norm": "output.LayerNorm",
}
NOMIC_OUTER: Names = {
    "token_embd": "embeddings.word_embeddings",
    "token_types": "embeddings.token_type_embeddings",
    "token_embd_norm": "emb_ln",
}
NOMIC_LAYER: Names = {
    "attn_qkv": "attn.Wqkv",
    "attn_output": "attn.out_proj",
    "attn_output_norm": "norm1",
    "ffn_up": "mlp.fc11",
    "ffn_gate": "mlp.fc12",
    "ffn_down": "mlp.fc2",
    "layer_output_norm": "norm2",
}
NOMIC_EXPERTS_LAYER: Names = {
    **{stem: name for stem, name in NOMIC_LAYER.items() if not stem.startswith("ffn_")},
    "ffn_up": "mlp.fc1",
    "ffn_down": "mlp.fc2",
    "ffn_gate_inp": "mlp.router.layer",
    "ffn_up_exps": "mlp.experts.{}.up_proj",
    "ffn_down_exps": "mlp.experts.{}.down_proj",
}
JINA3_LAYER: Names = {
    **{stem: name for stem, name in NOMIC_LAYER.items() if not stem.startswith("ffn_")},
    "attn_qkv": "mixer.Wqkv",
    "attn_output": "mixer.out_proj",
    "ffn_up": "mlp.fc1",
    "ffn_down": "mlp.fc2",
}
NEO_LAYER: Names = {
    "attn_norm": "attention_norm",
    "attn_qkv": "qkv",
    "attn_output": "wo",
    "ffn_norm": "ffn_norm",
    "ffn_up": "ffn.w12",
    "ffn_down": "ffn.w3",
}
MODERN_OUTER: Names = {
    "token_embd": "model.embeddings.tok_embeddings",
    "token_embd_norm": "model.embeddings.norm",
    "output_norm": "model.final_norm",
}
MODERN_LAYER: Names = {
    "attn_norm": "attn_norm",
    "attn_qkv": "attn.Wqkv",
    "attn_output": "attn.Wo",
    "ffn_norm": "mlp_norm",
    "ffn_up": "mlp.Wi",
    "ffn_down": "mlp.Wo",
}


def _scores(keys: Keys) -> str:
    """Returns "bert-classifier", the entry of FAMILIES for rerankers, where the file is a reranker's, else "". It is
    one if its pooling type is RANK, or if it has no pooling type and has a classifier."""
    number = pooling_number(keys)
    return "bert-classifier" if number == RANK or (number is None and keys.has_tensor(SCORE)) else ""


def _types(keys: Keys, _: Config) -> dict[str, Any]:
    keys.same("attention.causal", False)
    rows = keys.tensor_shape("token_types.weight")[0] if keys.has_tensor("token_types.weight") else 0
    return {"type_vocab_size": rows, "hidden_act": "gelu"}


def _classifier(keys: Keys, config: Config) -> dict[str, Any]:
    if not keys.has_tensor(SCORE):
        raise CorruptModel(
            f"{keys.place} is said to score pairs of texts, and has no {SCORE}.",
            why="bert.pooling_type is 4 (rank), and scores are the product with that tensor.",
            fix="Use a file that was made of the whole reranker.",
        )
    if not keys.has_tensor(HEAD):
        raise UnsupportedModel(
            f"{keys.place} has {SCORE} and no {HEAD}.",
            why="The converter leaves out BERT's pooler, and scores without it are not those of the model.",
            fix="Use the model's original checkpoint.",
        )
    return {**_types(keys, config), "num_labels": keys.tensor_shape(SCORE)[0]}


def _nomic(keys: Keys, config: Config) -> dict[str, Any]:
    said = _types(keys, config)
    return {"type_vocab_size": said["type_vocab_size"], "rope_theta": keys.number("rope.freq_base", 10000.0)}


def _nomic_experts(keys: Keys, config: Config) -> dict[str, Any]:
    """Returns the fields of Nomic's experts. All experts of the original model share one bias. The converter and
    llama.cpp leave this bias out, so such a file gives other results than the original model."""
    return {
        **_nomic(keys, config),
        "moe_every_n_layers": keys.number("moe_every_n_layers"),
        **dict.fromkeys(("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias", "experts_apart"), True),
    }


def _eurobert(keys: Keys, _: Config) -> dict[str, Any]:
    keys.same("attention.causal", False)
    keys.text("rope.scaling.type", "none")
    return {}


def _jina2(keys: Keys, config: Config) -> dict[str, Any]:
    """Returns the fields of Jina 2. Raises UnsupportedModel for files of the first converters, which have the gates of
    the feed-forward blocks as separate tensors."""
    if keys.has_tensor("ffn_gate.weight") or keys.has_tensor("attn_q_norm.weight"):
        raise UnsupportedModel(
            f"{keys.place} has gates, or norms of q and k, in tensors of their own.",
            why="Gates are read only as rows of ffn_up. Models of code have norms that other models do not have.",
            fix="Convert the model again with a current llama.cpp, or use its original checkpoint.",
        )
    said = _types(keys, config)
    return {**said, "feed_forward_type": "geglu", "position_embedding_type": "alibi"}


def _neobert(keys: Keys, _: Config) -> dict[str, Any]:
    """Returns the fields of NeoBERT. The width of the feed-forward blocks in the file is two thirds of
    intermediate_size in config.json."""
    keys.same("attention.causal", False)
    keys.text("rope.scaling.type", "none")
    inner = keys.tensor_shape("ffn_down.weight")[1]
    return {"intermediate_size": inner * 3 // 2}


def _gemma(keys: Keys, config: Config) -> dict[str, Any]:
    """Returns two fields for which there is no key: attention is bidirectional, and the size of a head gives the scale
    of attention scores."""
    keys.same("attention.causal", False)
    return {"query_pre_attn_scalar": int(config.get("head_dim", 256)), "use_bidirectional_attention": True}


def _modern(keys: Keys, config: Config) -> dict[str, Any]:
    """Returns the fields of ModernBERT. Files written before the key hidden_activation existed are of models with gelu.
    """
    keys.same("attention.causal", False)
    names = ("attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon")
    epsilon = next((keys.number(name) for name in names if keys.has(name)), 1e-5)
    full = config.get("rope_theta", 10_000.0)
    every = keys.number("attention.sliding_window_pattern", 3)
    return {
        "norm_eps": epsilon,
        "hidden_activation": keys.text("hidden_activation", "gelu"),
        "global_attn_every_n_layers": every if config.get("sliding_window") else 1,
        "local_rope_theta": keys.number("rope.freq_base_swa", full),
        "norm_bias": keys.has_tensor("ffn_norm.bias"),
        "mlp_bias": keys.has_tensor("ffn_up.bias"),
    }


FAMILIES: Mapping[str, Family] = {
    "bert": Family(
        "BertModel",
        "bert",
        BERT_LAYER,
        outer=BERT_OUTER,
        layers="bert.encoder.layer.",
        chosen=_scores,
        renamed=NORM_EPS,
        more=_types,
        task=Task.EMBED,
    ),
    "bert-classifier": Family(
        "BertForSequenceClassification",
        "bert",
        BERT_LAYER,
        outer={**BERT_OUTER, "cls": "bert.pooler.dense", "cls.output": "classifier"},
        layers="bert.encoder.layer.",
        renamed=NORM_EPS,
        more=_classifier,
        task=Task.RERANK,
    ),
    "nomic-bert": Family(
        "NomicBertModel",
        "nomic_bert",
        NOMIC_LAYER,
        outer=NOMIC_OUTER,
        layers="encoder.layers.",
        renamed=NORM_EPS,
        more=_nomic,
        task=Task.EMBED,
    ),
    "nomic-bert-moe": Family(
        "NomicBertModel",
        "nomic_bert",
        NOMIC_EXPERTS_LAYER,
        outer=NOMIC_OUTER,
        layers="encoder.layers.",
        fixed={"activation_function": "gelu"},
        keys={"expert_count": "num_experts"},
        renamed={**NORM_EPS, "num_experts_per_tok": "moe_top_k"},
        more=_nomic_experts,
        task=Task.EMBED,
    ),
    "jina-bert-v3": Family(
        "JinaEmbeddingsV3Model",
        "jina_embeddings_v3",
        JINA3_LAYER,
        outer=NOMIC_OUTER,
        layers="encoder.layers.",
        renamed=NORM_EPS,
        more=_types,
        task=Task.EMBED,
    ),
    "jina-bert-v2": Family(
        "JinaBertModel",
        "bert",
        {**BERT_LAYER, "ffn_up": "mlp.gated_layers", "ffn_down": "mlp.wo", "layer_output_norm": "mlp.layernorm"},
        outer={stem: name for stem, name in BERT_OUTER.items() if stem != "position_embd"},
        layers="bert.encoder.layer.",
        renamed=NORM_EPS,
        more=_jina2,
        task=Task.EMBED,
        written=False,
    ),
    "neo-bert": Family(
        "NeoBERT",
        "neobert",
        NEO_LAYER,
        outer={"token_embd": "model.encoder", "enc.output_norm": "model.layer_norm"},
        layers="model.transformer_encoder.",
        renamed={"rms_norm_eps": "norm_eps", "max_position_embeddings": "max_length", "intermediate_size": ""},
        more=_neobert,
        task=Task.EMBED,
        written=False,
    ),
    "eurobert": Family("EuroBertModel", "eurobert", DENSE, more=_eurobert, task=Task.EMBED),
    "gemma-embedding": replace(dense.FAMILIES["gemma3"], hf="Gemma3TextModel", more=_gemma, task=Task.EMBED),
    "modern-bert": Family(
        "ModernBertModel",
        "modernbert",
        MODERN_LAYER,
        outer=MODERN_OUTER,
        layers="model.layers.",
        windows=True,
        renamed={
            "sliding_window": "local_attention",
            "rms_norm_eps": "",
            "layer_norm_epsilon": "",
            "rope_theta": "global_rope_theta",
        },
        more=_modern,
        task=Task.EMBED,
    ),
}
