"""Makes the content of config.json for the model in a GGUF file.

Every key that begins with the architecture's name is read, is known to change nothing, or raises an error with its
name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twostroke.types.errors import CorruptModel, UnsupportedModel
from twostroke.types.spec.refused_fields import FROM_KEYS
from twostroke.weights.gguf.container import StoredTensor
from twostroke.weights.gguf.families.family import Config, Family
from twostroke.weights.gguf.keys import Keys
from twostroke.weights.gguf.vocabulary.token_list import TokenList

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
UNSEEN = ("attention.sliding_window", "attn_logit_softcapping", "final_logit_softcapping")
"""Fields of config.json of which no tensor gives a sign. A file has their keys only where they change the arithmetic.
So a file with such a key is refused if its family's code does not read the field."""

MOST_LAYERS = 4096

Divisors = tuple[list[float], ...]


def config_of(family: Family, keys: Keys, vocabulary: TokenList, divisors: Divisors | None) -> dict[str, Any]:
    """Returns the content of config.json. divisors: numbers by which the rotary frequencies are divided (the tensors
    rope_freqs or rope_factors), where the file has them: one list, or one for short and one for long contexts.

    Raises UnsupportedModel or CorruptModel naming the key.
    """
    names = {ours: key for key, ours in NUMBERS.items()}
    left_out = {names[field] for field, name in family.renamed.items() if not name and field in names}
    config = {
        field: keys.number(key)
        for key, field in {**NUMBERS, **family.keys}.items()
        if keys.has(key) and key not in left_out
    }
    layers = config.get("num_hidden_layers", 0)
    if not isinstance(layers, int) or not 0 <= layers <= MOST_LAYERS:
        raise keys.wrong("block_count", f"It must be a whole number up to {MOST_LAYERS:,}.")
    if not config.get("sliding_window"):
        config.pop("sliding_window", None)
    elif not family.windows:
        raise keys.wrong("attention.sliding_window", f"A {family.hf} has none.")
    if not family.apart:
        _check_heads(config, keys, family)
    config |= {
        "architectures": [family.hf],
        "model_type": family.model_type,
        "torch_dtype": _dtype(keys.tensors),
        "vocab_size": _vocab_size(keys, len(vocabulary.tokens)),
        "tie_word_embeddings": "output.weight" not in keys.tensors,
        "bos_token_id": vocabulary.id_of("bos_token_id"),
        "eos_token_id": vocabulary.end_ids,
        "attention_bias": keys.has_tensor("attn_q.bias") or keys.has_tensor("attn_qkv.bias"),
        "mlp_bias": keys.has_tensor("ffn_gate.bias"),
        "rope_scaling": _rope(keys, config, divisors),
        **family.fixed,
    }
    config |= {row.field: row.read(keys) for row in family.rows}
    # The family's own fields take priority over the table. A file may have the keys of left_out, which state something
    # else, so these keys are ignored.
    config |= _own_fields(family, keys, config)
    keys.ignore(*left_out)
    keys.check()
    renamed = {field: family.renamed.get(field, field) or field for field in config}
    unseen = {NUMBERS[key]: keys.prefix + key for key in UNSEEN if key not in left_out}
    sources = {renamed[field]: key for field, key in unseen.items() if config.get(field)}
    return {**{renamed[field]: value for field, value in config.items()}, FROM_KEYS: sources}


def _own_fields(family: Family, keys: Keys, config: Config) -> dict[str, Any]:
    """Returns the fields that the family computes from keys. Raises CorruptModel where the keys do not fit together."""
    try:
        return family.more(keys, config)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        what = f"{keys.place}: the keys of its {family.hf} do not fit together."
        why = f"{type(error).__name__}: {str(error)[:80]}."
        raise CorruptModel(what, why=why, fix="Download the file again.") from None


def _check_heads(config: dict[str, Any], keys: Keys, family: Family) -> None:
    dim = config.get("head_dim")
    heads = config.get("num_attention_heads", 0)
    if dim is None and heads:
        dim = config.get("hidden_size", 0) // heads
    named = ["attention.value_length", "rope.dimension_count"]
    if family.partial and keys.has(named[1]) and dim and 0 < keys.number(named[1]) < dim:
        config["partial_rotary_factor"] = keys.number(named.pop()) / dim
    elif family.partial and dim and keys.has(named[1]):
        config["partial_rotary_factor"] = 1.0
    for key in named:
        if keys.has(key) and keys.number(key) != dim:
            raise UnsupportedModel(
                f"{keys.wrong(key, '').what[:-1]}, and heads have {dim} elements.",
                why="Here V must be as wide as K in each head, and all elements of a head must be rotated.",
                fix="Use a model with such heads.",
            )


def _vocab_size(keys: Keys, tokens: int) -> int:
    stored = keys.tensors.get("token_embd.weight")
    if stored is not None and stored.shape[0] != tokens:
        raise CorruptModel(
            f"{keys.place}: token_embd.weight has {stored.shape[0]:,} rows, and the vocabulary has {tokens:,} tokens.",
            why="Each token has one row.",
            fix="Download the file again.",
        )
    return tokens


def _dtype(tensors: Mapping[str, StoredTensor]) -> str:
    """Returns float32 where every matrix is float32, float16 where every matrix is float32 or float16, else bfloat16.
    """
    types = {tensor.block.name for tensor in tensors.values() if len(tensor.shape) > 1} - {"I32"}
    return "float32" if types <= {"F32"} else "float16" if types <= {"F32", "F16"} else "bfloat16"


def _rope(keys: Keys, config: Config, divisors: Divisors | None) -> dict[str, Any] | None:
    kind = keys.text("rope.scaling.type", "none")
    if divisors is not None and len(divisors) == 1:
        factors = {"short_factor": divisors[0], "long_factor": divisors[0], "factor": 1.0, "attention_factor": 1.0}
        return {"rope_type": "longrope", **factors}
    if divisors is not None:
        return _longrope(keys, config, divisors)
    if kind == "none" and keys.has("rope.scale_linear"):
        factor = keys.number("rope.scale_linear")
        return {"rope_type": "linear", "factor": factor} if factor != 1.0 else None
    if kind == "none":
        keys.ignore("rope.scaling.original_context_length")
        if keys.number("rope.scaling.factor", 1.0) not in (0, 1):
            raise keys.wrong("rope.scaling.factor", "It must be 1 where rotations are not scaled.")
        return None
    found: dict[str, Any] = {"rope_type": kind, "factor": keys.number("rope.scaling.factor", 1.0)}
    if kind == "linear":
        return found if found["factor"] != 1.0 else None
    if kind != "yarn":
        raise keys.wrong("rope.scaling.type", "Implemented: none, linear, yarn, and factors in a tensor.")
    names = {"yarn_beta_fast": "beta_fast", "yarn_beta_slow": "beta_slow"}
    found |= {
        ours: keys.number(f"rope.scaling.{key}") for key, ours in names.items() if keys.has(f"rope.scaling.{key}")
    }
    for key in ("yarn_ext_factor", "yarn_attn_factor", "attn_factor"):
        if keys.number(f"rope.scaling.{key}", 1.0) != 1.0:
            raise keys.wrong(f"rope.scaling.{key}", "Only 1 is implemented.")
    positions = config.get("max_position_embeddings", 0)
    found["original_max_position_embeddings"] = keys.number("rope.scaling.original_context_length", positions)
    return found


def _longrope(keys: Keys, config: Config, divisors: Divisors) -> dict[str, Any]:
    """Returns the rope fields of Phi-3, whose rotary frequencies are divided by other numbers in long contexts.
    divisors: the lists for short and for long contexts. The key attn_factor has the factor that transformers computes.
    """
    short, long = divisors
    positions = config.get("max_position_embeddings", 0)
    original = keys.number("rope.scaling.original_context_length", positions)
    found = {"rope_type": "longrope", "short_factor": short, "long_factor": long, "factor": positions / (original or 1)}
    if keys.has("rope.scaling.attn_factor"):
        found["attention_factor"] = keys.number("rope.scaling.attn_factor")
    return {**found, "original_max_position_embeddings": original}
