"""What config.json would say of the model in a GGUF file.

Every key that begins with the architecture's name is read, known to change nothing, or refused by name.

Knows: the keys of hyperparameters on both sides.
Must not know: tensors' bytes, tokenizers' contents.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from twostroke.types.errors import CorruptModel, UnsupportedModel
from twostroke.weights.gguf.container import StoredTensor
from twostroke.weights.gguf.families import FAMILIES, NOT_NAMES, Family
from twostroke.weights.gguf.header import Value
from twostroke.weights.gguf.tokenizer import TokenList

NUMBERS = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.layer_norm_epsilon": "layer_norm_epsilon",
    "attention.sliding_window": "sliding_window",
    "rope.freq_base": "rope_theta",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
}
"""Key without the architecture -> field of config.json."""

READ_ELSEWHERE = frozenset(
    {
        "vocab_size", "expert_count", "attention.value_length", "rope.dimension_count", "rope.scaling.type",
        "rope.scaling.factor", "rope.scaling.original_context_length", "rope.scaling.finetuned",
        "rope.scaling.attn_factor", "rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor",
        "rope.scaling.yarn_beta_fast",
        "rope.scaling.yarn_beta_slow", "rope.scale_linear",
    }
)  # fmt: skip
WITHOUT_EFFECT = frozenset({"tensor_data_layout"})
ONLY = {
    "attention.causal": True,
    "use_parallel_residual": False,
    "expert_shared_count": 0,
    "expert_gating_func": 1,
    "expert_weights_scale": 1.0,
    "expert_weights_norm": True,
    "nextn_predict_layers": 0,
    "leading_dense_block_count": 0,
    "logit_scale": 1.0,
    "residual_scale": 1.0,
    "embedding_scale": 1.0,
    "attention.max_alibi_bias": 0.0,
    "attention.clamp_kqv": 0.0,
}
"""Keys of which one value is implemented."""

MOST = 1 << 40

Divisors = tuple[list[float], ...]


def family_of(values: Mapping[str, Value], place: str) -> tuple[str, Family]:
    """The architecture's name in the file, and its entry. Raises UnsupportedModel."""
    name = values.get("general.architecture")
    known = [each for each in FAMILIES if each not in NOT_NAMES]
    if not isinstance(name, str) or name not in known:
        raise UnsupportedModel(
            f"{place}: the architecture {str(name)[:40]!r} is not implemented.",
            why="general.architecture must be one of " + ", ".join(known) + ".",
            fix="A file that holds a part of a model (mmproj, an adapter) belongs beside a model's."
            if name in ("clip", "adapter")
            else "Use a model of one of these families.",
        )
    family = FAMILIES[name]
    if family.experts and values.get(f"{name}.expert_count", 0) != 0:
        return name, FAMILIES[family.experts]
    return name, family


def config_of(
    values: Mapping[str, Value],
    tensors: Mapping[str, StoredTensor],
    vocabulary: TokenList,
    divisors: Divisors | None,
) -> dict[str, Any]:
    """The members of config.json. divisors: of the frequencies of rotation, where the file has tensors of them: one, or
    those of short and of long contexts.

    Raises UnsupportedModel or CorruptModel naming the key.
    """
    name, family = family_of(values, vocabulary.place)
    said = _Said(values, name, vocabulary.place)
    config = {field: said.number(key) for key, field in {**NUMBERS, **family.keys}.items() if said.has(key)}
    experts = said.number("expert_count") if said.has("expert_count") else 0
    if experts:
        config |= {"num_local_experts": experts}
    if not config.get("sliding_window"):
        config.pop("sliding_window", None)
    elif not family.windows:
        raise said.wrong("attention.sliding_window", f"A {family.hf} has none.")
    said.check(family.keys)
    _check_heads(config, said, family)
    config |= {
        "architectures": [family.hf],
        "model_type": family.model_type,
        "torch_dtype": _dtype(tensors),
        "vocab_size": _rows(tensors, "token_embd.weight", len(vocabulary.tokens)),
        "tie_word_embeddings": "output.weight" not in tensors,
        "bos_token_id": vocabulary.id_of("bos_token_id"),
        "eos_token_id": vocabulary.end_ids,
        "attention_bias": "blk.0.attn_q.bias" in tensors,
        "mlp_bias": "blk.0.ffn_gate.bias" in tensors,
        "rope_scaling": _rope(said, config, divisors),
        **family.fixed,
    }
    if family.wide:
        config["query_pre_attn_scalar"] = _score_scalar(config, family.wide)
    return {family.renamed.get(field, field): value for field, value in config.items()}


def _score_scalar(config: Mapping[str, Any], wide: int) -> int:
    """Gemma 2 and 3: by the heads' size, but of the models of 27B."""
    if config.get("num_hidden_layers") == wide:
        return int(config["hidden_size"] // config["num_attention_heads"])
    return int(config.get("head_dim", 256))


class _Said:
    """The keys of one architecture."""

    def __init__(self, values: Mapping[str, Value], name: str, place: str) -> None:
        self._prefix = name + "."
        self._place = place
        self._values = {
            key.removeprefix(self._prefix): value for key, value in values.items() if key.startswith(self._prefix)
        }

    def has(self, key: str) -> bool:
        return key in self._values

    def text(self, key: str, absent: str) -> str:
        found = self._values.get(key, absent)
        if not isinstance(found, str):
            raise self.wrong(key, "It must be a text.")
        return found

    def number(self, key: str, absent: float | None = None) -> Any:
        """One number; an array counts where all its numbers are the same."""
        found = self._values.get(key, absent)
        if isinstance(found, np.ndarray) and len(found) and (found == found[0]).all():
            found = found[0].item()
        if isinstance(found, np.ndarray):
            raise UnsupportedModel(
                f"{self._place}: {self._prefix}{key} differs from layer to layer.",
                why="The layers of this family are all the same here.",
                fix="Use a model whose layers have one size.",
            )
        if isinstance(found, bool) or not isinstance(found, int | float) or not abs(found) < MOST:
            raise self.wrong(key, "It must be a number.")
        return found

    def check(self, own: Mapping[str, str]) -> None:
        """Raises UnsupportedModel for a key that is neither read (own: the family's) nor known to change nothing."""
        for key in self._values.keys() - NUMBERS.keys() - own.keys() - READ_ELSEWHERE - WITHOUT_EFFECT:
            if key in ONLY and self._values[key] == ONLY[key]:
                continue
            raise UnsupportedModel(
                f"{self._place}: {self._prefix}{key[:60]} = {str(self._values[key])[:40]} is not implemented.",
                why="It may change what the model computes.",
                fix="Use the model's original checkpoint, or another file of it.",
            )

    def wrong(self, key: str, why: str) -> CorruptModel:
        value = str(self._values.get(key))[:40]
        return CorruptModel(f"{self._place}: {self._prefix}{key} is {value}.", why=why, fix="Download the file again.")


def _check_heads(config: dict[str, Any], said: _Said, family: Family) -> None:
    dim = config.get("head_dim")
    if dim is None and config.get("num_attention_heads"):
        dim = config.get("hidden_size", 0) // config["num_attention_heads"]
    keys = ["attention.value_length", "rope.dimension_count"]
    if family.partial and said.has(keys[1]) and dim and 0 < said.number(keys[1]) < dim:
        config["partial_rotary_factor"] = said.number(keys.pop()) / dim
    for key in keys:
        if said.has(key) and said.number(key) != dim:
            raise UnsupportedModel(
                f"{said.wrong(key, '').what[:-1]}, and heads have {dim} elements.",
                why="Heads are as wide in V as in K here, and turn as a whole.",
                fix="Use a model of which that holds.",
            )


def _rows(tensors: Mapping[str, StoredTensor], name: str, absent: int) -> int:
    return tensors[name].shape[0] if name in tensors else absent


def _dtype(tensors: Mapping[str, StoredTensor]) -> str:
    """float32 where every matrix is."""
    types = {tensor.block.name for tensor in tensors.values() if len(tensor.shape) > 1}
    return "float32" if types <= {"F32"} else "float16" if types <= {"F32", "F16"} else "bfloat16"


def _rope(said: _Said, config: Mapping[str, Any], divisors: Divisors | None) -> dict[str, Any] | None:
    kind = said.text("rope.scaling.type", "none")
    if divisors is not None and len(divisors) == 1:
        factors = {"short_factor": divisors[0], "long_factor": divisors[0], "factor": 1.0, "attention_factor": 1.0}
        return {"rope_type": "longrope", **factors}
    if divisors is not None:
        return _longrope(said, config, divisors)
    if kind == "none" and said.has("rope.scale_linear"):
        factor = said.number("rope.scale_linear")
        return {"rope_type": "linear", "factor": factor} if factor != 1.0 else None
    if kind == "none":
        return None
    found: dict[str, Any] = {"rope_type": kind, "factor": said.number("rope.scaling.factor", 1.0)}
    if kind == "linear":
        return found if found["factor"] != 1.0 else None
    if kind != "yarn":
        raise said.wrong("rope.scaling.type", "Implemented: none, linear, yarn, and factors in a tensor.")
    names = {"yarn_beta_fast": "beta_fast", "yarn_beta_slow": "beta_slow"}
    found |= {
        ours: said.number(f"rope.scaling.{key}") for key, ours in names.items() if said.has(f"rope.scaling.{key}")
    }
    for key, only in (("yarn_ext_factor", 1.0), ("yarn_attn_factor", 1.0), ("attn_factor", 1.0)):
        if said.number(f"rope.scaling.{key}", only) != only:
            raise said.wrong(f"rope.scaling.{key}", f"Only {only:g} is implemented.")
    positions = config.get("max_position_embeddings", 0)
    found["original_max_position_embeddings"] = said.number("rope.scaling.original_context_length", positions)
    return found


def _longrope(said: _Said, config: Mapping[str, Any], divisors: Divisors) -> dict[str, Any]:
    """Phi-3: other divisors for long contexts. attn_factor is what transformers computes."""
    short, long = divisors
    positions = config.get("max_position_embeddings", 0)
    original = said.number("rope.scaling.original_context_length", positions)
    found = {"rope_type": "longrope", "short_factor": short, "long_factor": long, "factor": positions / original}
    if said.has("rope.scaling.attn_factor"):
        found["attention_factor"] = said.number("rope.scaling.attn_factor")
    return {**found, "original_max_position_embeddings": original}
