"""StarCoder 2: layer norms, biases and a plain feed-forward block, with a window in every layer (Lozhkov et al. 2024).
"""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.blocks.norm import NormKind
from twostroke.models.common.fields.read import read_parts, window_of
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture, defaults


@architecture("Starcoder2ForCausalLM", model_type="starcoder2")
def starcoder2(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads StarCoder 2. With use_bias (the default), every product of a layer has a bias; without it, none has one."""
    act = ("hidden_act", "gelu_pytorch_tanh")
    parts = read_parts(fields, defaults("starcoder2"), kv_absent=2, kind=NormKind.LAYER, eps="norm_epsilon", act=act)
    fields = parts.fields
    turn, window = parts.rope(), window_of(fields, 0)
    biased = fields.boolean("use_bias", True)
    parts = replace(
        parts,
        heads=replace(parts.heads, qkv_bias=biased, output_bias=biased),
        feed=replace(parts.feed, bias=biased, gate="", up="mlp.c_fc", down="mlp.c_proj"),
    )
    return pre_decoder(parts, turn, windows=(window,) * parts.facts.num_layers)
