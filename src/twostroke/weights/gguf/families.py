"""The architectures of GGUF files, as what Hugging Face calls them: one table, and what converters did to the tensors.

A new architecture is an entry here, beside its model file. Names: MODEL_TENSORS of the `gguf` package. What converters
change (rows of q and k in pairs, norms with one added): convert_hf_to_gguf.py of llama.cpp.

Knows: names on both sides.
Must not know: files, how values are read, model files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True)
class Family:
    """hf: what `architectures` of config.json would say. outer, layer: our stem -> theirs; `{}` in it is an expert.

    layers: what stands before a layer's number. pairs: rows of q and k lie as pairs that turn together, and are put
    back into halves. less_one: tensors whose values had one added. turned: matrices that are stored as (columns, rows)
    in our checkpoints. experts: what a file of this family with experts is read as. windows: whether it may have a
    sliding window. fixed: fields that all of them have. keys: those that this family alone has, and what config.json
    calls them. renamed: our usual field -> theirs. wide: the one model whose scores are scaled by its width for each
    head has so many layers; no key says so, and llama.cpp goes by this too. partial: whether less than a whole head may
    turn.
    """

    hf: str
    model_type: str
    outer: Mapping[str, str]
    layer: Mapping[str, str]
    layers: str = "model.layers."
    pairs: bool = False
    less_one: frozenset[str] = frozenset()
    turned: frozenset[str] = frozenset()
    experts: str = ""
    windows: bool = False
    fixed: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    keys: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    renamed: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    wide: int = 0
    partial: bool = False


OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
ATTENTION = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
}
GATED = {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
DENSE = {**ATTENTION, "ffn_norm": "post_attention_layernorm", **GATED}
EXPERTS = {
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.{}.gate_proj",
    "ffn_up_exps": "mlp.experts.{}.up_proj",
    "ffn_down_exps": "mlp.experts.{}.down_proj",
}
MIXTRAL_EXPERTS = {
    "ffn_gate_inp": "block_sparse_moe.gate",
    "ffn_gate_exps": "block_sparse_moe.experts.{}.w1",
    "ffn_up_exps": "block_sparse_moe.experts.{}.w3",
    "ffn_down_exps": "block_sparse_moe.experts.{}.w2",
}
GPT2_OUTER = {
    "token_embd": "transformer.wte",
    "position_embd": "transformer.wpe",
    "output_norm": "transformer.ln_f",
    "output": "lm_head",
}
GPT2_LAYER = {
    "attn_norm": "ln_1",
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}

SANDWICH = {
    **ATTENTION,
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
    **GATED,
}
GEMMA_NORMS = frozenset(
    {"attn_norm", "ffn_norm", "output_norm", "post_attention_norm", "post_ffw_norm", "attn_q_norm", "attn_k_norm"}
)

AFTER = {
    **{stem: name for stem, name in ATTENTION.items() if stem != "attn_norm"},
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
    **GATED,
}
JOINED = {
    "attn_norm": "input_layernorm",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_up": "mlp.gate_up_proj",
    "ffn_down": "mlp.down_proj",
}
PLAIN = {**ATTENTION, "ffn_norm": "post_attention_layernorm", "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}
GRANITE = {
    "attention.scale": "attention_multiplier",
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "logit_scale": "logits_scaling",
}
GPT2_FIELDS = {
    "num_hidden_layers": "n_layer",
    "max_position_embeddings": "n_positions",
    "hidden_size": "n_embd",
    "intermediate_size": "n_inner",
    "num_attention_heads": "n_head",
}

FAMILIES: dict[str, Family] = {
    "llama": Family("LlamaForCausalLM", "llama", OUTER, DENSE, pairs=True, experts="mixtral"),
    "mixtral": Family(
        "MixtralForCausalLM",
        "mixtral",
        OUTER,
        {**DENSE, **MIXTRAL_EXPERTS},
        pairs=True,
        fixed={"sliding_window": None},
    ),
    "qwen2": Family("Qwen2ForCausalLM", "qwen2", OUTER, DENSE, windows=True),
    "qwen3": Family("Qwen3ForCausalLM", "qwen3", OUTER, DENSE, windows=True),
    "qwen3moe": Family(
        "Qwen3MoeForCausalLM",
        "qwen3_moe",
        OUTER,
        {**DENSE, **EXPERTS},
        windows=True,
        fixed={"norm_topk_prob": True},
    ),
    "gemma": Family(
        "GemmaForCausalLM",
        "gemma",
        OUTER,
        DENSE,
        less_one=GEMMA_NORMS,
        fixed={"hidden_act": "gelu_pytorch_tanh"},
    ),
    "gemma2": Family(
        "Gemma2ForCausalLM",
        "gemma2",
        OUTER,
        SANDWICH,
        less_one=GEMMA_NORMS,
        windows=True,
        fixed={"hidden_activation": "gelu_pytorch_tanh"},
        wide=46,
    ),
    "gemma3": Family(
        "Gemma3ForCausalLM",
        "gemma3_text",
        OUTER,
        SANDWICH,
        less_one=GEMMA_NORMS,
        windows=True,
        fixed={"hidden_activation": "gelu_pytorch_tanh", "sliding_window_pattern": 6},
        keys={"rope.freq_base_swa": "rope_local_base_freq"},
        wide=62,
    ),
    "granite": Family("GraniteForCausalLM", "granite", OUTER, DENSE, pairs=True, keys=GRANITE),
    "smollm3": Family("SmolLM3ForCausalLM", "smollm3", OUTER, DENSE, pairs=True, fixed={"no_rope_layer_interval": 4}),
    "olmo2": Family("Olmo2ForCausalLM", "olmo2", OUTER, AFTER),
    "phi3": Family("Phi3ForCausalLM", "phi3", OUTER, JOINED, windows=True, partial=True),
    "starcoder2": Family(
        "Starcoder2ForCausalLM",
        "starcoder2",
        OUTER,
        PLAIN,
        fixed={"hidden_act": "gelu_pytorch_tanh", "sliding_window": None},
        renamed={"layer_norm_epsilon": "norm_epsilon", "attention_bias": "use_bias"},
    ),
    "gpt2": Family(
        "GPT2LMHeadModel",
        "gpt2",
        GPT2_OUTER,
        GPT2_LAYER,
        layers="transformer.h.",
        turned=frozenset({"attn_qkv", "attn_output", "ffn_up", "ffn_down"}),
        renamed=GPT2_FIELDS,
    ),
}
"""By general.architecture; `mixtral` is what a llama file with experts is read as, and no name of a file."""

NOT_NAMES = frozenset({"mixtral"})
