"""Mamba and FalconMamba: states of fixed size for each channel; no positions, no cache that grows (Gu and Dao 2023)."""

from __future__ import annotations

import math
from dataclasses import replace

from twostroke.models.common.blocks.decoder import decoder_of, decoder_program
from twostroke.models.common.blocks.norm import Norm
from twostroke.models.common.blocks.states.mamba import MambaShape, StepNorm, mamba_block
from twostroke.models.common.fields.fields import read_facts, silu_only
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture
from twostroke.models.recurrent.mamba2 import POSITIONS
from twostroke.ops.rows.expressions import add
from twostroke.ops.rows.rms_norm import rms_norm


@architecture("MambaForCausalLM", model_type="mamba")
def mamba(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Mamba. Fields that only matter when training begins (time_step_min and others) are ignored."""
    return _read(fields, None)


@architecture("FalconMambaForCausalLM", model_type="falcon_mamba")
def falcon_mamba(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads FalconMamba. dt, B and C of the scan have norms without weights."""
    eps = fields.number("mixer_rms_eps", 1e-12, 0.1, default=1e-6)

    def norm(t: Tracer, _name: str, x: Value) -> Value:
        return rms_norm(x, t.constant(f"ones{x.width}", (1.0,) * x.width), eps, in_place=True)

    return _read(fields, norm)


def _read(fields: Fields, step_norm: StepNorm | None) -> tuple[CommonFacts, ProgramText]:
    tied = fields.boolean("tie_word_embeddings", True)
    facts = read_facts(fields, positions=POSITIONS, ignored=("lm_head.weight",) if tied else ())
    silu_only(fields)
    norm = Norm(fields.number("layer_norm_epsilon", 1e-12, 0.1, default=1e-5))
    auto = fields.value("time_step_rank") in (None, "auto")
    # When both fields are given, transformers uses the width. FalconMamba's published config has an `expand` that does
    # not agree with its width.
    inner = int(fields.number("expand", 0.01, 64.0, default=2.0) * facts.hidden_size)
    shape = MambaShape(
        facts.hidden_size,
        fields.integer("intermediate_size", 1, 1 << 20, default=inner),
        fields.integer("state_size", 1, 4096, default=16),
        math.ceil(facts.hidden_size / 16) if auto else fields.integer("time_step_rank", 1, 1 << 16),
        fields.integer("conv_kernel", 2, 64, default=4),
        fields.boolean("use_conv_bias", True),
        fields.boolean("use_bias", False),
        step_norm,
    )

    def layer(t: Tracer, index: int, x: Value) -> Value:
        h = norm(t, "norm", x)
        with t.layer("mixer."):
            return add(x, mamba_block(t, shape, h))

    decoder = replace(
        decoder_of(facts, norm, tied),
        embedding="backbone.embeddings",
        layers="backbone.layers",
        last_norm="backbone.norm_f",
    )
    return facts, decoder_program(decoder, layer)
