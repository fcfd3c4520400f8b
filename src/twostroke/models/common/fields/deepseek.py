"""DeepSeek's layers: latent attention; after a few dense layers, experts of which some are shared by all rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from twostroke.models.common.blocks.banks import Banks, BankShape, EachExpert, Stacks
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.feed import Feed, FeedForwardText
from twostroke.models.common.blocks.index import Index, attend_chosen
from twostroke.models.common.blocks.mixture import MOST_EXPERTS, LinearRouter, Mixture, Shared, mixture
from twostroke.models.common.fields.fields import refuse_setting, silu_only
from twostroke.models.common.fields.latent import MOST_DIMENSIONS, LatentParts, attended, latent_layer, read_latent
from twostroke.models.common.fields.mixture import expert_groups
from twostroke.models.common.prediction import MtpHead, behind_the_last
from twostroke.models.common.registry import ProgramText
from twostroke.ops.products.route import RouteRule, Scores
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Value
from twostroke.ops.rows.expressions import add
from twostroke.types.errors import UnsupportedModel
from twostroke.types.spec.fields import Fields

MOST_CHOSEN = 1 << 16
BANKS = EachExpert("mlp.experts")
STACKS = Stacks("mlp.experts.gate_up_proj", "mlp.experts.down_proj")
LAYER_KINDS = ("dense", "sparse")
WORDS = {"F": "full", "S": "shared"}
FULL, SHARED = WORDS.values()
CHOICE_BIAS = "mlp.gate.e_score_correction_bias"
NORMALISED_BY = 1e-20
"""The number that is added to the sum of the experts' weights before the weights are divided by it."""


def biased_experts(parts: LatentParts) -> FeedForwardText:
    """Returns DeepSeek-V3's block of experts, chosen by sigmoid scores plus a bias. The block adds its output to the
    residual."""
    return mixture(biased_mixture(parts))


def biased_mixture(parts: LatentParts) -> Mixture:
    """Reads DeepSeek-V3's experts. Scores go through a sigmoid, a bias changes only the choice, and groups are chosen
    by the sum of their two largest scores."""
    fields = parts.fields
    require(fields, "scoring_func", "sigmoid")
    require(fields, "topk_method", "noaux_tc")
    count = expert_count(fields)
    groups, kept = expert_groups(fields, count, 2, 1)
    rule = RouteRule(
        _chosen(fields, kept * count // groups),
        fields.boolean("norm_topk_prob", True),
        Scores.SIGMOID,
        groups,
        kept,
        best=2 if groups > 1 else 1,
        added=NORMALISED_BY,
        factor=fields.number("routed_scaling_factor", 1e-6, 1e6, default=1.0),
    )
    return _mixture(parts, count, LinearRouter("mlp.gate", count, rule, choice_bias=CHOICE_BIAS))


def plain_experts(parts: LatentParts) -> FeedForwardText:
    """Reads DeepSeek-V2's experts. Scores are shares of a softmax, and groups are chosen by their largest score;
    topk_method decides whether there are groups.

    norm_topk_prob is ignored, as in transformers. It is false in all published configs.
    """
    fields = parts.fields
    require(fields, "scoring_func", "softmax")
    require(fields, "topk_method", "greedy", "group_limited_greedy")
    count = expert_count(fields)
    grouped = fields.text("topk_method", "greedy") != "greedy"
    groups, kept = expert_groups(fields, count, 1, None) if grouped else (1, 1)
    factor = fields.number("routed_scaling_factor", 1e-6, 1e6, default=1.0)
    rule = RouteRule(_chosen(fields, kept * count // groups), groups=groups, kept=kept, factor=factor)
    return _block(parts, count, LinearRouter("mlp.gate", count, rule))


def normalised_experts(parts: LatentParts) -> FeedForwardText:
    """Reads Mistral's experts. Scores are shares of a softmax, and the shares of the chosen experts are divided by
    their sum. There are no groups."""
    fields = parts.fields
    refuse_groups(fields)
    count = expert_count(fields)
    normalised = fields.boolean("norm_topk_prob", True)
    factor = fields.number("routed_scaling_factor", 1e-6, 1e6, default=1.0)
    rule = RouteRule(_chosen(fields, count), normalised, added=NORMALISED_BY, factor=factor)
    return _block(parts, count, LinearRouter("mlp.gate", count, rule), STACKS)


def refuse_groups(fields: Fields) -> None:
    """Raises UnsupportedModel where experts are chosen by group."""
    groups = fields.integer("n_group", 1, MOST_EXPERTS, default=1)
    if groups > 1:
        raise UnsupportedModel(
            f"{fields.place}: n_group {groups} is not implemented for this family.",
            why="Its groups would be chosen by the sum of two shares, which no published model does.",
            fix="Use a model whose n_group is 1.",
        )


def mixed_program(parts: LatentParts, block: FeedForwardText, sparse: Sequence[bool]) -> ProgramText:
    """Returns the program of layers with and without experts. sparse: for each layer, whether it has experts."""

    def layer(t: Tracer, index: int, x: Value) -> Value:
        return mixed_layer(t, parts, block, x) if sparse[index] else latent_layer(t, parts, x)

    return decoder_program(parts.decoder, layer)


def mixed_layer(t: Tracer, parts: LatentParts, block: FeedForwardText, x: Value) -> Value:
    """Applies a layer of latent attention and the feed-forward block `block` of experts."""
    x = attended(t, parts, x)
    return block(t, x, parts.norm(t, "post_attention_layernorm", x))


def mixed_prediction(parts: LatentParts) -> tuple[MtpHead, ...]:
    """Reads the layers after the model's last one that predict further tokens (MTP). These layers have experts."""
    block = biased_experts(parts)
    return behind_the_last(parts.fields, parts.norm, lambda t, x: mixed_layer(t, parts, block, x))


def indexed_parts(
    fields: Fields, silent: Mapping[str, object], heads: int, interleaved: bool = False, *, side_by_side: bool = True
) -> tuple[LatentParts, Index]:
    """Reads the attention and feed-forward settings of a model with sparse attention, and its index, which chooses
    positions. heads: the index's number of heads where the config has none. interleaved: the rotary pairs of the index
    are adjacent. side_by_side: the rotary pairs of the attention are adjacent."""
    silu_only(fields)
    refuse_setting(fields, "mlp_bias", "No published model of this family has biases in its feed-forward blocks.")
    if any(kind != "indexed_attention" for kind in fields.texts("layer_types")):
        raise fields.wrong("layer_types", "Every layer of this family chooses positions: indexed_attention.")
    parts = read_latent(fields, silent, interleaved=side_by_side, ignored=prediction_layers(fields))
    fields = parts.fields
    if not parts.heads.query_rank:
        raise fields.wrong("q_lora_rank", "The index reads the latent that queries are made of.")
    index = Index(
        fields.integer("index_n_heads", 1, 512, default=heads),
        fields.integer("index_head_dim", parts.heads.turned, MOST_DIMENSIONS, default=128),
        fields.integer("index_topk", 1, MOST_CHOSEN, default=2048),
        interleaved=interleaved,
    )
    return parts, index


def indexed_prediction(parts: LatentParts, index: Index) -> tuple[MtpHead, ...]:
    """Reads the layers that predict further tokens (MTP), for a model with sparse attention. Each of them has an index
    of its own."""
    block = biased_experts(parts)

    def layer(t: Tracer, x: Value) -> Value:
        x = add(x, attend_chosen(t, parts.heads, index, parts.norm(t, "input_layernorm", x)))
        return block(t, x, parts.norm(t, "post_attention_layernorm", x))

    return behind_the_last(parts.fields, parts.norm, layer)


def behind_dense(parts: LatentParts, default: int) -> tuple[bool, ...]:
    """Returns for each layer whether it has experts: all have, except the first `first_k_dense_replace` layers.
    default: the value of this field where the config does not have it."""
    dense = parts.fields.integer("first_k_dense_replace", 0, parts.facts.num_layers, default=default)
    if parts.fields.integer("moe_layer_freq", 1, 4096, default=1) != 1:
        raise parts.fields.wrong("moe_layer_freq", "All layers after the first dense ones must have experts.")
    return tuple(index >= dense for index in range(parts.facts.num_layers))


def layers_with_experts(parts: LatentParts, default: int) -> tuple[bool, ...]:
    """Returns for each layer whether it has experts. mlp_layer_types decides it, or first_k_dense_replace where that
    field is absent."""
    said, layers = parts.fields.texts("mlp_layer_types"), parts.facts.num_layers
    if not said:
        return behind_dense(parts, default)
    if len(said) != layers or any(kind not in LAYER_KINDS for kind in said):
        raise parts.fields.wrong("mlp_layer_types", f"It must say dense or sparse {layers} times.")
    return tuple(kind == "sparse" for kind in said)


def choosing_layers(fields: Fields, layers: int) -> tuple[bool, ...]:
    """Returns for each layer whether its own index chooses the positions of sparse attention. indexer_types decides it,
    or index_topk_pattern, or the two numbers index_topk_freq and index_skip_topk_offset."""
    words: list[str] = list(fields.texts("indexer_types"))
    name = "indexer_types" if words else "index_topk_pattern"
    pattern = fields.value("index_topk_pattern")
    if not words and isinstance(pattern, str):
        words = [WORDS.get(letter, letter) for letter in pattern]
    elif not words:
        words = list(fields.texts("index_topk_pattern"))
    if not words:
        step = fields.integer("index_topk_freq", 0, 4096, default=1) or 1
        first = fields.integer("index_skip_topk_offset", 0, 4096, default=2)
        words = [SHARED if max(number - first + 1, 0) % step else FULL for number in range(layers)]
    if len(words) != layers or any(word not in (FULL, SHARED) for word in words) or words[0] != FULL:
        raise fields.wrong(name, f"It must say {layers} times full or shared, full first.")
    return tuple(word == FULL for word in words)


def prediction_layers(fields: Fields) -> tuple[str, ...]:
    """Returns the prefixes of tensor names of the layers after the model's last one. They predict further tokens (MTP),
    and the model itself does not read their tensors."""
    last = fields.integer("num_hidden_layers", 1, 4096)
    count = fields.integer("num_nextn_predict_layers", 0, 64, default=1)
    return tuple(f"model.layers.{last + index}." for index in range(max(1, count)))


def expert_count(fields: Fields) -> int:
    """Reads n_routed_experts."""
    return fields.integer("n_routed_experts", 1, MOST_EXPERTS)


def require(fields: Fields, name: str, *known: str) -> None:
    """Raises UnsupportedModel where the field `name` holds a word that is not in `known`. The field may be absent."""
    word = fields.text(name, known[0])
    if word not in known:
        raise UnsupportedModel(
            f"{fields.place}: {name} {word[:40]!r} is not implemented.",
            why=f"Implemented for this family: {', '.join(known)}.",
            fix="Use a model of this family with one of these.",
        )


def _chosen(fields: Fields, count: int) -> int:
    return fields.integer("num_experts_per_tok", 1, count)


def _block(parts: LatentParts, count: int, router: LinearRouter, banks: Banks = BANKS) -> FeedForwardText:
    return mixture(_mixture(parts, count, router, banks))


def _mixture(parts: LatentParts, count: int, router: LinearRouter, banks: Banks = BANKS) -> Mixture:
    fields, hidden = parts.fields, parts.facts.hidden_size
    inner = fields.integer("moe_intermediate_size", 1, 1 << 20)
    every = fields.integer("n_shared_experts", 0, MOST_EXPERTS, default=0)
    prefix = "mlp.shared_experts."
    shared = Feed(
        hidden,
        inner * every,
        parts.feed.activation,
        parts.feed.bias,
        gate=f"{prefix}gate_proj",
        up=f"{prefix}up_proj",
        down=f"{prefix}down_proj",
    )
    return Mixture(BankShape(count, hidden, inner), router, banks, shared=Shared(shared) if every else None)
