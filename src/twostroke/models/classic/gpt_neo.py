"""GPT-Neo: GPT-2 whose scores are not scaled, with a window in every other layer (EleutherAI 2021)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.attend import AttentionNames
from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.blocks.norm import NormKind
from twostroke.models.common.fields.fields import usual_names
from twostroke.models.common.fields.learned_positions import learned_positions
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture, defaults
from twostroke.types.spec.rope import MAX_POSITIONS

OWN_NAMES = {"num_heads": "num_attention_heads", "num_layers": "num_hidden_layers"}
PREFIX = "transformer."
NAMES = AttentionNames(*(f"attn.attention.{name}" for name in ("q_proj", "k_proj", "v_proj", "out_proj")))


@architecture("GPTNeoForCausalLM", model_type="gpt_neo")
def gpt_neo(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads GPT-Neo. attention_layers is "global" or "local" (with a window) for each layer; attention_types has the
    same words with counts."""
    fields = usual_names(fields, OWN_NAMES)
    silent = {**defaults("gpt_neo"), "intermediate_size": 4 * fields.integer("hidden_size", 2, 1 << 17)}
    fields = fields.changed({"head_dim": None, "num_key_value_heads": None})
    act = ("activation_function", "gelu_new")
    parts = read_parts(fields, silent, kind=NormKind.LAYER, eps="layer_norm_epsilon", act=act)
    window = parts.fields.integer("window_size", 1, MAX_POSITIONS, default=256)
    windows = tuple(window if word == "local" else 0 for word in _words(parts.fields, parts.facts.num_layers))
    parts = replace(
        parts,
        facts=replace(parts.facts, optional_prefix=PREFIX),
        heads=replace(parts.heads, scale=1.0, output_bias=True, names=NAMES),
        feed=replace(parts.feed, bias=True, gate="", up="mlp.c_fc", down="mlp.c_proj"),
        decoder=replace(
            parts.decoder,
            embedding=PREFIX + "wte",
            layers=PREFIX + "h",
            last_norm=PREFIX + "ln_f",
            after_embedding=learned_positions(PREFIX + "wpe", parts.facts),
        ),
    )
    return pre_decoder(parts, windows=windows, norms=("ln_1", "ln_2"))


def _words(fields: Fields, layers: int) -> tuple[str, ...]:
    words: list[str] = list(fields.texts("attention_layers"))
    types = fields.value("attention_types") or [[["global", "local"], layers // 2]]
    if not words:
        try:
            words = [str(word) for some, count in types for word in list(some) * int(count)]
        except (TypeError, ValueError):
            raise fields.wrong("attention_types", "It must hold pairs of a list of words and a count.") from None
    if len(words) != layers or any(word not in ("global", "local") for word in words):
        raise fields.wrong("attention_types", f"Together it must say global or local {layers} times.")
    return tuple(words)
