"""Reads fields that many configs share, and refuses values that are not implemented."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from twostroke.models.common.registry import CommonFacts
from twostroke.ops.rows.activation import HF_NAMES, Activation
from twostroke.types.errors import CorruptModel, UnsupportedModel
from twostroke.types.spec.fields import Fields
from twostroke.types.spec.rope import MAX_POSITIONS
from twostroke.weights.quantized.recipe import scheme_of

DTYPES = ("float32", "bfloat16", "float16")


def read_facts(
    fields: Fields,
    *,
    positions: int,
    hidden: str = "hidden_size",
    layers: str = "num_hidden_layers",
    longest: str = "max_position_embeddings",
    ignored: tuple[str, ...] = (),
    optional_prefix: str = "",
) -> CommonFacts:
    """Reads the facts that all models have, such as sizes and token ids. hidden, layers, longest: the names of the
    fields.

    positions: the longest sequence where the config does not give it.
    """
    refuse_quantized(fields)
    vocab_size = fields.integer("vocab_size", 1, 1 << 24)
    # Ids outside the vocabulary can be neither fed nor sampled; checkpoints use -1 for "none".
    return CommonFacts(
        vocab_size=vocab_size,
        hidden_size=fields.integer(hidden, 2, 1 << 17),
        num_layers=fields.integer(layers, 1, 4096),
        max_positions=fields.integer(longest, 1, MAX_POSITIONS, default=positions),
        bos_token_id=next((i for i in fields.integers("bos_token_id")[:1] if 0 <= i < vocab_size), None),
        eos_token_ids=tuple(i for i in fields.integers("eos_token_id") if 0 <= i < vocab_size),
        dtype=_dtype(fields),
        ignored=ignored,
        optional_prefix=optional_prefix,
    )


def with_silent(fields: Fields, silent: Mapping[str, object]) -> Fields:
    """Returns the fields with values of `silent`, the family's defaults in transformers, for those that are absent or
    null."""
    said = {name: value for name, value in fields.values.items() if value is not None or name not in silent}
    return fields.only({**silent, **said})


def usual_names(fields: Fields, own: Mapping[str, str]) -> Fields:
    """Returns the fields, with the usual names added for fields that a family calls otherwise. own: own name -> usual
    name.

    Raises CorruptModel where a field is there under both names with different values.
    """
    values = dict(fields.values)
    for name, usual in own.items():
        if fields.value(name) is None:
            continue
        if fields.value(usual, fields.values[name]) != fields.values[name]:
            raise fields.wrong(name, f"{usual} means the same and has another value.")
        values[usual] = fields.values[name]
    return fields.only(values)


def clip_of(fields: Fields) -> float:
    """Reads clip_qkv, the limit to which q, k and v are clipped; 0 where the field is absent or null."""
    return fields.optional_number("clip_qkv", 1e-6, 1e6) or 0.0


def refuse_setting(fields: Fields, name: str, why: str) -> None:
    """Raises UnsupportedModel where a field that changes the answer has any value but null, false, 0 or []. why: the
    error's second sentence."""
    value = fields.value(name)
    if value:
        raise UnsupportedModel(
            f"{fields.place}: {name} is {str(value)[:40]}.",
            why=why,
            fix="Use a model of this family that does not set this field.",
        )


def refuse_quantized(fields: Fields) -> None:
    """Raises UnsupportedModel where the checkpoint's weights are quantized in a way that cannot be read."""
    scheme_of(fields.values, fields.place)


def activation(fields: Fields, name: str, default: str) -> Activation:
    """Reads the activation function that a field names. Raises UnsupportedModel for a name that is not known."""
    word = fields.text(name, default)
    if word not in HF_NAMES:
        raise UnsupportedModel(
            f"config.json: {name} {word[:40]!r} is not implemented.",
            why="Implemented: " + ", ".join(HF_NAMES) + ".",
            fix="Use a model with one of these.",
        )
    return HF_NAMES[word]


def rounded_to(dtype: str, number: float) -> float:
    """Returns the number as a tensor of this dtype holds it, because transformers keeps some factors in the dtype of
    the weights."""
    if dtype == "bfloat16":
        (bits,) = struct.unpack("<I", struct.pack("<f", number))
        bits += 0x7FFF + (bits >> 16 & 1)  # to the nearest, ties to even
        return float(struct.unpack("<f", struct.pack("<I", bits & 0xFFFF0000))[0])
    form = "<e" if dtype == "float16" else "<f"
    return float(struct.unpack(form, struct.pack(form, number))[0])


def silu_only(fields: Fields) -> None:
    """Raises UnsupportedModel where hidden_act is not silu."""
    word = fields.text("hidden_act", "silu")
    if word not in ("silu", "swish"):
        raise UnsupportedModel(
            f"config.json: hidden_act {word[:40]!r} is not implemented.",
            why="The family's feed-forward block is silu(gate) * up.",
            fix="Use a model with hidden_act silu.",
        )


def kv_heads(fields: Fields, num_heads: int, absent: int | None) -> int:
    """Reads num_key_value_heads. Where the config does not have the field it is `absent`, or the number of query heads
    where `absent` is None."""
    default = absent if not fields.has("num_key_value_heads") else None
    num_kv_heads = fields.integer("num_key_value_heads", 1, 4096, default=default or num_heads)
    if num_heads % num_kv_heads:
        raise CorruptModel(
            f"config.json: num_key_value_heads is {num_kv_heads}, num_attention_heads is {num_heads}.",
            why="Each KV head serves the same number of query heads, so the first must divide the second.",
            fix="Compare both with the model's original page.",
        )
    return num_kv_heads


def head_dim(fields: Fields, hidden_size: int, num_heads: int, absent: int | None = None) -> int:
    """Reads head_dim. Where the config does not have the field it is `absent`, or hidden_size / num_heads where
    `absent` is None. Rotations need an even number."""
    found = fields.optional_integer("head_dim", 2, 4096) or (None if fields.has("head_dim") else absent)
    if found is None:
        if hidden_size % num_heads:
            raise fields.wrong("hidden_size", f"Without head_dim it must be a multiple of the {num_heads} heads.")
        found = hidden_size // num_heads
    if not 1 <= found <= 4096:
        raise CorruptModel(
            f"config.json: heads have {found} elements.",
            why="head_dim must be from 1 to 4,096.",
            fix="Compare head_dim, hidden_size and num_attention_heads with the model's original page.",
        )
    return found


def windows_by_layer(fields: Fields, num_layers: int, window: int, usual: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the window of each layer. layer_types gives full_attention or sliding_attention for each layer; where it
    is absent the windows are `usual`."""
    types = fields.texts("layer_types")
    if not types:
        return usual
    known = {"full_attention": 0, "sliding_attention": window}
    if "sliding_attention" in types and not window:
        raise fields.wrong("layer_types", "It has sliding layers, and no sliding_window is in use.")
    if len(types) != num_layers or any(name not in known for name in types):
        raise fields.wrong("layer_types", f"It must say full_attention or sliding_attention {num_layers} times.")
    return tuple(known[name] for name in types)


def one_window(fields: Fields, family: str, windows: tuple[int, ...], usual: tuple[int, ...]) -> tuple[int, ...]:
    """Checks that layer_types gives each layer the window that the family has without this field. windows: the window
    of each layer by layer_types, which is returned. usual: the family's windows. Raises UnsupportedModel where they
    differ."""
    if windows != usual:
        raise UnsupportedModel(
            f"config.json: layer_types mixes windows in a {family} model.",
            why="transformers ignores it for this architecture, but other engines do not: its meaning is not clear.",
            fix="Remove layer_types from config.json if every layer is meant to be the same.",
        )
    return windows


def _dtype(fields: Fields) -> str:
    """Reads the dtype in which the checkpoint was saved. It is bfloat16 where config.json does not have the field; only
    the default of --weights depends on it."""
    word = fields.text("dtype", fields.text("torch_dtype", "bfloat16")).removeprefix("torch.")
    if word not in DTYPES:
        raise UnsupportedModel(
            f"config.json: dtype {word[:40]!r} is not implemented.",
            why="Weights are read as " + ", ".join(DTYPES) + ".",
            fix="Convert the checkpoint to bfloat16 with the tools that made it.",
        )
    return word
