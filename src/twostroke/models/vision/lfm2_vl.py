"""LFM2-VL: SigLIP 2 over tiles of any size, whose learned places are fitted to each tile; its patches are joined in
groups (Liquid AI 2025).
"""

from __future__ import annotations

import math
from dataclasses import replace

from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.models.common.blocks.tower import two_products
from twostroke.models.common.encoders import EncoderText
from twostroke.models.common.families.siglip import PREFIXES, PROJECTOR, TABLE, TOWER, read_siglip
from twostroke.models.common.fields.fields import activation
from twostroke.models.common.sight import Between, LearnedPlaces, Sight
from twostroke.models.kit import CommonFacts, Fields, Tracer, Value, defaults
from twostroke.ops.rows.join_rows import join_rows
from twostroke.types.images import Patching

BETWEEN = Norm(1e-5, NormKind.LAYER)


def read(fields: Fields, width: int) -> tuple[Sight, CommonFacts, EncoderText]:
    """A square of downsample_factor x downsample_factor patches becomes one image row."""
    own = fields.group("vision_config") or fields.only({})
    places = own.integer("num_patches", 1, 1 << 24, default=256)
    grid = math.isqrt(places)
    if grid**2 != places:
        raise own.wrong("num_patches", "Places of patches are a square grid.")
    tower = read_siglip(own.changed({"image_size": grid}), defaults("siglip2_vision_model"))
    tower, merge = replace(tower, fitted=True, flat=True), fields.integer("downsample_factor", 1, 64, default=2)
    sight = Sight(
        family="lfm2_vl",
        placeholder=fields.integer("image_token_id", 0, 1 << 24, default=396),
        patching=Patching(tower.patch, merge),
        learned=LearnedPlaces(f"{TOWER}{TABLE}.weight", grid, Between.SMOOTH),
        colors_last=True,
    )
    inner = fields.integer("projector_hidden_size", 1, 1 << 20, default=2560)
    normed, biased = fields.boolean("projector_use_layernorm", True), fields.boolean("projector_bias", True)
    between = activation(fields, "projector_hidden_act", "gelu")

    def program(t: Tracer) -> tuple[Value, ...]:
        with t.layer(TOWER):
            x = join_rows(tower(t), t.logit_rows, merge**2)
        with t.layer(PROJECTOR):
            x = BETWEEN(t, "layer_norm", x, in_place=True) if normed else x
            return (two_products(t, x, width, ("linear_1", "linear_2"), between, inner, bias=biased),)

    facts = CommonFacts(1, tower.width, tower.layers, 1, None, (), "float32", stored_prefixes=PREFIXES)
    return sight, facts, program
