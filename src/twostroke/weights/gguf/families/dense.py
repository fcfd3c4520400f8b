"""Dense decoders with rotary positions.

Sources: conversion/*.py of llama.cpp, MODEL_TENSORS of the `gguf` package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from twostroke.ops.operands import F32Array, I32Array
from twostroke.types.pooling import Task
from twostroke.weights.gguf.families.family import OUTER, Config, Family, Place, Shape
from twostroke.weights.gguf.families.key_row import KeyRow
from twostroke.weights.gguf.families.names import AFTER, ATTENTION, DENSE, SANDWICH, Names
from twostroke.weights.gguf.keys import Keys
from twostroke.weights.gguf.pooling import RANK, pooling_number

GEMMA_NORMS = frozenset(
    {"attn_norm", "ffn_norm", "output_norm", "post_attention_norm", "post_ffw_norm", "attn_q_norm", "attn_k_norm"}
)
JOINED: Names = {
    "attn_norm": "input_layernorm",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_up": "mlp.gate_up_proj",
    "ffn_down": "mlp.down_proj",
}
GRANITE = {
    "attention.scale": "attention_multiplier",
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "logit_scale": "logits_scaling",
}
GLM: Names = {
    **ATTENTION,
    "ffn_norm": "post_attention_layernorm",
    "ffn_up": "mlp.gate_up_proj",
    "ffn_down": "mlp.down_proj",
}
GLM4: Names = {**GLM, "post_attention_norm": "post_self_attn_layernorm", "post_ffw_norm": "post_mlp_layernorm"}
UNGATED: Names = {"ffn_norm": "post_attention_layernorm", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
HEAD_NORMS: Names = {"attn_q_norm": "self_attn.query_layernorm", "attn_k_norm": "self_attn.key_layernorm"}


def windows_of(keys: Keys, config: Config, slides: str = "sliding_attention", every: int = 4) -> dict[str, Any]:
    """Returns layer_types: which layers have a sliding window. The file tells this for each layer, or gives the length
    of a repeated pattern whose last layer has no window. Without both, the length is `every`. slides: the word for a
    layer with a window. A file without a window gets only sliding_window = None."""
    layers = int(config["num_hidden_layers"])
    key = "attention.sliding_window_pattern"
    period = keys.each(key, layers, every)
    if not config.get("sliding_window"):
        return {"sliding_window": None}
    if keys.has(key) and not set(period) <= {0, 1} or not keys.has(key):
        period = [int((index + 1) % each != 0) for index, each in enumerate(period)]
    return {"layer_types": [slides if each else "full_attention" for each in period]}


LOGIT_ROWS = (KeyRow("logit_scale", "logit_scale", float, silent=0.0625),)


def gemma_scores(wide: int) -> Any:
    """Returns a function for Family.more that computes the scale of attention scores, for which files have no key. The
    scale comes from the size of a head. Only in the model whose number of layers is `wide`, it comes from the model's
    width divided by the number of heads, as in llama.cpp."""

    def more(_: Keys, config: Config) -> dict[str, Any]:
        if config.get("num_hidden_layers") == wide:
            return {"query_pre_attn_scalar": config["hidden_size"] // config["num_attention_heads"]}
        return {"query_pre_attn_scalar": int(config.get("head_dim", 256))}

    return more


def _qwen_window(_: Keys, config: Config) -> dict[str, Any]:
    return {"use_sliding_window": False, "sliding_window": None}


def _asked(keys: Keys) -> str:
    return "qwen3-reranker" if pooling_number(keys) == RANK and keys.has_tensor("cls.output.weight") else ""


def _yes_and_no(keys: Keys, config: Config) -> dict[str, Any]:
    """Returns the fields of Qwen3-Reranker. The file's head has a row for yes, then a row for no."""
    labels = keys.texts("classifier.output_labels")
    if labels != ["yes", "no"]:
        said = ", ".join(labels)[:60] or "none"
        raise keys.wrong("classifier.output_labels", f"They must be yes and no, and are {said}.")
    return {**_qwen_window(keys, config), "id2label": {"0": "no", "1": "yes"}}


def _no_and_yes(_: Config, rows: int) -> I32Array:
    return np.arange(rows, dtype=np.int32)[::-1]


def _cohere2(keys: Keys, config: Config) -> dict[str, Any]:
    keys.text("rope.scaling.type", "none")
    return windows_of(keys, config)


def _cohere(keys: Keys, _: Config) -> dict[str, Any]:
    return {"use_qk_norm": keys.has_tensor("attn_q_norm.weight")}


def _olmo3(keys: Keys, config: Config) -> dict[str, Any]:
    if keys.has("rope.freq_base_swa"):
        keys.number("rope.freq_base_swa")
    return windows_of(keys, config)


def _olmo(keys: Keys) -> str:
    return "olmo3" if keys.has("attention.sliding_window") else ""


def _growing(keys: Keys, config: Config) -> dict[str, Any]:
    """Returns the rope of Ministral 3: YaRN, and a factor of the queries that grows with their position."""
    group = dict(config.get("rope_scaling") or {"rope_type": "default"})
    group |= {"rope_theta": config.get("rope_theta", 1e6)}
    if keys.has("attention.temperature_scale"):
        group["llama_4_scaling_beta"] = keys.number("attention.temperature_scale")
    if keys.has("rope.scaling.yarn_log_multiplier"):
        group |= {"mscale": 1.0, "mscale_all_dim": keys.number("rope.scaling.yarn_log_multiplier")}
    return {"rope_parameters": group, "rope_scaling": group}


def _hunyuan(keys: Keys, _: Config) -> dict[str, Any]:
    keys.ignore("rope.scaling.original_context_length")
    return {}


def _seed(keys: Keys, _: Config) -> dict[str, Any]:
    return {"attention_out_bias": keys.has_tensor("attn_output.bias")}


def _chatglm(keys: Keys, config: Config) -> dict[str, Any]:
    """Returns the width of a head, for which there is no key, from a tensor's shape."""
    dim = keys.tensor_shape("attn_q.weight")[0] // config["num_attention_heads"]
    return {"head_dim": dim, "partial_rotary_factor": keys.number("rope.dimension_count", dim) / dim}


def _ernie(keys: Keys, _: Config) -> dict[str, Any]:
    return {"use_bias": keys.has_tensor("attn_q.bias")}


NUMBERS_OF_XIELU: Mapping[str, Shape] = {"alpha_p": (1,), "alpha_n": (1,), "beta": (), "eps": ()}
"""The numbers of Apertus's activation (xIELU), and the shape of each as a tensor of a Hugging Face checkpoint."""


def _apertus(keys: Keys, config: Config) -> dict[str, Any]:
    """Returns the fields of Apertus. The file has the numbers of the xIELU activation as keys, one for each layer. If
    the file has no tensor with factors of the rotary frequencies, the rope is not scaled."""
    layers = int(config["num_hidden_layers"])
    rope = config.get("rope_scaling") or {"rope_type": "default"}
    numbers = {name: keys.floats(f"xielu.{name}", layers) for name in NUMBERS_OF_XIELU}
    return {"hidden_act": "xielu", "rope_scaling": rope, "xielu": numbers}


def _xielu_name(layer: int, name: str) -> str:
    return f"model.layers.{layer}.mlp.act_fn.{name}"


def _xielu_held(read: Callable[[str], F32Array], layers: int) -> dict[str, Any]:
    found = {
        name: [float(read(_xielu_name(layer, name)).reshape(-1)[0]) for layer in range(layers)]
        for name in NUMBERS_OF_XIELU
    }
    return {"xielu": found}


def _xielu_numbers(config: Config) -> dict[str, F32Array]:
    return {
        _xielu_name(layer, name): np.array(number, np.float32).reshape(shape)
        for name, shape in NUMBERS_OF_XIELU.items()
        for layer, number in enumerate(config["xielu"][name])
    }


def _jais2(keys: Keys, _: Config) -> dict[str, Any]:
    return {"mlp_bias": keys.has_tensor("ffn_up.bias")}


FAMILIES: dict[str, Family] = {
    "llama": Family(
        "LlamaForCausalLM",
        "llama",
        DENSE,
        pairs=True,
        chosen=lambda keys: "mixtral" if keys.has("expert_count") and keys.number("expert_count") else "",
    ),
    "qwen2": Family("Qwen2ForCausalLM", "qwen2", DENSE, windows=True, more=_qwen_window),
    "qwen3": Family("Qwen3ForCausalLM", "qwen3", DENSE, windows=True, chosen=_asked, more=_qwen_window),
    "qwen3-reranker": Family(
        "Qwen3ForSequenceClassification",
        "qwen3",
        DENSE,
        outer={**OUTER, "cls.output": Place("score", order=_no_and_yes)},
        windows=True,
        more=_yes_and_no,
        task=Task.RERANK,
    ),
    "gemma": Family(
        "GemmaForCausalLM", "gemma", DENSE, less_one=GEMMA_NORMS, fixed={"hidden_act": "gelu_pytorch_tanh"}
    ),
    "gemma2": Family(
        "Gemma2ForCausalLM",
        "gemma2",
        SANDWICH,
        less_one=GEMMA_NORMS,
        windows=True,
        fixed={"hidden_activation": "gelu_pytorch_tanh"},
        more=gemma_scores(46),
    ),
    "gemma3": Family(
        "Gemma3ForCausalLM",
        "gemma3_text",
        SANDWICH,
        less_one=GEMMA_NORMS,
        windows=True,
        fixed={"hidden_activation": "gelu_pytorch_tanh", "sliding_window_pattern": 6},
        keys={"rope.freq_base_swa": "rope_local_base_freq"},
        more=gemma_scores(62),
    ),
    "granite": Family("GraniteForCausalLM", "granite", DENSE, pairs=True, keys=GRANITE),
    "smollm3": Family("SmolLM3ForCausalLM", "smollm3", DENSE, pairs=True, fixed={"no_rope_layer_interval": 4}),
    "olmo2": Family("Olmo2ForCausalLM", "olmo2", AFTER, chosen=_olmo),
    "olmo3": Family("Olmo3ForCausalLM", "olmo3", AFTER, windows=True, more=_olmo3),
    "phi3": Family("Phi3ForCausalLM", "phi3", JOINED, windows=True, partial=True),
    "exaone4": Family("Exaone4ForCausalLM", "exaone4", AFTER, windows=True, more=windows_of),
    "command-r": Family(
        "CohereForCausalLM",
        "cohere",
        DENSE,
        renamed={"layer_norm_epsilon": "layer_norm_eps"},
        rows=LOGIT_ROWS,
        more=_cohere,
    ),
    "cohere2": Family(
        "Cohere2ForCausalLM",
        "cohere2",
        DENSE,
        windows=True,
        renamed={"layer_norm_epsilon": "layer_norm_eps"},
        rows=LOGIT_ROWS,
        more=_cohere2,
    ),
    "chatglm": Family("GlmForCausalLM", "glm", GLM, apart=True, more=_chatglm),
    "glm4": Family(
        "Glm4ForCausalLM",
        "glm4",
        GLM4,
        partial=True,
        chosen=lambda keys: "glm4v" if keys.has("rope.dimension_sections") else "",
    ),
    "seed_oss": Family(
        "SeedOssForCausalLM",
        "seed_oss",
        {**DENSE, "post_attention_norm": "post_attention_layernorm"},
        more=_seed,
    ),
    "ernie4_5": Family("Ernie4_5ForCausalLM", "ernie4_5", DENSE, more=_ernie),
    "hunyuan-dense": Family("HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense", {**DENSE, **HEAD_NORMS}, more=_hunyuan),
    "arcee": Family("ArceeForCausalLM", "arcee", {**ATTENTION, **UNGATED}, pairs=True, fixed={"hidden_act": "relu2"}),
    "jais2": Family(
        "Jais2ForCausalLM",
        "jais2",
        {**ATTENTION, **UNGATED},
        fixed={"hidden_act": "relu2"},
        renamed={"layer_norm_epsilon": "layer_norm_eps"},
        more=_jais2,
    ),
    "apertus": Family(
        "ApertusForCausalLM",
        "apertus",
        {**ATTENTION, **UNGATED, "attn_norm": "attention_layernorm", "ffn_norm": "feedforward_layernorm"},
        more=_apertus,
        numbers=_xielu_numbers,
        held=_xielu_held,
    ),
    "mistral3": Family("Ministral3ForCausalLM", "ministral3", DENSE, pairs=True, more=_growing),
}

__all__ = ["FAMILIES", "GRANITE", "HEAD_NORMS", "JOINED", "Place", "gemma_scores", "windows_of"]
