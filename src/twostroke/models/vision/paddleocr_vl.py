"""PaddleOCR-VL: SigLIP over tiles of any size, with rotary positions of patches by line and column in addition to
learned position embeddings (Cui et al. 2025)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.models.common.blocks.tower import merged, turn_by_halves
from twostroke.models.common.encoders import EncoderText
from twostroke.models.common.families.siglip import TABLE, read_siglip
from twostroke.models.common.fields.nested import text_fields
from twostroke.models.common.fields.places import text_turns, theta_of
from twostroke.models.common.sight import Between, LearnedPlaces, Sight
from twostroke.models.kit import CommonFacts, Fields, Tracer, Value, defaults
from twostroke.types.images import Patching

SILENT = defaults("paddleocr_vl_vision")
"""The defaults of transformers for fields of the tower that vision_config does not have."""
SECTIONS = (16, 24, 24)
TOWER, PROJECTOR = "model.visual.", "model.projector."
PREFIXES = (
    ("visual.vision_model.", TOWER),
    ("model.visual.vision_model.", TOWER),
    ("visual.", TOWER),
    ("mlp_AR.", PROJECTOR),
)
BETWEEN = Norm(1e-5, NormKind.LAYER)


def read(fields: Fields, width: int) -> tuple[Sight, CommonFacts, EncoderText]:
    """Reads config.json and returns the image encoder. A square of spatial_merge_size x spatial_merge_size patches
    becomes one image row."""
    own = fields.group("vision_config") or fields.only({})
    tower, merge = read_siglip(own, SILENT), own.integer("spatial_merge_size", 1, 64, default=2)
    turn = turn_by_halves(tower.heads.head_dim, theta_of(own))
    tower = replace(tower, turn=turn, fitted=True)
    sight = Sight(
        family="paddleocr_vl",
        placeholder=fields.integer("image_token_id", 0, 1 << 24, default=100_295),
        patching=Patching(tower.patch, merge),
        turn=turn,
        learned=LearnedPlaces(f"{TOWER}{TABLE}.weight", tower.grid, Between.BILINEAR),
        text_turns=text_turns(text_fields(fields), SECTIONS, interleaved=False),
    )

    def program(t: Tracer) -> tuple[Value, ...]:
        with t.layer(TOWER):
            x = tower(t)
        with t.layer(PROJECTOR):
            return (merged(t, BETWEEN(t, "pre_norm", x), merge**2, width, ("linear_1", "linear_2")),)

    facts = CommonFacts(1, tower.width, tower.layers, 1, None, (), "float32", stored_prefixes=PREFIXES)
    return sight, facts, program
