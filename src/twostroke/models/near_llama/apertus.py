"""Apertus: norms of each head's q and k, and a feed-forward block without a gate, with the activation xIELU (Apertus
team 2025)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.attend import attend
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.products.linear import linear
from twostroke.ops.program.values import Tensor, Vector
from twostroke.ops.rows.expressions import add, xielu

ROPE = {
    **{"rope_type": "llama3", "rope_theta": 12_000_000.0, "factor": 8.0, "original_max_position_embeddings": 8192},
    **{"low_freq_factor": 1.0, "high_freq_factor": 4.0},
}
"""The defaults for fields that config.json does not have."""
NUMBERS = (("alpha_p", (1,)), ("alpha_n", (1,)), ("beta", ()), ("eps", ()))
"""The numbers of the activation, with their shapes."""


@architecture("ApertusForCausalLM", model_type="apertus")
def apertus(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Apertus. The parameters of the activation xIELU are learned, so the checkpoint has them for each layer."""
    if not fields.group("rope_parameters") and not fields.group("rope_scaling"):
        fields = fields.changed({"rope_parameters": ROPE})
    word = fields.text("hidden_act", "xielu")
    if word != "xielu":
        raise fields.wrong("hidden_act", "The blocks of this family have xielu.")
    parts = read_parts(fields.changed({"hidden_act": "silu"}), defaults("apertus"))
    fields, facts = parts.fields, parts.facts
    turn = parts.rope(theta=12_000_000.0)
    heads = replace(parts.biased_heads(), head_norm=parts.norm)
    width, inner = facts.hidden_size, parts.feed.inner_size

    def layer(t: Tracer, _index: int, x: Value) -> Value:
        x = add(x, attend(t, heads, parts.norm(t, "attention_layernorm", x), turn=turn))
        h = parts.norm(t, "feedforward_layernorm", x)
        middle = xielu(linear(h, t.matrix("up", {"mlp.up_proj": inner}, width)), _numbers(t))
        return add(x, linear(middle, t.matrix("down", {"mlp.down_proj": width}, inner)))

    return facts, decoder_program(parts.decoder, layer)


def _numbers(t: Tracer) -> Vector:
    return t.vector_of(tuple(Tensor(t.name(f"mlp.act_fn.{name}"), shape) for name, shape in NUMBERS), len(NUMBERS))
