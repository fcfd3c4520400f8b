"""Tiny random checkpoints of each family, made by transformers: the judge's own models.

Importing this file takes seconds. Tests take tests/models/families/stored.py, which has what this file made before.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers.core_model_loading import revert_weight_conversion

from tests.models.families.classic import CLASSIC
from tests.models.families.dense import DENSE
from tests.models.families.dense import SIZES as SMALL
from tests.models.families.encoders import ENCODERS
from tests.models.families.experts import EXPERTS
from tests.models.families.latent import LATENT
from tests.models.families.latest import LATEST
from tests.models.families.near_llama import NEAR
from tests.models.families.newer import NEWER
from tests.models.families.other import OTHER
from tests.models.families.published_encoders import JUDGES, JinaBertConfig, NeoBertConfig, NomicMoeConfig
from tests.models.families.remote import REMOTE, REMOTE_JUDGES
from tests.models.families.rwkv import Rwkv7Config, RWKV7ForCausalLM
from tests.models.families.rwkv6 import Rwkv6Config, Rwkv6ForCausalLM
from tests.models.families.states import STATES
from tests.models.families.text_inside import INSIDE, Gemma3nForConditionalGeneration
from tests.models.families.wrapped import WRAPPED
from tests.models.grok1 import Grok1ModelForCausalLM

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
    "rope_theta": 500000.0,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 10000.0}
LINEAR = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}
DYNAMIC = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
LONGROPE = {
    "rope_type": "longrope",
    "factor": 4.0,
    "short_factor": [1.0 + 0.1 * i for i in range(8)],
    "long_factor": [2.0 + 0.3 * i for i in range(8)],
    "original_max_position_embeddings": 256,
    "rope_theta": 10000.0,
}


def _llama(**changes: Any) -> transformers.PretrainedConfig:
    return transformers.LlamaConfig(**{**SMALL, **changes})


def _mistral(**changes: Any) -> transformers.PretrainedConfig:
    return transformers.MistralConfig(**{**SMALL, "sliding_window": 20, **changes})


def _qwen2(**changes: Any) -> transformers.PretrainedConfig:
    return transformers.Qwen2Config(**{**SMALL, **changes})


def _qwen3(**changes: Any) -> transformers.PretrainedConfig:
    return transformers.Qwen3Config(**{**SMALL, "head_dim": 24, **changes})


def _gpt2(**changes: Any) -> transformers.PretrainedConfig:
    small = {"vocab_size": 199, "n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 256, "initializer_range": 0.2}
    return transformers.GPT2Config(**{**small, **changes})


def _mixtral(**changes: Any) -> transformers.PretrainedConfig:
    return transformers.MixtralConfig(**{**SMALL, "num_local_experts": 4, "num_experts_per_tok": 2, **changes})


def _qwen3_moe(**changes: Any) -> transformers.PretrainedConfig:
    experts = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 40, "norm_topk_prob": True}
    return transformers.Qwen3MoeConfig(**{**SMALL, "head_dim": 24, **experts, **changes})


FAMILIES: dict[str, Callable[[], transformers.PretrainedConfig]] = {
    "llama2-multi-head": lambda: _llama(num_key_value_heads=4),
    "llama3-grouped": lambda: _llama(rope_parameters=LLAMA3),
    "llama-tied": lambda: _llama(tie_word_embeddings=True),
    "llama-biases": lambda: _llama(attention_bias=True, mlp_bias=True),
    "llama-linear": lambda: _llama(rope_parameters=LINEAR),
    "llama-dynamic": lambda: _llama(rope_parameters=DYNAMIC),
    "llama-yarn": lambda: _llama(rope_parameters=YARN),
    "llama-longrope": lambda: _llama(rope_parameters=LONGROPE),
    "llama-odd-sizes": lambda: _llama(
        hidden_size=72, num_attention_heads=3, num_key_value_heads=1, vocab_size=101, head_dim=20
    ),
    "llama-head-32": lambda: _llama(head_dim=32),  # a head size that matrix registers take
    "mistral-window": _mistral,
    "mistral-no-window": lambda: _mistral(sliding_window=None),
    "qwen2-biases": _qwen2,
    "qwen2-tied": lambda: _qwen2(tie_word_embeddings=True),
    "qwen2-window-upper-layers": lambda: _qwen2(use_sliding_window=True, sliding_window=16, max_window_layers=1),
    "qwen3-head-norms": _qwen3,
    "qwen3-tied": lambda: _qwen3(tie_word_embeddings=True),
    "gpt2": _gpt2,
    "gpt2-inner": lambda: _gpt2(n_inner=112, activation_function="relu"),
    "gpt2-untied": lambda: _gpt2(tie_word_embeddings=False, activation_function="gelu"),
    "gpt2-scaled-by-layer": lambda: _gpt2(scale_attn_by_inverse_layer_idx=True, reorder_and_upcast_attn=True),
    "gpt2-odd-sizes": lambda: _gpt2(n_embd=45, n_head=3, vocab_size=101, n_inner=77, layer_norm_epsilon=0.01),
    "mixtral-experts": _mixtral,
    "mixtral-window": lambda: _mixtral(sliding_window=20, num_local_experts=5),
    "qwen3-moe": _qwen3_moe,
    "qwen3-moe-dense-layers": lambda: _qwen3_moe(
        num_hidden_layers=4, mlp_only_layers=[1], decoder_sparse_step=2, norm_topk_prob=False, attention_bias=True
    ),
    **DENSE,
    **CLASSIC,
    **STATES,
    **ENCODERS,
    **EXPERTS,
    **LATENT,
    **LATEST,
    **NEAR,
    **INSIDE,
    **WRAPPED,
    **NEWER,
    **OTHER,
    **REMOTE,
    "nomic-bert-moe": NomicMoeConfig,
    "neobert": NeoBertConfig,
    "jina-bert": JinaBertConfig,
    "rwkv6": Rwkv6Config,
    "rwkv7": Rwkv7Config,
    "rwkv7-wide-heads": lambda: Rwkv7Config(hidden_size=96, head_dim=48, num_hidden_layers=2, intermediate_size=None),
}


OWN = (Grok1ModelForCausalLM, Gemma3nForConditionalGeneration, RWKV7ForCausalLM, Rwkv6ForCausalLM)
"""Judges that are not transformers'."""

RANDOM_BUFFERS = ("bias", "balancing_biases", "rotary_emb.alpha")
"""Biases of choices of experts, and logarithms of factors of frequencies."""


def judge(config: transformers.PretrainedConfig, **making: Any) -> transformers.PreTrainedModel:
    """The model of transformers: that of the architecture which the config names, or the one that continues text."""
    own = JUDGES.get(type(config)) or REMOTE_JUDGES.get(type(config))
    if own is not None:
        return own._from_config(config, **making)
    if config.architectures:
        judges = {each.__name__: each for each in OWN}
        name = config.architectures[0]
        return judges.get(name, getattr(transformers, name, None))._from_config(config, **making)
    return transformers.AutoModelForCausalLM.from_config(config, **making)


def make_checkpoint(family: str, folder: Path, **saving: Any) -> transformers.PreTrainedModel:
    """Write a random float32 checkpoint of `family`, or of a variant, into `folder`; returns the transformers model
    that made it. saving: for save_pretrained."""
    torch.manual_seed(sum(family.encode()))
    model = judge(_config(family), attn_implementation="eager")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.copy_(0.3 * torch.randn_like(parameter))
            elif name.endswith("A_log"):
                parameter.copy_(torch.randn_like(parameter))
            elif name.endswith(".D"):
                parameter.copy_(1 + 0.3 * torch.randn_like(parameter))
            elif parameter.ndim == 1:  # a norm's weights are near their first value, which is 1 or 0
                parameter.copy_(parameter.mean().round() + 0.3 * torch.randn_like(parameter))
        for name, buffer in model.named_buffers():
            _fill(name, buffer, model)
    model.eval().save_pretrained(folder, **saving)
    return model


def _config(family: str) -> transformers.PretrainedConfig:
    if family in FAMILIES:
        return FAMILIES[family]()
    from tests.weights.gguf.variants import VARIANTS  # which changes some of FAMILIES

    return VARIANTS[family]()


def _fill(name: str, buffer: torch.Tensor, model: transformers.PreTrainedModel) -> None:
    """Random numbers in place of the first values of a buffer that is saved."""
    if name.endswith("tid2eid"):  # experts of each token
        numbers = [torch.randperm(model.config.n_routed_experts)[: buffer.shape[1]] for _ in buffer]
        buffer.copy_(torch.stack(numbers))
    elif name.endswith("layer_scalar"):
        buffer.copy_(1 + 0.3 * torch.randn_like(buffer))
    elif buffer.is_floating_point() and buffer.ndim < 3 and name.endswith(RANDOM_BUFFERS):
        buffer.copy_(0.3 * torch.randn_like(buffer))


def stored_shapes(model: transformers.PreTrainedModel) -> dict[str, tuple[int, ...]]:
    """The names and shapes of the tensors that `save_pretrained` writes. In memory, transformers joins the matrices of
    experts."""
    return {name: tuple(tensor.shape) for name, tensor in revert_weight_conversion(model, model.state_dict()).items()}


def some_tokens(model: transformers.PreTrainedModel, count: int) -> list[int]:
    """Random tokens that are text: some tables of embeddings have more rows, for places of images."""
    rows = model.get_input_embeddings().num_embeddings
    words = min(rows, getattr(model.config.get_text_config(), "vocab_size", rows))
    return np.random.default_rng(5).integers(0, words, count).tolist()


def logits(model: transformers.PreTrainedModel, token_ids: list[int]) -> np.ndarray:
    """(T, V) of all positions; hidden states of an encoder; one row of a classifier."""
    with torch.no_grad():
        answer = model(torch.tensor([token_ids]))
    found: np.ndarray = (answer.logits[:1] if answer.get("logits") is not None else answer.last_hidden_state)[0].numpy()
    return found
