"""Granite 4 hybrid: Mamba-2 layers with a few of attention without positions, and Granite's factors (IBM 2025).

Knows: its config fields, its tensors and its program. Must not know: which backend runs.
"""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.attend import Heads, attend
from twostroke.models.common.decoder import decoder_of, decoder_program
from twostroke.models.common.feed import Feed
from twostroke.models.common.fields import head_dim, kv_heads, read_facts, refuse_setting, silu_only
from twostroke.models.common.hybrid import attention_layers
from twostroke.models.common.mamba2 import mamba2_block, read_mamba2
from twostroke.models.common.norm import Norm
from twostroke.models.common.registry import CommonFacts, ProgramText, architecture
from twostroke.ops.add import add
from twostroke.ops.scale import scale
from twostroke.program.trace import Tracer
from twostroke.program.values import Value
from twostroke.spec.fields import Fields
from twostroke.spec.rope import rope_from_config

SMALLEST, LARGEST = 1e-9, 1e6
"""Of a factor."""


@architecture("GraniteMoeHybridForCausalLM", model_type="granitemoehybrid")
def granite_hybrid(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Those without experts: the small ones. Attention turns heads only where position_embedding_type is "rope"."""
    fields = Fields({"num_local_experts": 8, **fields.values}, fields.place)
    refuse_setting(fields, "num_local_experts", "The experts of this family are not implemented yet.")
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
        scale=_factor(fields, "attention_multiplier"),
        qkv_bias=biased,
        output_bias=biased,
    )
    feed = Feed(
        facts.hidden_size,
        fields.integer("shared_intermediate_size", 1, 1 << 20, default=1024),
        gate_up="shared_mlp.input_linear",
        down="shared_mlp.output_linear",
    )
    states = read_mamba2(fields, facts.hidden_size, norm.eps)
    listed = "layers_block_type" if fields.texts("layers_block_type") else "layer_types"
    attending = attention_layers(fields, facts.num_layers, (False,) * facts.num_layers, listed)
    turns = fields.text("position_embedding_type", "") == "rope"
    turn = rope_from_config(fields, dim, facts.max_positions) if turns else None
    residual = _factor(fields, "residual_multiplier")

    def layer(t: Tracer, index: int, x: Value) -> Value:
        h = norm(t, "input_layernorm", x)
        if attending[index]:
            mixed = attend(t, heads, h, turn=turn)
        else:
            with t.layer("mamba."):
                mixed = mamba2_block(t, states, h)
        x = add(x, scale(mixed, residual))
        return add(x, scale(feed(t, norm(t, "post_attention_layernorm", x)), residual))

    decoder = replace(
        decoder_of(facts, norm, tied),
        embedding_scale=_factor(fields, "embedding_multiplier"),
        logit_scale=1.0 / _factor(fields, "logits_scaling"),
    )
    return facts, decoder_program(decoder, layer)


def _factor(fields: Fields, name: str) -> float:
    return fields.number(name, SMALLEST, LARGEST, default=1.0)
