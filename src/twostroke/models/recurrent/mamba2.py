"""Mamba-2: states of fixed size instead of attention; no positions, no cache that grows (Dao and Gu 2024)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.decoder import decoder_of, decoder_program
from twostroke.models.common.blocks.norm import Norm
from twostroke.models.common.blocks.states.mamba2 import Mamba2Shape, mamba2_block, step_limit
from twostroke.models.common.fields.fields import read_facts, silu_only
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture
from twostroke.ops.rows.expressions import add
from twostroke.types.errors import CorruptModel

POSITIONS = 1 << 20
"""The longest sequence that can be requested. The model itself sets no limit."""


@architecture("Mamba2ForCausalLM", model_type="mamba2")
def mamba2(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Mamba-2. Fields that only matter when training begins (time_step_min, A_init_range and others) are
    ignored."""
    tied = fields.boolean("tie_word_embeddings", False)
    facts = read_facts(fields, positions=POSITIONS, ignored=("lm_head.weight",) if tied else ())
    silu_only(fields)
    biased = fields.boolean("use_bias", False)
    groups = fields.integer("n_groups", 1, 4096, default=8)
    shape = Mamba2Shape(
        hidden_size=facts.hidden_size,
        heads=fields.integer("num_heads", 1, 1 << 16, default=128),
        head_dim=fields.integer("head_dim", 1, 4096, default=64),
        numbers=fields.integer("state_size", 1, 4096, default=128),
        groups=groups,
        taps=fields.integer("conv_kernel", 2, 64, default=4),
        eps=fields.number("layer_norm_epsilon", 1e-12, 0.1, default=1e-5),
        norm_groups=groups,
        step_limit=step_limit(fields),
        conv_bias=fields.boolean("use_conv_bias", True),
        in_bias=biased,
        out_bias=biased,
    )
    expand = fields.number("expand", 0.01, 64.0, default=2.0)
    if shape.inner != int(expand * facts.hidden_size):
        raise CorruptModel(
            f"config.json: num_heads is {shape.heads} and head_dim {shape.head_dim}, hidden_size times expand is "
            f"{expand * facts.hidden_size:g}.",
            why="The heads' elements together are the inner width.",
            fix="Compare them with the model's original page.",
        )
    if shape.heads % shape.groups:
        raise fields.wrong("n_groups", f"It must divide the {shape.heads} heads.")
    norm = Norm(shape.eps)
    decoder = replace(
        decoder_of(facts, norm, tied),
        embedding="backbone.embeddings",
        layers="backbone.layers",
        last_norm="backbone.norm_f",
    )

    def layer(t: Tracer, _index: int, x: Value) -> Value:
        h = norm(t, "norm", x)
        with t.layer("mixer."):
            return add(x, mamba2_block(t, shape, h))

    return facts, decoder_program(decoder, layer)
