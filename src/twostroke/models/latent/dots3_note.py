"""Dots 3 Note: layers of latent attention with a window, and between them layers that attend to positions chosen by an
index (rednote 2026).

Layers of both kinds have heads and latents of their own sizes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.index import Index, attend_chosen
from twostroke.models.common.blocks.latent import LatentHeads, attend_latents
from twostroke.models.common.blocks.mixture import MOST_EXPERTS, Mixture, mixture
from twostroke.models.common.fields.deepseek import MOST_CHOSEN, biased_mixture, layers_with_experts
from twostroke.models.common.fields.fields import refuse_setting, silu_only, usual_names, with_silent
from twostroke.models.common.fields.latent import MOST_DIMENSIONS, LatentParts, read_latent
from twostroke.models.common.fields.mixture import LARGEST
from twostroke.models.common.fields.nested import language_model_or_flat
from twostroke.models.common.fields.read import window_of
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.rows.expressions import add
from twostroke.types.errors import UnsupportedModel

SAME = {
    **{"sliding_window_size": "sliding_window", "num_local_experts": "n_routed_experts"},
    "moe_shared_expert_intermediate_size": "shared_experts_intermediate_size",
}
"""The names of fields in published files, each with the name in transformers."""
WINDOWED = {
    **{"num_attention_heads": 64, "num_key_value_heads": 64, "q_lora_rank": 1024, "kv_lora_rank": 1024},
    **{"head_dim": 256, "qk_nope_head_dim": 192, "v_head_dim": 128},
}
"""The sizes of layers with a window where the config does not have the field. Published files name these fields
swa_NAME."""
SIZES = (*WINDOWED, "qk_rope_head_dim")
FULL, INDEXED, WINDOW = "full_attention", "indexed_attention", "sliding_attention"
THETAS = {FULL: ("rope_theta", 8e7), INDEXED: ("rope_theta", 8e7), WINDOW: ("swa_rope_theta", 5e4)}


@dataclass(frozen=True, slots=True)
class Kinds:
    """The attention of each kind of layer. open: the heads of layers that see everything or choose positions. windowed:
    the heads of layers with a window. index: chooses the positions."""

    open: LatentHeads
    windowed: LatentHeads
    index: Index

    def attend(self, t: Tracer, kind: str, h: Value) -> Value:
        """Returns the output of an attention layer of this kind for the normed rows h, before it is added to the
        residual."""
        if kind == INDEXED:
            return attend_chosen(t, self.open, self.index, h)
        return attend_latents(t, self.windowed if kind == WINDOW else self.open, h)


@architecture("Dots3NoteForCausalLM", model_type="dots3_note_text")
def dots3_note(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Dots 3 Note. layer_types defines which layers have a window, and which choose the positions they attend
    to."""
    silu_only(fields)
    for name in ("attention_bias", "mlp_bias", "rope_scaling"):
        refuse_setting(fields, name, "No published model of this family has it.")
    fields = with_silent(usual_names(fields, SAME), defaults("dots3_note_text"))
    layers = fields.integer("num_hidden_layers", 1, 4096)
    kinds = _kinds(fields, layers)
    parts = _parts(fields, FULL if FULL in kinds else INDEXED)
    norm, facts = parts.norm, parts.facts
    windowed = _parts(_windowed(fields, kinds), WINDOW).heads if WINDOW in kinds else parts.heads
    blocks = Kinds(parts.heads, replace(windowed, window=window_of(fields, 512)), _index(parts))
    sparse = _sparse(fields, parts)
    experts = mixture(_experts(parts)) if any(sparse) else None

    def layer(t: Tracer, number: int, x: Value) -> Value:
        x = add(x, blocks.attend(t, kinds[number], norm(t, "input_layernorm", x)))
        h = norm(t, "post_attention_layernorm", x)
        return experts(t, x, h) if experts and sparse[number] else add(x, parts.feed(t, h))

    ignored = (*facts.ignored, f"model.layers.{layers}.", "model.mtp.")
    return replace(facts, ignored=ignored), decoder_program(parts.decoder, layer)


@architecture("Dots3NoteForConditionalGeneration", model_type="dots3_note")
def dots3_note_with_images(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads only the language model of a checkpoint that also has encoders for images and sounds."""
    return language_model_or_flat(fields, "Dots3NoteForCausalLM")


def _kinds(fields: Fields, layers: int) -> tuple[str, ...]:
    """Returns the kind of each layer. Published files call layers that choose positions full_attention, and set
    use_dsa."""
    usual = fields.boolean("use_sliding_window", True)
    kinds = fields.texts("layer_types") or tuple(
        WINDOW if usual and index >= 2 and index % 4 != 1 else INDEXED for index in range(layers)
    )
    if len(kinds) != layers or any(kind not in THETAS for kind in kinds):
        raise fields.wrong("layer_types", f"It must say {layers} times one of {', '.join(THETAS)}.")
    chooses = fields.boolean("use_dsa", True) if fields.has("use_dsa") or not fields.has("per_layer_config") else None
    if chooses is None:
        return tuple(kinds)
    old, new = (FULL, INDEXED) if chooses else (INDEXED, FULL)
    return tuple(new if kind == old else kind for kind in kinds)


def _windowed(fields: Fields, kinds: tuple[str, ...]) -> Fields:
    """Returns the fields with the sizes of heads and latents replaced by those of layers with a window."""
    if not fields.has("per_layer_config"):
        own = {name: fields.integer(f"swa_{name}", 1, LARGEST, default=usual) for name, usual in WINDOWED.items()}
        rest = own["head_dim"] - own["qk_nope_head_dim"]
        own["qk_rope_head_dim"] = fields.integer("swa_qk_rope_head_dim", 2, MOST_DIMENSIONS, default=rest)
        return fields.changed(own)
    said = fields.group("per_layer_config") or Fields({}, fields.place)
    entries = [said.values.get(str(index), {}) for index, kind in enumerate(kinds) if kind == WINDOW]
    others = [said.values.get(str(index)) for index, kind in enumerate(kinds) if kind != WINDOW]
    if any(others) or any(entry != entries[0] for entry in entries) or not set(entries[0]) <= set(SIZES):
        raise UnsupportedModel(
            f"{fields.place}: per_layer_config sets other things than the sizes of all layers with a window.",
            why="Layers of one kind are the same here.",
            fix="Use a model whose layers of one kind are the same.",
        )
    return fields.changed(entries[0])


def _parts(fields: Fields, kind: str) -> LatentParts:
    """Reads the model's parts, with the attention heads of one kind of layer. Latents are scaled after their norms; the
    scale of the queries' latent is applied as a part of the scores' factor. The index that chooses positions reads this
    latent without the scale: a positive scale does not change which scores are largest."""
    groups = fields.group("rope_parameters") or Fields({}, fields.place)
    name, usual = THETAS[kind]
    theta = fields.number(name, 1.0 + 1e-6, 1e15, default=usual)
    nested = any(each in groups.values for each in THETAS)
    group = (groups.group(kind) if nested else groups) or Fields({}, fields.place)
    # The rotated share of a head follows from the sizes, whatever partial_rotary_factor is.
    said = {key: value for key, value in group.values.items() if key != "partial_rotary_factor"}
    turn = {"rope_type": "default", "rope_theta": theta, **said}
    parts = read_latent(fields.changed({"rope_parameters": turn}), {}, interleaved=True)
    heads, hidden = parts.heads, parts.facts.hidden_size
    if not heads.query_rank:
        raise fields.wrong("q_lora_rank", "Queries of this family are made of a latent.")
    score = ((heads.plain + heads.turned) * heads.query_rank / hidden) ** -0.5
    heads = replace(
        heads,
        scale=score,
        latent_scale=(hidden / heads.rank) ** 0.5,
        gate="g_proj",
        turned_norm="k_rope_only_layernorm",
        norm=parts.norm,
    )
    return replace(parts, heads=heads)


def _index(parts: LatentParts) -> Index:
    fields = parts.fields
    return Index(
        fields.integer("index_n_heads", 1, 512, default=64),
        fields.integer("index_head_dim", parts.heads.turned, MOST_DIMENSIONS, default=128),
        fields.integer("index_topk", 1, MOST_CHOSEN, default=2048),
        interleaved=True,
    )


def _sparse(fields: Fields, parts: LatentParts) -> tuple[bool, ...]:
    """Returns for each layer whether it has experts. The field mlp_layer_types lists this. Without it, the first
    first_k_dense_replace layers are dense, and moe_layer_freq (a step, or a list) decides for the others."""
    layers = parts.facts.num_layers
    if fields.texts("mlp_layer_types") or not isinstance(fields.value("moe_layer_freq"), list):
        return layers_with_experts(parts, 1)
    dense, listed = fields.integer("first_k_dense_replace", 0, layers, default=1), fields.integers("moe_layer_freq")
    if len(listed) != layers:
        raise fields.wrong("moe_layer_freq", f"It must have {layers} members.")
    return tuple(index >= dense and bool(each) for index, each in enumerate(listed))


def _experts(parts: LatentParts) -> Mixture:
    """Reads DeepSeek-V3's experts, whose shared block has a size of its own."""
    mixed, fields = biased_mixture(parts), parts.fields
    if mixed.shared is None:
        raise fields.wrong("n_shared_experts", "Layers of this family have one expert or more that every row uses.")
    count = fields.integer("n_shared_experts", 1, MOST_EXPERTS)
    inner = count * fields.integer("shared_experts_intermediate_size", 1, LARGEST)
    return replace(mixed, shared=replace(mixed.shared, feed=replace(mixed.shared.feed, inner_size=inner)))
