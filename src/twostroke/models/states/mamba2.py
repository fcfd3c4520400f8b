"""Mamba-2: states of fixed size instead of attention; no positions, no cache that grows (Dao and Gu 2024).

Knows: its config fields, its tensors and its program. Must not know: which backend runs.
"""

from __future__ import annotations

from twostroke.models.common.fields import read_facts, silu_only
from twostroke.models.common.mamba2 import Mamba2Shape, mamba2_block, step_limit
from twostroke.models.common.registry import CommonFacts, ProgramText, architecture
from twostroke.ops.add import add
from twostroke.ops.embed import embed
from twostroke.ops.gather_rows import gather_rows
from twostroke.ops.linear import linear
from twostroke.ops.rms_norm import rms_norm
from twostroke.program.trace import Tracer
from twostroke.program.values import Value
from twostroke.spec.fields import Fields
from twostroke.types.errors import CorruptModel

POSITIONS = 1 << 20
"""Nothing in the model ends at any length; this is the longest sequence that can be asked for."""


@architecture("Mamba2ForCausalLM", model_type="mamba2")
def mamba2(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Fields of the initialisation (time_step_min, A_init_range and others) change nothing in a trained model."""
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
    return facts, _program(facts, shape, tied)


def _program(facts: CommonFacts, shape: Mamba2Shape, tied: bool) -> ProgramText:
    width, eps = facts.hidden_size, shape.eps

    def text(t: Tracer) -> Value:
        table = t.matrix("embedding", {"backbone.embeddings": facts.vocab_size}, width)
        x = embed(table, t.token_ids, t)
        for index in range(facts.num_layers):
            with t.layer(f"backbone.layers.{index}."):
                h = rms_norm(x, t.vector("norm", width), eps)
                with t.layer("mixer."):
                    x = add(x, mamba2_block(t, shape, h))
        rows = rms_norm(gather_rows(x, t.logit_rows), t.vector("backbone.norm_f", width), eps, in_place=True)
        return linear(rows, table if tied else t.matrix("head", {"lm_head": facts.vocab_size}, width))

    return text
