"""CTRL: GPT with ReLU, a scaled embedding, and sinusoidal position embeddings (Keskar et al. 2019)."""

from __future__ import annotations

import math
from dataclasses import replace

from twostroke.models.common.blocks.attend import AttentionNames
from twostroke.models.common.blocks.layers import pre_layer
from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.models.common.blocks.sinusoids import sinusoids
from twostroke.models.common.fields.fields import usual_names
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.products.embed import embed
from twostroke.ops.products.linear import linear
from twostroke.ops.program.values import Tensor
from twostroke.ops.rows.expressions import scale
from twostroke.ops.rows.gather_rows import gather_rows
from twostroke.types.errors import UnsupportedModel

OWN_NAMES = {
    **{"n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads"},
    **{"n_positions": "max_position_embeddings", "dff": "intermediate_size"},
}
PREFIX = "transformer."
BLOCK = "multi_head_attention"
NAMES = AttentionNames(*(f"{BLOCK}.{name}" for name in ("Wq", "Wk", "Wv", "dense")))
EPS_OF_LAYERS = 1e-6


@architecture("CTRLLMHeadModel", model_type="ctrl")
def ctrl(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads CTRL. The head is the embedding, with a bias. layer_norm_epsilon is the epsilon of the last norm only."""
    fields = usual_names(fields, OWN_NAMES)
    fields = fields.changed({"head_dim": None, "num_key_value_heads": None, "hidden_act": "relu"})  # no fields of ctrl
    parts = read_parts(fields, defaults("ctrl"), kind=NormKind.LAYER, eps="layer_norm_epsilon")
    facts, width, last = parts.facts, parts.facts.hidden_size, parts.norm
    if not parts.decoder.tied:
        raise UnsupportedModel("config.json: tie_word_embeddings is false.", why="The family's head is its embedding.")
    if width % 2:
        raise fields.wrong("hidden_size", "It must be even, because a position is as many sines as cosines.")
    parts = replace(
        parts,
        heads=replace(parts.heads, qkv_bias=True, output_bias=True, names=NAMES),
        feed=replace(parts.feed, bias=True, gate="", up="ffn.0", down="ffn.2"),
        decoder=replace(parts.decoder, norm=Norm(EPS_OF_LAYERS, NormKind.LAYER)),
    )
    places = sinusoids(facts, 10_000.0)

    def text(t: Tracer) -> Value:
        table = Tensor(f"{PREFIX}w.weight", (facts.vocab_size, width))
        bias = Tensor("lm_head.bias", (facts.vocab_size,))
        both = t.weight("embedding", facts.vocab_size, width, (table,), (bias,))  # looking tokens up reads no bias
        x = places(t, scale(embed(both, t.token_ids, t), math.sqrt(width)))
        for index in range(facts.num_layers):
            with t.layer(f"{PREFIX}h.{index}."):
                x = pre_layer(t, parts, x, norms=("layernorm1", "layernorm2"))
        return linear(last(t, f"{PREFIX}layernorm", gather_rows(x, t.logit_rows), in_place=True), both)

    return facts, text
