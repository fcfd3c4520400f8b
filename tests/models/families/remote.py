"""Judges of architectures that transformers does not have: its models that compute the same, under the names of the
published code.

InternLM 2, EXAONE 3, XVERSE, MiniCPM and Orion differ from Llama, Granite and StableLM in names alone, and Ling 2 from
GLM-4.5. Baichuan's slopes are a mask, and its head is normed after the product. Written here are the router of Ling 1
and DeepSeek MoE, and the thinned layers of Nemotron Super.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Mapping
from typing import Any

import torch
import transformers
from transformers.models.glm4_moe.modeling_glm4_moe import Glm4MoeTopkRouter
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

from tests.models.families.dense import Config, small

Tensors = dict[str, torch.Tensor]
LLAMA: dict[str, Any] = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}


def renamed(tensors: Tensors, parts: Mapping[str, str]) -> Tensors:
    """The name with each part that is in `parts` replaced."""
    found = {}
    for name, tensor in tensors.items():
        for part, own in parts.items():
            name = name.replace(part, own)
        found[name] = tensor
    return found


class OwnNames:
    """A model whose checkpoints have the names that `stored` gives."""

    _tied_weights_keys: dict[str, str] = {}

    def stored(self, tensors: Tensors) -> Tensors:
        """The tensors of a checkpoint."""
        raise NotImplementedError

    def state_dict(self, *args: Any, **kwargs: Any) -> Tensors:
        return self.stored(super().state_dict(*args, **kwargs))  # type: ignore[misc]


class OwnFields:
    """A config whose file has other names of fields, and the name of an architecture."""

    own: Mapping[str, str] = {}
    architecture = ""

    def to_dict(self) -> dict[str, Any]:
        said = super().to_dict()  # type: ignore[misc]
        said = {self.own.get(name, name): value for name, value in said.items() if self.own.get(name, name)}
        return {**said, "architectures": [self.architecture]}


class InternLM2Config(OwnFields, transformers.LlamaConfig):
    model_type = "internlm2"
    architecture = "InternLM2ForCausalLM"
    own = {"attention_bias": "bias", "mlp_bias": ""}


class InternLM2ForCausalLM(OwnNames, transformers.LlamaForCausalLM):
    config_class = InternLM2Config

    def stored(self, tensors: Tensors) -> Tensors:
        names = {"self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1", "lm_head": "output"}
        names |= {"mlp.up_proj": "feed_forward.w3", "mlp.down_proj": "feed_forward.w2"}
        names |= {"input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm"}
        return _by_kv_head(renamed(tensors, {**names, "embed_tokens": "tok_embeddings"}), self.config)


def _by_kv_head(tensors: Tensors, config: Any) -> Tensors:
    found, groups = {}, config.num_key_value_heads
    for name, tensor in tensors.items():
        if "self_attn.q_proj" in name:
            parts = [tensors[name.replace("q_proj", f"{each}_proj")] for each in "qkv"]
            rows = [part.reshape(groups, -1, *part.shape[1:]) for part in parts]
            joined = torch.cat(rows, dim=1).reshape(-1, *tensor.shape[1:])
            found[name.replace("self_attn.q_proj", "attention.wqkv")] = joined
        elif "self_attn." not in name:
            found[name] = tensor
    return found


class ExaoneConfig(OwnFields, transformers.LlamaConfig):
    model_type = "exaone"
    architecture = "ExaoneForCausalLM"
    own = {
        **{
            "num_hidden_layers": "num_layers",
            "rms_norm_eps": "layer_norm_epsilon",
            "hidden_act": "activation_function",
        },
        **{"attention_bias": "", "mlp_bias": ""},
    }


class ExaoneForCausalLM(OwnNames, transformers.LlamaForCausalLM):
    config_class = ExaoneConfig

    def stored(self, tensors: Tensors) -> Tensors:
        names = {
            "model.embed_tokens": "transformer.wte",
            "model.norm": "transformer.ln_f",
            "model.layers": "transformer.h",
        }
        names |= {"self_attn.o_proj": "attn.attention.out_proj", "self_attn": "attn.attention"}
        names |= {"mlp.gate_proj": "mlp.c_fc_0", "mlp.up_proj": "mlp.c_fc_1", "mlp.down_proj": "mlp.c_proj"}
        return renamed(tensors, {**names, "input_layernorm": "ln_1", "post_attention_layernorm": "ln_2"})


class MiniCPMConfig(OwnFields, transformers.GraniteConfig):
    """scale_emb, scale_depth and dim_model_base as Granite's factors."""

    model_type = "minicpm"
    architecture = "MiniCPMForCausalLM"

    def to_dict(self) -> dict[str, Any]:
        said = super().to_dict()
        factors = (f"{name}_multiplier" for name in ("embedding", "residual", "attention"))
        embedding, residual, _ = (said.pop(name) for name in factors)
        base = self.hidden_size / said.pop("logits_scaling")
        depth = residual * math.sqrt(self.num_hidden_layers)
        return {**said, "scale_emb": embedding, "scale_depth": depth, "dim_model_base": base}


class MiniCPMForCausalLM(transformers.GraniteForCausalLM):
    config_class = MiniCPMConfig


class OrionConfig(OwnFields, transformers.StableLmConfig):
    model_type = "orion"
    architecture = "OrionForCausalLM"
    own = {"layer_norm_eps": "rms_norm_eps"}


class OrionForCausalLM(transformers.StableLmForCausalLM):
    config_class = OrionConfig


class XverseConfig(OwnFields, transformers.LlamaConfig):
    model_type = "xverse"
    architecture = "XverseForCausalLM"
    own = {"attention_bias": "", "mlp_bias": ""}


class XverseForCausalLM(transformers.LlamaForCausalLM):
    config_class = XverseConfig


class BaichuanConfig(OwnFields, transformers.LlamaConfig):
    """alibi: slopes instead of rotations, as in the models with 13B parameters."""

    model_type = "baichuan"
    architecture = "BaichuanForCausalLM"
    own = {"attention_bias": "", "mlp_bias": "", "num_key_value_heads": "", "alibi": ""}

    def to_dict(self) -> dict[str, Any]:
        said = super().to_dict()
        if getattr(self, "alibi", False):
            said["model_max_length"] = said.pop("max_position_embeddings")
        return said


class BaichuanForCausalLM(OwnNames, transformers.LlamaForCausalLM):
    config_class = BaichuanConfig

    def stored(self, tensors: Tensors) -> Tensors:
        found = {name: tensor for name, tensor in tensors.items() if not re.search(r"[qkv]_proj", name)}
        for name, tensor in tensors.items():
            if "q_proj" in name:
                parts = [tensor, *(tensors[name.replace("q_proj", f"{each}_proj")] for each in "kv")]
                found[name.replace("q_proj", "W_pack")] = torch.cat(parts)
        return found

    def forward(self, input_ids: torch.Tensor, **given: Any) -> Any:
        if getattr(self.config, "alibi", False):
            count, heads = input_ids.shape[1], self.config.num_attention_heads
            slopes = torch.tensor([2.0 ** (-8 * (head + 1) / heads) for head in range(heads)])
            away = torch.arange(count)[None, :] - torch.arange(count)[:, None]
            mask = torch.where(away > 0, float("-inf"), away.float()).repeat(heads, 1, 1) * slopes[:, None, None]
            given["attention_mask"] = mask[None]
            self.model.rotary_emb.inv_freq.zero_()
        made = super().forward(input_ids=input_ids, **given)
        if self.config.norm_head:
            made.logits = made.logits / self.lm_head.weight.norm(dim=1)
        return made


class BailingMoeV2Config(OwnFields, transformers.Glm4MoeConfig):
    model_type = "bailing_moe"
    architecture = "BailingMoeV2ForCausalLM"
    own = {
        "n_shared_experts": "num_shared_experts",
        "n_routed_experts": "num_experts",
        "attention_bias": "use_qkv_bias",
    }


class BailingMoeV2ForCausalLM(OwnNames, transformers.Glm4MoeForCausalLM):
    config_class = BailingMoeV2Config

    def stored(self, tensors: Tensors) -> Tensors:
        names = {"embed_tokens": "word_embeddings", "e_score_correction_bias": "expert_bias"}
        names |= {"self_attn.o_proj": "attention.dense", "self_attn.": "attention."}
        names |= {"q_norm": "query_layernorm", "k_norm": "key_layernorm"}
        found = {}
        for name, tensor in renamed(_each_expert(tensors), names).items():
            if "attention.q_proj" in name:
                parts = [tensor, *(renamed(tensors, names)[name.replace("q_proj", f"{each}_proj")] for each in "kv")]
                found[name.replace("q_proj", "query_key_value")] = torch.cat(parts)
            elif not ("attention.k_proj" in name or "attention.v_proj" in name):
                found[name] = tensor
        return found


def _each_expert(tensors: Tensors) -> Tensors:
    """Splits stacks of experts into a tensor for each expert and matrix."""
    found = {}
    for name, stack in tensors.items():
        start, _, kind = name.rpartition(".experts.")
        for index, matrix in enumerate(stack if start else ()):
            both = matrix.chunk(2) if kind == "gate_up_proj" else (matrix,)
            for part, each in zip(("gate", "up") if len(both) == 2 else ("down",), both, strict=True):
                found[f"{start}.experts.{index}.{part}_proj.weight"] = each.clone()
        if not start:
            found[name] = stack
    return found


class _Softmax(Glm4MoeTopkRouter):
    """The largest shares of a softmax over all experts."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        del self.e_score_correction_bias

    def forward(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        logits = hidden_states.view(-1, self.hidden_dim) @ self.weight.T
        weights, chosen = logits.softmax(dim=-1).topk(self.top_k, dim=-1)
        if self.norm_topk_prob:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        return logits, weights * self.routed_scaling_factor, chosen


def _with_softmax(model: Any, config: Any) -> None:
    for layer in model.model.layers[config.first_k_dense_replace :]:
        layer.mlp.gate = _Softmax(config)
        torch.nn.init.normal_(layer.mlp.gate.weight, std=config.initializer_range)


class BailingMoeConfig(BailingMoeV2Config):
    model_type = "bailing_moe"
    architecture = "BailingMoeForCausalLM"
    own = {**BailingMoeV2Config.own, "routed_scaling_factor": "", "use_qk_norm": ""}


class BailingMoeForCausalLM(BailingMoeV2ForCausalLM):
    config_class = BailingMoeConfig

    def __init__(self, config: BailingMoeConfig) -> None:
        super().__init__(config)
        _with_softmax(self, config)


class DeepseekConfig(OwnFields, transformers.Glm4MoeConfig):
    model_type = "deepseek"
    architecture = "DeepseekForCausalLM"


class DeepseekForCausalLM(OwnNames, transformers.Glm4MoeForCausalLM):
    config_class = DeepseekConfig

    def __init__(self, config: DeepseekConfig) -> None:
        super().__init__(config)
        _with_softmax(self, config)

    def stored(self, tensors: Tensors) -> Tensors:
        return _each_expert(tensors)


class NemotronNasConfig(OwnFields, transformers.LlamaConfig):
    model_type = "nemotron-nas"
    architecture = "DeciLMForCausalLM"


class _Attention(torch.nn.Module):
    """One product, or nothing, in place of a layer's attention."""

    def __init__(self, width: int, linear: bool) -> None:
        super().__init__()
        if linear:
            self.linear_attn = torch.nn.Linear(width, width, bias=False)
            torch.nn.init.normal_(self.linear_attn.weight, std=0.2)

    def forward(self, hidden_states: torch.Tensor, **_: Any) -> tuple[torch.Tensor, None]:
        return (self.linear_attn(hidden_states) if hasattr(self, "linear_attn") else 0 * hidden_states), None


class _Feed(torch.nn.Module):
    """One product, or nothing, in place of a layer's feed-forward block."""

    def __init__(self, width: int, linear: bool) -> None:
        super().__init__()
        if linear:
            self.linear_mlp = torch.nn.Linear(width, width, bias=False)
            torch.nn.init.normal_(self.linear_mlp.weight, std=0.2)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.linear_mlp(hidden_states) if hasattr(self, "linear_mlp") else 0 * hidden_states


class DeciLMForCausalLM(transformers.LlamaForCausalLM):
    config_class = NemotronNasConfig

    def __init__(self, config: NemotronNasConfig) -> None:
        super().__init__(config)
        for index, block in enumerate(config.block_configs):
            own, attention, feed = copy.copy(config), block["attention"], block["ffn"]
            own.num_key_value_heads = config.num_attention_heads // (attention["n_heads_in_group"] or 1)
            own.intermediate_size = -(-int(2 * (feed["ffn_mult"] or 1) * config.hidden_size / 3) // 256) * 256
            layer = LlamaDecoderLayer(own, index)
            layer.apply(self._init_weights)
            if attention["n_heads_in_group"] is None:
                linear = bool(attention["replace_with_linear"])
                layer.self_attn = _Attention(config.hidden_size, linear)
                layer.input_layernorm = layer.input_layernorm if linear else torch.nn.Identity()
            if feed["ffn_mult"] is None:
                linear = bool(feed["replace_with_linear"])
                layer.mlp = _Feed(config.hidden_size, linear)
                layer.post_attention_layernorm = layer.post_attention_layernorm if linear else torch.nn.Identity()
            self.model.layers[index] = layer


def block(each: int | None, factor: float | None, linear: bool = False) -> dict[str, Any]:
    """A layer of Nemotron Super. each: query heads of a KV head. factor: the factor of the feed-forward block's
    width."""
    return {
        "attention": {"n_heads_in_group": each, "no_op": each is None and not linear, "replace_with_linear": linear},
        "ffn": {"ffn_mult": factor, "no_op": factor is None and not linear, "replace_with_linear": linear},
    }


EXPERTS: dict[str, Any] = {
    **{"n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 40, "n_shared_experts": 2},
    **{"first_k_dense_replace": 1, "head_dim": 24, "n_group": 1, "topk_group": 1},
}
WHOLE_HEADS: dict[str, Any] = {
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}
}
internlm2 = small(InternLM2Config, **LLAMA)
exaone = small(ExaoneConfig, **LLAMA)
minicpm = small(
    MiniCPMConfig,
    **{**LLAMA, "embedding_multiplier": 12.0, "residual_multiplier": 0.8, "attention_multiplier": 0.25},
    logits_scaling=4.0,
)
orion = small(OrionConfig, rope_parameters={**WHOLE_HEADS["rope_parameters"]}, layer_norm_eps=1e-5)
xverse = small(XverseConfig, **LLAMA)
baichuan = small(BaichuanConfig, **{**LLAMA, "num_key_value_heads": None, "norm_head": False})
bailing_moe_v2 = small(BailingMoeV2Config, **{**EXPERTS, "n_group": 2, "topk_group": 1, "use_qk_norm": True})
bailing_moe = small(BailingMoeConfig, **EXPERTS, **WHOLE_HEADS, routed_scaling_factor=1.0)
deepseek = small(DeepseekConfig, **EXPERTS, **WHOLE_HEADS, routed_scaling_factor=1.0, norm_topk_prob=False)
nemotron_nas = small(
    NemotronNasConfig,
    **{**LLAMA, "num_hidden_layers": 6, "num_key_value_heads": None},
    block_configs=[block(2, 2.5), block(None, 5.0), block(4, None), block(None, None, linear=True)]
    + [block(1, 1.0), block(None, None)],
)

REMOTE: dict[str, Config] = {
    "internlm2": internlm2(),
    "internlm2-biases": internlm2(attention_bias=True),
    "exaone": exaone(),
    "minicpm": minicpm(tie_word_embeddings=True),
    "minicpm-untied": minicpm(tie_word_embeddings=False),
    "orion": orion(),
    "xverse": xverse(),
    "baichuan": baichuan(),
    "baichuan-slopes": baichuan(norm_head=True, alibi=True),
    "bailing-moe": bailing_moe(),
    "bailing-moe-v2": bailing_moe_v2(),
    "deepseek": deepseek(),
    "nemotron-nas": nemotron_nas(),
}
REMOTE_JUDGES: dict[type[transformers.PretrainedConfig], Any] = {
    InternLM2Config: InternLM2ForCausalLM,
    ExaoneConfig: ExaoneForCausalLM,
    MiniCPMConfig: MiniCPMForCausalLM,
    OrionConfig: OrionForCausalLM,
    XverseConfig: XverseForCausalLM,
    BaichuanConfig: BaichuanForCausalLM,
    BailingMoeConfig: BailingMoeForCausalLM,
    BailingMoeV2Config: BailingMoeV2ForCausalLM,
    DeepseekConfig: DeepseekForCausalLM,
    NemotronNasConfig: DeciLMForCausalLM,
}
"""The judge of each config."""
