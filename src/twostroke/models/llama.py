"""Llama 2 and 3 and everything that calls itself Llama: the dense decoder as it is (Touvron et al. 2023).

Knows: its config fields, what of the dense decoder is on. Must not know: the ops, which backend runs.
"""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.families.dense import dense_program
from twostroke.models.common.families.llama import Defaults, read_dense
from twostroke.models.common.fields.fields import one_window, windows_by_layer
from twostroke.models.common.registry import CommonFacts, ProgramText, architecture
from twostroke.spec.fields import Fields
from twostroke.spec.rope import MAX_POSITIONS

DEFAULTS = Defaults(max_positions=2048)


@architecture("LlamaForCausalLM", model_type="llama")
def llama(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """attention_bias and mlp_bias; every layer sees everything."""
    facts, shape = read_dense(fields, DEFAULTS)
    biased = fields.boolean("attention_bias", False)
    window = fields.optional_integer("sliding_window", 0, MAX_POSITIONS) or 1
    named = windows_by_layer(fields, facts.num_layers, window, shape.windows)
    return facts, dense_program(
        replace(
            shape,
            qkv_bias=biased,
            output_bias=biased,
            mlp_bias=fields.boolean("mlp_bias", False),
            windows=one_window(fields, "llama", named, shape.windows),
        )
    )
