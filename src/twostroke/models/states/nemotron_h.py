"""Nemotron-H: each layer is one block: Mamba-2, attention without positions, or a plain feed-forward block (NVIDIA
2025)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from twostroke.models.common.blocks.attend import AttentionNames, Heads, attend
from twostroke.models.common.blocks.banks import BankShape, EachExpert
from twostroke.models.common.blocks.decoder import decoder_of, decoder_program
from twostroke.models.common.blocks.feed import Feed, FeedForwardText
from twostroke.models.common.blocks.mixture import MOST_EXPERTS, LinearRouter, Mixture
from twostroke.models.common.blocks.norm import Norm
from twostroke.models.common.blocks.states.mamba2 import Mamba2Shape, mamba2_block, step_limit
from twostroke.models.common.fields.fields import (
    activation,
    head_dim,
    kv_heads,
    read_facts,
    refuse_setting,
    usual_names,
    with_silent,
)
from twostroke.models.common.fields.mixture import expert_count, sigmoid_rule
from twostroke.models.common.fields.nested import language_model
from twostroke.models.common.prediction import MtpHead, predicts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.products.experts import ExpertRule
from twostroke.ops.products.linear import linear
from twostroke.ops.rows.expressions import add

KINDS = {"M": "states", "*": "attention", "-": "feed", "E": "experts"}
"""The kind of a layer, by its letter in hybrid_override_pattern."""

WORDS = {
    **{"linear_attention": "states", "mamba": "states", "full_attention": "attention", "attention": "attention"},
    **{"mlp": "feed", "moe": "experts"},
}
"""The kind of a layer, by its word in layers_block_type."""

NAMES = AttentionNames("mixer.q_proj", "mixer.k_proj", "mixer.v_proj", "mixer.o_proj")
CORRECTION = "mixer.gate.e_score_correction_bias"
LATENT = ("mixer.fc1_latent_proj", "mixer.fc2_latent_proj")
PREFIXES = (("backbone.", "model."),)
"""The prefixes of names in published checkpoints, each with the prefix that programs use."""


@architecture("NemotronHForCausalLM", model_type="nemotron_h")
def nemotron_h(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Nemotron-H. time_step_limit bounds dt. time_step_min is ignored, because transformers applies it only when
    it computes several tokens at once."""
    shape = _read(fields, _kinds(fields))
    kinds, norm = shape.kinds, shape.norm
    states = _states(shape.fields, shape.facts.hidden_size, norm.eps)

    def layer(t: Tracer, index: int, x: Value) -> Value:
        if kinds[index] != "states":
            return shape.block(t, kinds[index], x)
        h = norm(t, "norm", x)
        with t.layer("mixer."):
            return add(x, mamba2_block(t, states, h))

    usual = decoder_of(shape.facts, norm, shape.tied)
    decoder = replace(usual, embedding="model.embeddings", last_norm="model.norm_f")
    return replace(shape.facts, stored_prefixes=PREFIXES), decoder_program(decoder, layer)


@architecture("NemotronH_Omni_Reasoning_V3", model_type="nemotron_h_omni")
def nemotron_h_omni(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads the language model of a checkpoint that also takes images and sounds. Published configs call its group
    llm_config."""
    facts, text = language_model(usual_names(fields, {"llm_config": "text_config"}), "NemotronHForCausalLM")
    inside = tuple((f"language_model.{stored}", usual) for stored, usual in PREFIXES)
    return replace(facts, stored_prefixes=(*inside, *facts.stored_prefixes)), text


@predicts("NemotronHForCausalLM")
def prediction(fields: Fields) -> tuple[MtpHead, ...]:
    """Reads the layer that predicts further tokens (MTP). It consists of several blocks, none of them Mamba-2
    (mtp_layers_block_type, or the letters of mtp_hybrid_override_pattern). The norms and the product before it are
    stored with the first block, and the norm after it with the last block."""
    if not fields.integer("num_nextn_predict_layers", 0, 1, default=0):
        return ()
    words, pattern = "mtp_layers_block_type", "mtp_hybrid_override_pattern"
    said = fields.texts(words) or fields.text(pattern, "")
    kinds = _kinds_of(fields, words, pattern) if said else ("attention", "experts")
    if "states" in kinds:
        raise fields.wrong(words, "No published layer that predicts a further token has states.")
    shape = _read(fields, _kinds(fields), kinds)

    def layer(t: Tracer, x: Value) -> Value:
        for index, kind in enumerate(kinds):
            with t.layer(f"layers.{index}."):
                x = shape.block(t, kind, x)
        return x

    word, state, joined = (f"layers.0.{name}" for name in ("enorm", "hnorm", "eh_proj"))
    last = f"layers.{len(kinds) - 1}.final_layernorm"
    return (MtpHead(shape.norm, layer, "mtp.", "mtp.", word, state, joined, last),)


@dataclass(frozen=True, slots=True)
class _Shape:
    """What was read from a config, without the Mamba-2 layers: attention, feed-forward block and experts. kinds: the
    kind of each of the model's layers."""

    fields: Fields
    facts: CommonFacts
    kinds: tuple[str, ...]
    norm: Norm
    heads: Heads
    feed: Feed
    experts: FeedForwardText | None
    tied: bool

    def block(self, t: Tracer, kind: str, x: Value) -> Value:
        """Applies one layer that is not Mamba-2: attention, a feed-forward block or experts. Returns the residual x
        with the layer's output added."""
        h = self.norm(t, "norm", x)
        if kind == "attention":
            return add(x, attend(t, self.heads, h))
        return self.experts(t, x, h) if kind == "experts" and self.experts else add(x, self.feed(t, h))


def _read(fields: Fields, kinds: tuple[str, ...], further: tuple[str, ...] = ()) -> _Shape:
    """Reads the model, except its Mamba-2 layers. kinds: the kind of each layer of the model. further: the kinds of the
    layers that predict further tokens (MTP), which come after these."""
    fields = with_silent(fields, {**defaults("nemotron_h"), "num_hidden_layers": len(kinds)})
    tied = fields.boolean("tie_word_embeddings", False)
    facts = read_facts(fields, positions=4096, ignored=("mtp.", *(("lm_head.weight",) if tied else ())))
    if facts.num_layers != len(kinds):
        raise fields.wrong("num_hidden_layers", f"The list of layers has {len(kinds)}.")
    refuse_setting(fields, "sliding_window", "transformers ignores it for this family: its meaning is not settled.")
    if fields.text("mamba_hidden_act", "silu") != "silu":
        raise fields.wrong("mamba_hidden_act", "The convolution of this family ends in silu.")
    norm = Norm(fields.number("layer_norm_epsilon", 1e-12, 0.1))
    num_heads = fields.integer("num_attention_heads", 1, 4096)
    dim = head_dim(fields, facts.hidden_size, num_heads)
    heads = Heads(facts.hidden_size, num_heads, kv_heads(fields, num_heads, None), dim, names=NAMES)
    feed = Feed(
        facts.hidden_size,
        fields.integer("intermediate_size", 1, 1 << 20),
        activation(fields, "mlp_hidden_act", "relu2"),
        fields.boolean("mlp_bias", False),
        gate="",
        up="mixer.up_proj",
        down="mixer.down_proj",
    )
    experts = _experts(fields, feed) if "experts" in (*kinds, *further) else None
    return _Shape(fields, facts, kinds, norm, heads, feed, experts, tied)


def _experts(fields: Fields, feed: Feed) -> FeedForwardText:
    """Returns a block of experts without gates, and a shared expert. Where moe_latent_size makes the experts narrower,
    one product before them and one after them change the width."""
    hidden, count = feed.hidden_size, expert_count(fields)
    latent = fields.optional_integer("moe_latent_size", 1, hidden)
    inner = fields.integer("moe_intermediate_size", 1, 1 << 20)
    block = Mixture(
        BankShape(count, latent or hidden, inner, gated=False),
        LinearRouter("mixer.gate", count, sigmoid_rule(fields, count), choice_bias=CORRECTION),
        EachExpert("mixer.experts"),
        ExpertRule(feed.activation),
    )
    shared = replace(
        feed,
        inner_size=fields.integer("moe_shared_expert_intermediate_size", 1, 1 << 20),
        up="mixer.shared_experts.up_proj",
        down="mixer.shared_experts.down_proj",
    )
    if fields.integer("n_shared_experts", 0, MOST_EXPERTS) != 1:
        raise fields.wrong("n_shared_experts", "Layers with experts have one shared block in this family.")

    def text(t: Tracer, residual: Value, h: Value) -> Value:
        if latent is None:
            return add(add(residual, block.chosen(t, h)), shared(t, h))
        routes = block.router(t, h)
        narrow = linear(h, t.matrix("latent_in", {LATENT[0]: latent}, hidden, bias=feed.bias))
        made = block.of_routes(t, narrow, routes)
        wide = linear(made, t.matrix("latent_out", {LATENT[1]: hidden}, latent, bias=feed.bias))
        return add(add(residual, wide), shared(t, h))

    return text


def _states(fields: Fields, hidden_size: int, eps: float) -> Mamba2Shape:
    groups = fields.integer("mamba_n_groups", 1, 4096, default=fields.integer("n_groups", 1, 4096))
    heads, biased = fields.integer("mamba_num_heads", 1, 1 << 16), fields.boolean("use_bias", False)
    if heads % groups:
        raise fields.wrong("n_groups", f"It must divide the {heads} heads.")
    return Mamba2Shape(
        hidden_size=hidden_size,
        heads=heads,
        head_dim=fields.integer("mamba_head_dim", 1, 4096),
        numbers=fields.integer("ssm_state_size", 1, 4096),
        groups=groups,
        taps=fields.integer("mamba_d_conv", 2, 64, default=fields.integer("conv_kernel", 2, 64)),
        eps=eps,
        norm_groups=groups,
        step_limit=step_limit(fields),
        conv_bias=fields.boolean("use_conv_bias", True),
        in_bias=biased,
        out_bias=biased,
    )


def _kinds(fields: Fields) -> tuple[str, ...]:
    """Returns the kind of each layer."""
    words = "layers_block_type" if fields.texts("layers_block_type") else "layer_types"
    return _kinds_of(fields, words, "hybrid_override_pattern")


def _kinds_of(fields: Fields, listed: str, letters: str) -> tuple[str, ...]:
    """Returns the kind of each layer, from a field with words (listed) or from one with letters."""
    words, pattern = fields.texts(listed), fields.text(letters, "")
    found = [WORDS.get(word) for word in words] if words else [KINDS.get(letter) for letter in pattern]
    if not found or None in found:
        raise fields.wrong(
            listed if words else letters,
            f"It must list layers, each one of {', '.join(WORDS) if words else ', '.join(KINDS)}.",
        )
    return tuple(kind for kind in found if kind is not None)
