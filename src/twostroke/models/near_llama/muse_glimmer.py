"""Muse Glimmer: a gate on the heads' output, norms on both sides of each block, layers without rotations (Meta 2026).
"""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.attend import AttentionNames, attend
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.models.common.fields.fields import windows_by_layer
from twostroke.models.common.fields.nested import text_model
from twostroke.models.common.fields.read import read_parts, window_of
from twostroke.models.kit import Architecture, CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.rows.expressions import add


@architecture("MuseGlimmerForConditionalGeneration", model_type="muse_glimmer")
def muse_glimmer(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads only the language model of a checkpoint that also has an image encoder."""
    return text_model(fields, Architecture("MuseGlimmerText", "muse_glimmer_text", _text))


def _text(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads the language model. Every fourth layer, counted backwards from the last, sees all earlier positions and is
    not rotated; layer_types and layer_rope_theta may name other layers. A layer whose number in layer_rope_theta is 0
    is not rotated; all other numbers mean the same rotation."""
    parts = read_parts(fields, defaults("muse_glimmer_text"), kv_absent=2, act=("hidden_activation", "silu"))
    fields, facts, layers = parts.fields, parts.facts, parts.facts.num_layers
    turn = parts.rope()
    far = [(layers - 1 - index) % 4 == 0 for index in range(layers)]
    window = window_of(fields, 2048)
    windows = windows_by_layer(fields, layers, window, tuple(0 if each else window for each in far))
    turning = [not each for each in far]
    if fields.value("layer_rope_theta") is not None:
        turning = [theta > 0 for theta in fields.numbers("layer_rope_theta", layers, 0.0, 1e15)]
    eps, biased = fields.number("rms_norm_eps", 1e-12, 0.1), fields.boolean("attention_bias", False)
    heads = replace(
        parts.heads,
        scale=fields.number("qk_scale_factor", 1e-6, 1e6, default=3.87) * parts.heads.head_dim**-0.5,
        qkv_bias=biased,
        output_bias=biased,
        head_norm=Norm(eps, NormKind.UNIT),
        names=AttentionNames(gate="self_attn.gate_proj"),
    )
    before = Norm(eps, plus=1.0)
    after = Norm(fields.number("post_norm_eps", 1e-15, 0.1, default=1e-8), plus=1.0)
    decoder = replace(
        parts.decoder,
        logit_scale=fields.number("output_multiplier", 1e-9, 1e6, default=0.19611613513818404),
        soft_cap=fields.number("final_logit_softcapping", 1e-3, 1e6, default=20.0),
        after_embedding=lambda t, x: Norm(eps, NormKind.UNIT)(t, "", x, in_place=True),
    )

    def layer(t: Tracer, index: int, x: Value) -> Value:
        own = turn if turning[index] else None
        seen = attend(t, heads, before(t, "input_layernorm", x), window=windows[index], turn=own)
        x = add(x, after(t, "post_attention_layernorm", seen, in_place=True))
        made = parts.feed(t, before(t, "pre_feedforward_layernorm", x))
        return add(x, after(t, "post_feedforward_layernorm", made, in_place=True))

    return facts, decoder_program(decoder, layer)
