"""Gemma 3: SigLIP over one square tile; 256 image rows are means of its patches (Gemma team 2025).

The rows of an image see each other in all layers of the language model.
"""

from __future__ import annotations

import math

from twostroke.models.common.blocks.norm import Norm
from twostroke.models.common.blocks.tower import mean_rows
from twostroke.models.common.encoders import EncoderText
from twostroke.models.common.families.siglip import PREFIXES, PROJECTOR, TOWER, read_siglip
from twostroke.models.common.sight import Sight
from twostroke.models.kit import CommonFacts, Fields, Tracer, Value, defaults
from twostroke.ops.products.linear import linear
from twostroke.ops.program.values import Tensor
from twostroke.types.images import Patching, SpanLayers


def read(fields: Fields, width: int) -> tuple[Sight, CommonFacts, EncoderText]:
    """A tile has mm_tokens_per_image image rows. Each of them is the mean of a square of patches."""
    tower = read_siglip(fields.group("vision_config") or fields.only({}), defaults("siglip_vision_model"))
    rows = fields.integer("mm_tokens_per_image", 1, 1 << 16, default=256)
    side = math.isqrt(rows)
    if side**2 != rows or tower.grid % side:
        raise fields.wrong("mm_tokens_per_image", f"A tile has {tower.grid} patches a side.")
    merge = tower.grid // side
    sight = Sight(
        family="gemma3",
        placeholder=fields.integer(
            "image_token_index", 0, 1 << 24, default=fields.optional_integer("image_token_id", 0, 1 << 24) or 262_144
        ),
        patching=Patching(tower.patch, merge),
        side=tower.side,
        scaled=False,
        spans=SpanLayers.ALL,
    )
    norm = Norm(tower.eps, plus=1.0)

    def program(t: Tracer) -> tuple[Value, ...]:
        with t.layer(TOWER):
            x = tower(t)
        with t.layer(PROJECTOR):
            x = norm(t, "mm_soft_emb_norm", mean_rows(x, t.logit_rows, merge**2))
            stored = Tensor(t.name("mm_input_projection_weight"), (tower.width, width), transposed=True)
            return (linear(x, t.weight("connector", width, tower.width, (stored,))),)

    patches = tower.grid**2
    facts = CommonFacts(patches, tower.width, tower.layers, patches, None, (), "float32", stored_prefixes=PREFIXES)
    return sight, facts, program
