"""Step 3.5 and 3.7 (2026). Layers with a window have another number of query heads, each head has a gate, and in some
layers the activations of gated feed-forward blocks are clamped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from twostroke.models.common.blocks.attend import AttentionNames
from twostroke.models.common.blocks.banks import BankShape, StackEach
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.feed import FeedForwardText
from twostroke.models.common.blocks.layers import sparse_layer
from twostroke.models.common.blocks.mixture import ClampedFeed, LinearRouter, Mixture
from twostroke.models.common.fields.deepseek import prediction_layers, require
from twostroke.models.common.fields.fields import refuse_setting, silu_only, usual_names, windows_by_layer
from twostroke.models.common.fields.mixture import LARGEST, expert_count, listed_blocks
from twostroke.models.common.fields.nested import text_model_or_flat
from twostroke.models.common.fields.read import Parts, read_parts
from twostroke.models.kit import Architecture, CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.products.experts import ExpertRule
from twostroke.ops.products.route import RouteRule, Scores
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import add
from twostroke.types.spec.rope import MAX_POSITIONS, ropes_by_layer_type

OWN_NAMES = {
    **{"num_attention_groups": "num_key_value_heads", "moe_num_experts": "n_routed_experts"},
    **{"moe_top_k": "num_experts_per_tok", "share_expert_dims": "share_expert_dim"},
    "num_mtp_layers": "num_nextn_predict_layers",
}
LISTS = ("layer_types", "mlp_layer_types", "swiglu_limits", "swiglu_limits_shared", "rope_theta")
"""Lists of published configs that also have entries for the layers that predict further tokens."""
SHARES = "partial_rotary_factors"
FULL, SLIDING = "full_attention", "sliding_attention"
THETAS = {FULL: ("full_rope_theta", 10_000.0), SLIDING: ("sliding_rope_theta", 10_000.0)}
ALWAYS = ("use_head_wise_attn_gate", "use_moe_router_bias", "norm_expert_weight", "use_qk_norm", "zero_centered")
"""Fields of published configs that transformers assumes to be true."""
NAMES = AttentionNames(gate="self_attn.g_proj")


@architecture("Step3p7ForConditionalGeneration", "Step3p5ForCausalLM", model_type="step3p5", other_types=("step3p7",))
def step3p7(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads the language model of a checkpoint that also sees images, or Step 3.5, which is that model alone."""
    entry = Architecture("Step3p7Text", "step3p5", _text, ("step3p7",))
    facts, text = text_model_or_flat(fields, entry)
    return replace(facts, ignored=(*facts.ignored, "vit_large_projector.")), text


def _text(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads config.json and returns the language model. Its norms store w - 1 for a weight w. Layers with a window have
    num_sliding_attention_heads query heads."""
    silu_only(fields)
    fields = _usual(fields)
    parts = read_parts(fields, defaults("step3p5"), plus=1.0)
    fields, facts, layers = parts.fields, parts.facts, parts.facts.num_layers
    windows = windows_by_layer(
        fields, layers, fields.optional_integer("sliding_window", 1, MAX_POSITIONS) or 0, (0,) * layers
    )
    ropes = ropes_by_layer_type(fields, parts.heads.head_dim, facts.max_positions, THETAS, FULL, partial=1.0)
    kinds = _kinds(parts, windows)
    blocks = [_block(parts, limits) for limits in zip(*_limits(fields, layers), strict=True)]
    sparse = listed_blocks(fields, blocks[0][1], layers, 3)
    chosen = [both[1] if each else both[0] for both, each in zip(blocks, sparse, strict=True)]

    def layer(t: Tracer, index: int, x: Value) -> Value:
        kind = SLIDING if windows[index] else FULL
        return sparse_layer(t, kinds[kind], chosen[index], x, window=windows[index], turn=ropes[kind])

    facts = replace(facts, ignored=(*facts.ignored, *prediction_layers(fields)))
    return facts, decoder_program(parts.decoder, layer)


def _kinds(parts: Parts, windows: tuple[int, ...]) -> Mapping[str, Parts]:
    """Returns the settings of layers with full attention, and of layers with a window, by the name of the layer type.
    They differ in the number of query heads."""
    fields, usual = parts.fields, parts.heads
    count = fields.integer("num_sliding_attention_heads", 1, 4096, default=usual.num_heads)
    if count % usual.num_kv_heads:
        raise fields.wrong("num_sliding_attention_heads", f"{usual.num_kv_heads} KV heads must divide it.")
    said = fields.group("per_layer_config")
    for name in said.values if said else ():
        own = (said or fields).group(name)
        right = name.isdecimal() and int(name) < len(windows) and windows[int(name)] and own is not None
        if not right or own is None or own.values != {"num_attention_heads": count}:
            raise fields.wrong("per_layer_config", f"It may only set {count} heads for layers with a window.")
    biased = fields.boolean("attention_bias", False)
    heads = replace(
        usual,
        qkv_bias=biased,
        output_bias=biased,
        head_norm=parts.norm,
        names=NAMES,
        scale=fields.number("query_pre_attn_scalar", 1e-6, 1e6, default=float(usual.head_dim)) ** -0.5,
    )
    each = {FULL: usual.num_heads, SLIDING: count}
    return {kind: replace(parts, heads=replace(heads, num_heads=n, gates=n)) for kind, n in each.items()}


def _block(parts: Parts, limits: tuple[float, float]) -> tuple[FeedForwardText, FeedForwardText]:
    """Returns the two feed-forward blocks that a layer may have: the dense one, and the one with experts. limits: the
    magnitude to which activations are clamped, in the experts, and in the dense or shared block; 0 for no clamp."""
    fields, hidden = parts.fields, parts.facts.hidden_size
    rules = [ExpertRule(Activation.SILU, limit, hold_values=limit > 0) for limit in limits]
    count = expert_count(fields)
    route = RouteRule(
        fields.integer("num_experts_per_tok", 1, count),
        normalised=True,
        scores=Scores.SIGMOID,
        factor=fields.number("moe_router_scaling_factor", 1e-6, 1e6, default=1.0),
    )
    experts = Mixture(
        BankShape(count, hidden, fields.integer("moe_intermediate_size", 1, LARGEST)),
        LinearRouter("moe.gate", count, route, choice_bias="moe.router_bias"),
        StackEach("moe.gate_proj.weight", "moe.up_proj.weight", "moe.down_proj.weight"),
        rules[0],
    )
    shared = ClampedFeed(hidden, fields.integer("share_expert_dim", 1, LARGEST), rules[1], "share_expert")
    dense = ClampedFeed(hidden, parts.feed.inner_size, rules[1], "mlp")

    def plain(t: Tracer, residual: Value, h: Value) -> Value:
        return add(residual, dense(t, h))

    def mixed(t: Tracer, residual: Value, h: Value) -> Value:
        return add(add(residual, experts.chosen(t, h)), shared(t, h))

    return plain, mixed


def _limits(fields: Fields, layers: int) -> tuple[list[float], list[float]]:
    """Reads swiglu_limits and swiglu_limits_shared, with one number for each layer; 0 for no limit."""
    found: list[list[float]] = []
    for name in ("swiglu_limits", "swiglu_limits_shared"):
        said = fields.value(name) or [0] * layers
        right = isinstance(said, list) and len(said) == layers
        if not right or any(each and not (isinstance(each, (int, float)) and 0 < each < 1e6) for each in said):
            raise fields.wrong(name, f"It must hold {layers} limits, or null for none.")
        found.append([float(each or 0) for each in said])
    return found[0], found[1]


def _usual(fields: Fields) -> Fields:
    """Returns the fields under the names that transformers writes."""
    refuse_setting(fields, "mlp_bias", "No published model of this family has biases in its feed-forward blocks.")
    refuse_setting(fields, "use_mfa", "Attention with factors (MFA) is that of Step 3.")
    require(fields, "moe_router_activation", "sigmoid")
    for name in ALWAYS:
        if not fields.boolean(name, True):
            raise fields.wrong(name, "It must be true: transformers and this engine know no other model of the family.")
    fields = usual_names(fields, OWN_NAMES)
    layers = fields.integer("num_hidden_layers", 1, 4096, default=45)
    extra = fields.integer("num_nextn_predict_layers", 0, 64, default=0)
    values = dict(fields.values)
    for name in (*LISTS, SHARES):
        said = values.get(name)
        if isinstance(said, list) and len(said) == layers + extra:
            values[name] = said[:layers]
    listed = fields.value("moe_layers_enum")
    if listed is not None and values.get("mlp_layer_types") is None:
        words = listed.split(",") if isinstance(listed, str) else listed
        sparse = {int(word) for word in words if str(word).strip().isdecimal()}
        values["mlp_layer_types"] = ["sparse" if index in sparse else "dense" for index in range(layers)]
    other = fields.group("attention_other_setting")
    if other is not None:
        _check_other(fields, other)
        values.setdefault("num_sliding_attention_heads", other.value("num_attention_heads"))
    return _with_ropes(fields.only(values), layers)


def _check_other(fields: Fields, other: Fields) -> None:
    """Checks that layers with a window differ from the others in the number of query heads alone. Raises CorruptModel
    where they do not."""
    for name, usual in (("num_attention_groups", "num_key_value_heads"), ("head_dim", "head_dim")):
        if other.value(name) not in (None, fields.value(usual)):
            raise other.wrong(name, f"It must be equal to {usual}, which holds for all layers.")
    if other.value("attention_type") not in (None, SLIDING):
        raise other.wrong("attention_type", f"It must be {SLIDING}.")


def _with_ropes(fields: Fields, layers: int) -> Fields:
    """Returns the fields with rope_parameters for each kind of layer. Where it is absent, it is made from the lists
    rope_theta and partial_rotary_factors."""
    kinds = list(fields.texts("layer_types")) or [FULL] * layers
    groups = fields.group("rope_parameters")
    if groups is not None and all(isinstance(groups.values.get(kind), dict) for kind in kinds):
        return fields
    thetas, shares = fields.value("rope_theta", 10_000.0), fields.value(SHARES)
    found: dict[str, dict[str, object]] = {}
    for name, said in (("rope_theta", thetas), ("partial_rotary_factor", shares)):
        each = said if isinstance(said, list) else [said] * layers
        if len(each) != layers or len(kinds) != layers:
            raise fields.wrong(name, f"It must be one number, or a list of {layers} numbers, as layer_types has.")
        for kind, number in zip(kinds, each, strict=True):
            own = found.setdefault(kind, {"rope_type": "default"})
            if own.setdefault(name, number) != number:
                raise fields.wrong(name, f"Layers of the type {kind[:40]} must have the same number.")
    scaling = fields.group("rope_scaling")
    if scaling is not None and FULL in found:
        found[FULL].update(scaling.values)
    left = {name: value for name, value in fields.values.items() if name not in ("rope_theta", "rope_scaling", SHARES)}
    ropes = {kind: {name: value for name, value in own.items() if value is not None} for kind, own in found.items()}
    return fields.only({**left, "rope_parameters": ropes})
