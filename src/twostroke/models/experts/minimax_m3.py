"""MiniMax-M3: clamped gates in the experts and in the shared expert, norms on heads, a part of each head is rotated
(2026).

Layers of the type minimax_m3_sparse attend to blocks of keys that they choose. This choice is not implemented. Up to a
certain length all blocks would be chosen, so these layers see all positions; the longest sequence has this length.
"""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.attend import attend
from twostroke.models.common.blocks.banks import BankShape, EachExpert
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.encoder import BlockText
from twostroke.models.common.blocks.mixture import ClampedFeed, LinearRouter, Mixture
from twostroke.models.common.fields.mixture import LARGEST, expert_count
from twostroke.models.common.fields.nested import text_model
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import Architecture, CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.products.experts import ExpertRule
from twostroke.ops.products.route import RouteRule, Scores
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import add
from twostroke.types.errors import UnsupportedModel
from twostroke.types.spec.rope import MAX_POSITIONS, rope_from_config

GAIN = 1.702
FULL, SPARSE = "full_attention", "minimax_m3_sparse"
INDEX = ("index_q_proj.", "index_k_proj.", "index_q_norm.", "index_k_norm.")
"""The names of the tensors with which a sparse layer chooses blocks of keys; they are not read."""
MOE = "block_sparse_moe"


@architecture("MiniMaxM3SparseForConditionalGeneration", model_type="minimax_m3_vl")
def minimax_m3(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads only the language model of a checkpoint that also has an image encoder."""
    facts, text = text_model(fields, Architecture("MiniMaxM3Text", "minimax_m3_vl_text", _text))
    return replace(facts, ignored=(*facts.ignored, "patch_merge_mlp.")), text


def _text(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads the language model. Norms are stored as w - 1. Experts' weights add up to routed_scaling_factor; the shared
    expert has a weight of 1."""
    if fields.text("hidden_act", "silu") not in ("silu", "swigluoai"):
        raise fields.wrong("hidden_act", "Blocks of this family have a clamped gate, swigluoai.")
    parts = read_parts(fields.changed({"hidden_act": "silu"}), defaults("minimax_m3_vl_text"), kv_absent=4, plus=1.0)
    fields, facts, dim = parts.fields, parts.facts, parts.heads.head_dim
    turn = rope_from_config(fields, dim, facts.max_positions, partial=1.0, theta=5e6)
    if fields.integer("rotary_dim", 2, dim, default=turn.rotary_dim) != turn.rotary_dim:
        raise fields.wrong("rotary_dim", f"By partial_rotary_factor {turn.rotary_dim} elements of a head turn.")
    norm, heads = parts.norm, replace(parts.heads, head_norm=parts.norm)
    sparse = [index for index, kind in enumerate(_kinds(fields, facts.num_layers)) if kind == SPARSE]
    blocks = _blocks(fields, facts.hidden_size, facts.num_layers)

    def layer(t: Tracer, index: int, x: Value) -> Value:
        x = add(x, attend(t, heads, norm(t, "input_layernorm", x), turn=turn))
        return add(x, blocks[index](t, norm(t, "post_attention_layernorm", x)))

    unread = (f"model.layers.{index}.self_attn.{name}" for index in sparse for name in INDEX)
    longest = min(facts.max_positions, _seen_whole(fields)) if sparse else facts.max_positions
    facts = replace(facts, max_positions=longest, ignored=(*facts.ignored, *unread, "mtp."))
    return facts, decoder_program(parts.decoder, layer)


def _kinds(fields: Fields, layers: int) -> list[str]:
    """Returns the type of each layer, from layer_types or from the published group sparse_attention_config."""
    group = fields.group("sparse_attention_config")
    numbers = () if group is None else group.integers("sparse_attention_freq")
    kinds = list(fields.texts("layer_types")) or [SPARSE if each else FULL for each in numbers] or [FULL] * layers
    if len(kinds) != layers or any(kind not in (FULL, SPARSE) for kind in kinds):
        raise fields.wrong("layer_types", f"It must say {layers} times {FULL} or {SPARSE}.")
    return kinds


def _seen_whole(fields: Fields) -> int:
    """Returns how many positions the blocks hold that a layer may choose, all together. Up to this length, a layer that
    chooses blocks sees every position."""
    group = fields.group("sparse_attention_config") or Fields({}, fields.place)
    found = 1
    for name, old, usual in (
        ("index_topk_blocks", "sparse_topk_blocks", 16),
        ("index_block_size", "sparse_block_size", 128),
    ):
        found *= group.optional_integer(old, 1, MAX_POSITIONS) or fields.integer(name, 1, MAX_POSITIONS, default=usual)
    return min(found, MAX_POSITIONS)


def _blocks(fields: Fields, hidden: int, layers: int) -> list[BlockText]:
    """Returns the feed-forward block of each layer."""
    if fields.number("swiglu_alpha", 0.0, 1e3) != GAIN:
        raise UnsupportedModel("config.json: swiglu_alpha is not implemented.", why=f"Implemented is a gain of {GAIN}.")
    rule = ExpertRule(Activation.QUICK_GELU, fields.number("swiglu_limit", 1e-3, 1e6), shift=1.0)
    sizes = {name: fields.integer(f"{name}intermediate_size", 1, LARGEST) for name in ("", "dense_", "shared_")}
    count = expert_count(fields)
    chosen = fields.integer("num_experts_per_tok", 1, count)
    factor = fields.number("routed_scaling_factor", 1e-6, 1e6)
    route = RouteRule(chosen, normalised=True, scores=Scores.SIGMOID, factor=factor)
    router = LinearRouter(f"{MOE}.gate", count, route, choice_bias=f"{MOE}.e_score_correction_bias")
    banks = EachExpert(f"{MOE}.experts", gate="w1", up="w3", down_name="w2")
    experts = Mixture(BankShape(count, hidden, sizes[""]), router, banks, rule)
    shared = ClampedFeed(hidden, sizes["shared_"], rule, f"{MOE}.shared_experts")
    dense = ClampedFeed(hidden, sizes["dense_"], rule, "mlp")

    def mixed(t: Tracer, h: Value) -> Value:
        return add(experts(t, h), shared(t, h))

    numbers = fields.integers("moe_layer_freq")
    kinds = list(fields.texts("mlp_layer_types")) or ["sparse" if each else "dense" for each in numbers]
    kinds = kinds or ["sparse"] * layers
    if len(kinds) != layers or any(kind not in ("dense", "sparse") for kind in kinds):
        raise fields.wrong("mlp_layer_types", f"It must say {layers} times dense or sparse.")
    return [mixed if kind == "sparse" else dense for kind in kinds]
