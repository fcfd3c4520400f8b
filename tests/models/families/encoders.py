"""Tiny configs of encoders and of the classifiers on them, by the names that tests use."""

from __future__ import annotations

from typing import Any

import transformers

from tests.models.families.dense import SIZES, Config

PLAIN: dict[str, Any] = {
    **{name: value for name, value in SIZES.items() if name != "num_key_value_heads"},
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
}


def _encoder(of: type[transformers.PretrainedConfig], architecture: str, **changes: Any) -> Config:
    return lambda: of(**{**PLAIN, "architectures": [architecture], **changes})


def bert(architecture: str = "BertModel", **changes: Any) -> Config:
    """BERT."""
    return _encoder(transformers.BertConfig, architecture, **changes)


def xlm_roberta(architecture: str = "XLMRobertaModel", **changes: Any) -> Config:
    """XLM-RoBERTa, with one token type and places after the padding's."""
    own = {"type_vocab_size": 1, "pad_token_id": 1, **changes}
    return _encoder(transformers.XLMRobertaConfig, architecture, **own)


def roberta(architecture: str = "RobertaModel", **changes: Any) -> Config:
    """RoBERTa."""
    own = {"type_vocab_size": 1, "pad_token_id": 1, **changes}
    return _encoder(transformers.RobertaConfig, architecture, **own)


def nomic(**changes: Any) -> Config:
    """Nomic-BERT."""
    return _encoder(transformers.NomicBertConfig, "NomicBertModel", head_dim=16, **changes)


def modernbert(architecture: str = "ModernBertModel", **changes: Any) -> Config:
    """ModernBERT, with windows shorter than the texts."""
    tokens = {"bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
    own = {**tokens, "num_hidden_layers": 4, "local_attention": 20, **changes}
    return _encoder(transformers.ModernBertConfig, architecture, **own)


def gemma_vectors(**changes: Any) -> Config:
    """EmbeddingGemma, with attention in both directions and windows shorter than the texts."""
    own = {"head_dim": 24, "sliding_window": 20, "num_hidden_layers": 3, "num_key_value_heads": 2}
    layers = {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
    given = {**SIZES, **own, **layers, "use_bidirectional_attention": True, **changes}
    return lambda: transformers.Gemma3TextConfig(architectures=["Gemma3TextModel"], **given)


def distilbert(architecture: str = "DistilBertModel", **changes: Any) -> Config:
    """DistilBERT, whose fields have names of their own."""
    own = {"vocab_size": 199, "dim": 64, "n_layers": 3, "n_heads": 4, "hidden_dim": 112}
    given = {**own, "max_position_embeddings": 256, "initializer_range": 0.2, **changes}
    return lambda: transformers.DistilBertConfig(architectures=[architecture], **given)


def deberta(architecture: str = "DebertaV2Model", **changes: Any) -> Config:
    """DeBERTa 3, with places of several distances within the texts."""
    buckets = {"relative_attention": True, "position_buckets": 16, "share_att_key": True}
    own = {**buckets, "norm_rel_ebd": "layer_norm", "position_biased_input": False, "pos_att_type": ["p2c", "c2p"]}
    return _encoder(transformers.DebertaV2Config, architecture, **{**own, **changes})


def t5(**changes: Any) -> Config:
    """T5's encoder, whose fields have names of their own."""
    sizes = {"vocab_size": 199, "d_model": 64, "d_kv": 24, "d_ff": 112, "num_layers": 3, "num_heads": 4}
    own = {"relative_attention_num_buckets": 16, "relative_attention_max_distance": 30}
    return lambda: transformers.T5Config(architectures=["T5EncoderModel"], **{**sizes, **own, **changes})


ENCODERS: dict[str, Config] = {
    "bert": bert(),
    "bert-odd-sizes": bert(hidden_size=45, num_attention_heads=3, intermediate_size=77, hidden_act="relu"),
    "bert-classifier": bert("BertForSequenceClassification", num_labels=5),
    "xlm-roberta": xlm_roberta(),
    "xlm-roberta-classifier": xlm_roberta("XLMRobertaForSequenceClassification", num_labels=5),
    "roberta": roberta(),
    "roberta-classifier": roberta("RobertaForSequenceClassification", num_labels=5),
    "nomic-bert": nomic(),
    "modernbert": modernbert(),
    "modernbert-biases": modernbert(attention_bias=True, mlp_bias=True, norm_bias=True, local_attention=2),
    "modernbert-classifier": modernbert("ModernBertForSequenceClassification", classifier_bias=True, num_labels=5),
    "embedding-gemma": gemma_vectors(),
    "eurobert": _encoder(
        transformers.EuroBertConfig, "EuroBertModel", num_key_value_heads=2, head_dim=24, mask_token_id=3
    ),
    "jina-embeddings-v3": _encoder(transformers.JinaEmbeddingsV3Config, "JinaEmbeddingsV3Model"),
    "gte": _encoder(transformers.GteConfig, "GteModel", type_vocab_size=0),
    "gte-classifier": _encoder(transformers.GteConfig, "GteForSequenceClassification", num_labels=5),
    "camembert": _encoder(transformers.CamembertConfig, "CamembertModel", type_vocab_size=1, pad_token_id=1),
    "camembert-classifier": _encoder(
        *(transformers.CamembertConfig, "CamembertForSequenceClassification"),
        **{"type_vocab_size": 1, "pad_token_id": 1, "num_labels": 5},
    ),
    "albert": _encoder(transformers.AlbertConfig, "AlbertModel", embedding_size=36),
    "albert-classifier": _encoder(
        *(transformers.AlbertConfig, "AlbertForSequenceClassification"),
        **{"embedding_size": 36, "num_hidden_groups": 2, "inner_group_num": 2, "num_labels": 5},
    ),
    "mpnet": _encoder(transformers.MPNetConfig, "MPNetModel", pad_token_id=1),
    "mpnet-classifier": _encoder(
        transformers.MPNetConfig, "MPNetForSequenceClassification", pad_token_id=1, num_labels=5
    ),
    "t5": t5(),
    "t5-gated": t5(feed_forward_proj="gated-gelu"),
    "deberta-v3": deberta(),
    "deberta-v2-own-matrices": deberta(
        **{"share_att_key": False, "position_buckets": -1, "norm_rel_ebd": "none", "max_relative_positions": 20},
        **{"position_biased_input": True, "type_vocab_size": 2},
    ),
    "deberta-v2-one-kind": deberta(pos_att_type=["c2p"], share_att_key=False),
    "deberta-classifier": deberta("DebertaV2ForSequenceClassification", num_labels=5),
    "distilbert": distilbert(),
    "distilbert-classifier": distilbert("DistilBertForSequenceClassification", num_labels=5),
    "electra": _encoder(transformers.ElectraConfig, "ElectraModel", embedding_size=64),
    "electra-classifier": _encoder(
        transformers.ElectraConfig, "ElectraForSequenceClassification", embedding_size=36, num_labels=5
    ),
}
