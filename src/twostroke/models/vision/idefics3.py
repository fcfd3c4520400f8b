"""Idefics 3 and SmolVLM: SigLIP over square tiles, whose patches are joined in groups and multiplied by one matrix
(Laurençon et al. 2024; Marafioti et al. 2025).
"""

from __future__ import annotations

from twostroke.models.common.encoders import EncoderText
from twostroke.models.common.families.siglip import read_siglip
from twostroke.models.common.sight import Sight
from twostroke.models.kit import CommonFacts, Fields, Tracer, Value, defaults
from twostroke.ops.products.linear import linear
from twostroke.ops.rows.join_rows import join_rows
from twostroke.types.images import Patching


def read(fields: Fields, width: int) -> tuple[Sight, CommonFacts, EncoderText]:
    """Reads config.json and returns the image encoder. It takes square tiles of vision_config.image_size pixels a side.
    A square of scale_factor x scale_factor patches becomes one image row."""
    tower = read_siglip(fields.group("vision_config") or fields.only({}), defaults("idefics3_vision"))
    merge, grid = fields.integer("scale_factor", 1, 64, default=2), tower.grid
    placeholder = fields.integer("image_token_id", 0, 1 << 24, default=128_257)
    sight = Sight(
        family="idefics3", placeholder=placeholder, patching=Patching(tower.patch, merge), side=tower.side
    )
    if not grid or grid % merge:
        raise fields.wrong("scale_factor", f"A tile has {grid} patches a side, which are not groups of {merge}.")

    def text(t: Tracer) -> tuple[Value, ...]:
        with t.layer("model.vision_model."):
            x = tower(t)
        joined = join_rows(x, t.logit_rows, merge**2)
        matrix = t.matrix("connector", {"model.connector.modality_projection.proj": width}, joined.width)
        return (linear(joined, matrix),)

    return sight, CommonFacts(grid**2, tower.width, tower.layers, grid**2, None, (), "float32"), text
