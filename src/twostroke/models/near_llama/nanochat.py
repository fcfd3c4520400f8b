"""nanochat: norms without weights, rotations by the negative of Llama's angles, a feed-forward block of squared ReLU
without a gate (Karpathy 2025)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.blocks.norm import NormKind
from twostroke.models.common.families.squared_relu import SQUARED_RELU
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture, defaults


@architecture("NanoChatForCausalLM", model_type="nanochat")
def nanochat(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads nanochat. The embedding is normed too. The heads of q and k are normed after their rotation. Logits have a
    soft cap."""
    parts = read_parts(fields, defaults("nanochat"), kind=NormKind.UNIT, act=SQUARED_RELU)
    fields, norm = parts.fields, parts.norm
    turn = replace(parts.rope(), undone=True)
    absent = 0.0 if fields.has("final_logit_softcapping") else 15.0
    parts = replace(
        parts,
        heads=replace(parts.biased_heads(), head_norm=norm, norm_after_rope=True),
        feed=replace(parts.feed, gate="", up="mlp.fc1", down="mlp.fc2"),
        decoder=replace(
            parts.decoder,
            soft_cap=fields.optional_number("final_logit_softcapping", 1e-3, 1e6) or absent,
            after_embedding=lambda t, x: norm(t, "", x, in_place=True),
        ),
    )
    return pre_decoder(parts, turn)
