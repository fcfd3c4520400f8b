"""Granite 4 hybrid: Mamba-2 layers and a few layers of attention without positions (IBM 2025). As in Granite 3, factors
multiply the embedding, the scores, the blocks' outputs and the logits."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.attend import Heads, attend
from twostroke.models.common.blocks.decoder import decoder_of, decoder_program
from twostroke.models.common.blocks.mixture import MOST_EXPERTS, mixture
from twostroke.models.common.blocks.norm import Norm
from twostroke.models.common.blocks.states.mamba2 import mamba2_block, read_mamba2
from twostroke.models.common.families.granite_mixture import granite_factor, granite_mixture, granite_shared
from twostroke.models.common.fields.fields import head_dim, kv_heads, read_facts, silu_only
from twostroke.models.common.fields.hybrid import attention_layers
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture
from twostroke.ops.rows.expressions import add, scale
from twostroke.types.spec.rope import rope_from_config


@architecture("GraniteMoeHybridForCausalLM", model_type="granitemoehybrid")
def granite_hybrid(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Granite 4's hybrid models. The small models have no experts: num_local_experts is 0. Attention has
    rotations only where position_embedding_type is "rope"."""
    tied = fields.boolean("tie_word_embeddings", False)
    facts = read_facts(fields, positions=2048, ignored=("lm_head.weight",) if tied else ())
    silu_only(fields)
    norm = Norm(fields.number("rms_norm_eps", 1e-12, 0.1, default=1e-6))
    num_heads, biased = fields.integer("num_attention_heads", 1, 4096), fields.boolean("attention_bias", False)
    dim = head_dim(fields, facts.hidden_size, num_heads)
    heads = Heads(
        facts.hidden_size,
        num_heads,
        kv_heads(fields, num_heads, None),
        dim,
        scale=granite_factor(fields, "attention_multiplier"),
        qkv_bias=biased,
        output_bias=biased,
    )
    shared, hidden = fields.integer("shared_intermediate_size", 1, 1 << 20, default=1024), facts.hidden_size
    feed = granite_shared(hidden, shared)
    states = read_mamba2(fields, facts.hidden_size, norm.eps)
    listed = "layers_block_type" if fields.texts("layers_block_type") else "layer_types"
    attending = attention_layers(fields, facts.num_layers, (False,) * facts.num_layers, listed)
    turns = fields.text("position_embedding_type", "") == "rope"
    turn = rope_from_config(fields, dim, facts.max_positions) if turns else None
    residual = granite_factor(fields, "residual_multiplier")
    block = None
    if fields.integer("num_local_experts", 0, MOST_EXPERTS, default=8):
        inner = fields.integer("intermediate_size", 1, 1 << 20, default=11_008)
        block = mixture(granite_mixture(fields, hidden, inner, shared), residual)

    def layer(t: Tracer, index: int, x: Value) -> Value:
        h = norm(t, "input_layernorm", x)
        if attending[index]:
            mixed = attend(t, heads, h, turn=turn)
        else:
            with t.layer("mamba."):
                mixed = mamba2_block(t, states, h)
        x = add(x, scale(mixed, residual))
        h = norm(t, "post_attention_layernorm", x)
        return block(t, x, h) if block else add(x, scale(feed(t, h), residual))

    decoder = replace(
        decoder_of(facts, norm, tied),
        embedding_scale=granite_factor(fields, "embedding_multiplier"),
        logit_scale=1.0 / granite_factor(fields, "logits_scaling"),
    )
    return facts, decoder_program(decoder, layer)
