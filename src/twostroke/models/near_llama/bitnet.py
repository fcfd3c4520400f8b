"""BitNet b1.58: Llama with squared ReLU and a norm before the last product of each block (Ma et al. 2025)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.attend import attend
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.fields.fields import activation
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.rows.expressions import add


@architecture("BitNetForCausalLM", model_type="bitnet")
def bitnet(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Returns the program for plain weights. Where quantization_config names bitnet, the inputs of its products are
    rounded."""
    parts = read_parts(fields, defaults("bitnet"), kv_absent=5)
    fields, norm = parts.fields, parts.norm
    turn = parts.rope(theta=500_000.0)
    heads = replace(parts.biased_heads(), inner_norm=norm)
    heads = replace(heads, names=replace(heads.names, inner_norm="self_attn.attn_sub_norm"))
    feed = replace(parts.feed, activation=activation(fields, "hidden_act", "relu2"), inner_norm=norm)

    def layer(t: Tracer, _index: int, x: Value) -> Value:
        x = add(x, attend(t, heads, norm(t, "input_layernorm", x), turn=turn))
        return add(x, feed(t, norm(t, "post_attention_layernorm", x)))

    return parts.facts, decoder_program(parts.decoder, layer)
