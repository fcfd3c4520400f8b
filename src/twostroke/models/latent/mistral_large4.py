"""Mistral Large 4: latent attention to chosen positions, learned rotation frequencies, and queries that grow with their
position (Mistral AI 2026).

Frequencies are multiplied by the exponential of learned numbers; some layers are not rotated. Queries at position p are
multiplied by s log(1 + p) + b, where s and b are learned for each head. This holds for the heads of attention and of
the index, which chooses positions. A layer may read the latents in an earlier layer's cache in place of its own. Names
of tensors are Mistral's own, as in published files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from twostroke.models.common.blocks.banks import BankShape, EachExpert
from twostroke.models.common.blocks.decoder import head
from twostroke.models.common.blocks.feed import Feed
from twostroke.models.common.blocks.index import INDEX_EPS, Index, choose
from twostroke.models.common.blocks.latent import LatentHeads, LatentNames, keep_latents, output, queries
from twostroke.models.common.blocks.mixture import MOST_EXPERTS, LinearRouter, Mixture, Shared
from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.models.common.blocks.same_rows import same_rows
from twostroke.models.common.fields.deepseek import (
    MOST_CHOSEN,
    NORMALISED_BY,
    choosing_layers,
    expert_count,
    layers_with_experts,
    refuse_groups,
)
from twostroke.models.common.fields.fields import refuse_setting, silu_only
from twostroke.models.common.fields.latent import MOST_DIMENSIONS, LatentParts, read_latent
from twostroke.models.common.fields.mixture import LARGEST
from twostroke.models.common.fields.nested import text_model
from twostroke.models.kit import Architecture, CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.attention.chosen_latent_attention import chosen_latent_attention
from twostroke.ops.attention.rope import rope
from twostroke.ops.products.embed import embed
from twostroke.ops.products.route import RouteRule
from twostroke.ops.products.take_columns import take_columns
from twostroke.ops.program.values import Cache, Rope
from twostroke.ops.rows.expressions import add, scale_columns
from twostroke.types.spec.rope import RopeKind, RopeSpec

SILENT = defaults("mistral_large4_text")
NAMES = LatentNames(q="wq", down="wkv_a_with_mqa", norm="kv_a_norm", up="wkv_b", out="wo")
RATES = "lerope.alpha"
NOT_TEXT = ("vision_language_adapter.", "pre_mm_projector_norm.", "patch_merger.", "mtp_dspark.")
INTERVAL = 4
"""Every INTERVAL-th layer is not rotated, where the config has neither no_rope_layers nor no_rope_layer_interval."""
GROWING = RopeSpec(RopeKind.STILL, 1e4, 2, 1, growth=1.0)
"""A RopeSpec that rotates nothing and multiplies by 1 + log(1 + position)."""


@dataclass(slots=True)
class Kept:
    """What layers keep for later layers in one trace. caches: the latents, by the number of their layer. chosen: the
    positions that were chosen last."""

    caches: dict[int, Cache] = field(default_factory=dict)
    chosen: Value | None = None


@dataclass(frozen=True, slots=True)
class Layers:
    """The attention of all layers. turned: the heads of layers with rotations. still: the heads of layers without.

    Each of the other fields has one member for each layer. turning: whether the layer has rotations. own: whether it
    chooses positions itself. sources: the number of the layer whose latents it attends to.
    """

    turned: LatentHeads
    still: LatentHeads
    index: Index
    turning: Sequence[bool]
    own: Sequence[bool]
    sources: Sequence[int]

    def attend(self, t: Tracer, number: int, h: Value, logs: Value, kept: Kept) -> Value:
        """Returns the output of layer `number`'s attention for the normed rows h. logs (T, 2): the logarithms of 1 +
        position."""
        shape = self.turned if self.turning[number] else self.still
        if self.sources[number] == number:
            kept.caches[number] = keep_latents(t, shape, h)
        cache = kept.caches[self.sources[number]]
        asked, turned = queries(t, shape, h, _growth(t, f"{shape.name}.ssmax_scaling", h, logs, shape.num_heads))
        if self.own[number]:
            begin = f"{shape.name}.indexer."
            source = Norm(INDEX_EPS, NormKind.LAYER)(t, f"{begin}q_input_norm", h)
            factor = _growth(t, f"{begin}ssmax_scaling", h, logs, self.index.heads)
            kept.chosen = choose(t, shape, self.index, h, source, factor)
        if kept.chosen is None:
            raise ValueError("the first layer must choose positions")
        return output(t, shape, chosen_latent_attention(asked, turned, kept.chosen, cache, shape.scale))


@architecture("MistralLarge4ForConditionalGeneration", model_type="mistral_large4")
def mistral_large4(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads only the language model of a checkpoint that also has an image encoder."""
    return text_model(fields, Architecture("MistralLarge4Text", "mistral_large4_text", _text), SILENT)


def _text(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads the language model. Despite its name, no_rope_layers has a 1 for each layer that is rotated.
    kv_source_layers has, for each layer, the number of the layer whose latents it attends to."""
    parts = _read(fields)
    fields, facts = parts.fields, parts.facts
    blocks, experts, sparse = _layers(parts), _experts(parts), layers_with_experts(parts, 1)
    cap = fields.number("final_logit_softcapping", 1e-3, 1e6)
    decoder = replace(
        parts.decoder, soft_cap=cap, embedding="tok_embeddings", layers="layers", last_norm="norm", head="output"
    )

    def text(t: Tracer) -> Value:
        table = t.matrix("embedding", {decoder.embedding: facts.vocab_size}, facts.hidden_size)
        x, kept = embed(table, t.token_ids, t), Kept()
        ones, minus = (t.constant("one", (number,) * 2) for number in (1.0, -1.0))
        grown = rope(same_rows(t, x.columns(0, 2), ones).heads(1), Rope(GROWING), t.positions).flat()
        logs = add(grown, same_rows(t, x.columns(0, 2), minus))
        for number in range(facts.num_layers):
            with t.layer(f"{decoder.layers}.{number}."):
                x = add(x, blocks.attend(t, number, parts.norm(t, "attention_norm", x), logs, kept))
                h = parts.norm(t, "ffn_norm", x)
                x = add(x, experts(t, h) if sparse[number] else parts.feed(t, h))
        return head(t, decoder, x)

    unread = () if any(blocks.turning) else (RATES,)
    return replace(facts, ignored=(*facts.ignored, *NOT_TEXT, *unread)), text


def _read(fields: Fields) -> LatentParts:
    silu_only(fields)
    for name in ("attention_bias", "mlp_bias", "q_lora_rank", "tie_word_embeddings"):
        refuse_setting(fields, name, "No published model of this family has it.")
    if any(kind != "indexed_attention" for kind in fields.texts("layer_types")):
        raise fields.wrong("layer_types", "Every layer of this family chooses positions: indexed_attention.")
    parts = read_latent(fields, SILENT, interleaved=True)
    heads = replace(parts.heads, name="attention", names=NAMES, norm=parts.norm, rates=RATES)
    feed = replace(parts.feed, gate="feed_forward.w1", up="feed_forward.w3", down="feed_forward.w2")
    return replace(parts, heads=heads, feed=feed)


def _layers(parts: LatentParts) -> Layers:
    fields, heads, count = parts.fields, parts.heads, parts.facts.num_layers
    turning = _turning(fields, count)
    still = replace(heads, plain=heads.plain + heads.turned, turned=0, turn=None, rates="")
    index = Index(
        fields.integer("index_n_heads", 1, 512, default=32),
        fields.integer("index_head_dim", heads.turned, MOST_DIMENSIONS, default=128),
        fields.integer("index_topk", 1, MOST_CHOSEN, default=2048),
        interleaved=True,
    )
    return Layers(heads, still, index, turning, choosing_layers(fields, count), _sources(fields, turning))


def _turning(fields: Fields, layers: int) -> tuple[bool, ...]:
    said = fields.integers("no_rope_layers")
    if not said:
        interval = fields.integer("no_rope_layer_interval", 1, 4096, default=INTERVAL)
        return tuple((number + 1) % interval != 0 for number in range(layers))
    if len(said) < layers or any(each not in (0, 1) for each in said[:layers]):
        raise fields.wrong("no_rope_layers", f"It must say 0 or 1 for each of the {layers} layers.")
    return tuple(each == 1 for each in said[:layers])


def _sources(fields: Fields, turning: Sequence[bool]) -> tuple[int, ...]:
    """Reads kv_source_layers: for each layer, the layer whose latents it attends to. The only implemented source other
    than the layer itself is the last earlier layer of its kind (rotated or not) that shares its latents. transformers
    would take that layer whatever the field holds, so any other source raises CorruptModel."""
    layers = len(turning)
    sources = fields.integers("kv_source_layers") or tuple(range(layers))
    latest: dict[bool, int] = {}
    for number, source in enumerate(sources[:layers]):
        if source == number:
            if number in sources[number + 1 :]:
                latest[turning[number]] = number
        elif latest.get(turning[number]) != source:
            raise fields.wrong(
                "kv_source_layers",
                f"Layer {number} can only attend to latents of the last layer of its kind that shares them.",
            )
    if len(sources) != layers:
        raise fields.wrong("kv_source_layers", f"It must have {layers} members.")
    return tuple(sources)


def _growth(t: Tracer, name: str, h: Value, logs: Value, heads: int) -> Value:
    """Returns the factor of the queries, (T, heads): s log(1 + position) + b, with s and b of each head. logs: the
    logarithms of 1 + position. h: any value with the step's rows; its numbers are not read."""
    repeated = take_columns(logs, t.constant("first", (0.0,) * heads))
    grown = scale_columns(repeated, t.vector(f"{name}.s", heads, suffix=""))
    return add(grown, same_rows(t, h.columns(0, heads), t.vector(f"{name}.b", heads, suffix="")))


def _experts(parts: LatentParts) -> Mixture:
    """Reads the experts. Scores are shares of a softmax, and the shares of the chosen experts are divided by their sum.
    """
    fields, hidden = parts.fields, parts.facts.hidden_size
    refuse_groups(fields)
    count, inner = expert_count(fields), fields.integer("moe_intermediate_size", 1, LARGEST)
    chosen = fields.integer("num_experts_per_tok", 1, count)
    factor = fields.number("routed_scaling_factor", 1e-6, 1e6, default=1.0)
    every = fields.integer("n_shared_experts", 1, MOST_EXPERTS) * inner
    shared = Feed(hidden, every, gate="shared_experts.w1", up="shared_experts.w3", down="shared_experts.w2")
    return Mixture(
        BankShape(count, hidden, inner),
        LinearRouter("gate", count, RouteRule(chosen, True, added=NORMALISED_BY, factor=factor)),
        EachExpert("experts", "w1", "w3", "w2"),
        shared=Shared(shared),
    )
