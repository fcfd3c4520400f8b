"""LLaVA 1.5, NeXT and OneVision: the tower of CLIP or SigLIP over square tiles. Each of their patches becomes an image
row (Liu et al. 2023, 2024; Li et al. 2024; Radford et al. 2021).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from twostroke.images.families.llava_next import NEXT_GRIDS, read_grids
from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.models.common.blocks.tower import Patches, two_products, with_given_places
from twostroke.models.common.encoders import EncoderText
from twostroke.models.common.families.siglip import PREFIXES, PROJECTOR, TABLE, TOWER, Siglip, read_siglip
from twostroke.models.common.fields.fields import activation
from twostroke.models.common.sight import Between, LearnedPlaces, Sight
from twostroke.models.kit import CommonFacts, Fields, Tracer, Value
from twostroke.ops.rows.gather_rows import gather_rows
from twostroke.types.images import Patching

CLIP = {
    **{"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12},
    **{"image_size": 224, "patch_size": 32, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5},
}
SIGLIP = {
    **{"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12},
    **{"image_size": 224, "patch_size": 16, "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6},
}
"""CLIP and SIGLIP: the values that transformers gives to fields of a CLIP or SigLIP tower that vision_config does not
have."""
ONEVISION = "llava_onevision"
ONEVISION_GRIDS = tuple((384 * lines, 384 * columns) for lines in range(1, 7) for columns in range(1, 7))
NEWLINE, STORED_NEWLINE = "model.image_newline", "image_newline"


def read(fields: Fields, width: int) -> tuple[Sight, CommonFacts, EncoderText]:
    """Reads config.json and returns the image encoder. Image rows are made from the layer that vision_feature_layer
    names: 1 is the first layer, and -1 is the last one."""
    own = fields.group("vision_config") or fields.only({})
    clip = own.text("model_type", "") == "clip_vision_model"
    kind = fields.text("model_type", "llava")
    tower = read_siglip(own, CLIP if clip else SIGLIP)
    tower = replace(tower, layers=_layers(fields, tower.layers, -1 if kind == ONEVISION else -2))
    if fields.text("vision_feature_select_strategy", "default") != ("default" if clip else "full"):
        raise fields.wrong("vision_feature_select_strategy", "Image rows are made of all patches and of nothing else.")
    first = f"{TOWER}embeddings.class_embedding" if clip else ""
    sight = Sight(
        family="llava" if kind == "llava" else "llava_next",
        **_of_sheets(fields, kind, tower.side),
        placeholder=fields.integer(
            "image_token_index", 0, 1 << 24, default=fields.optional_integer("image_token_id", 0, 1 << 24) or 32_000
        ),
        patching=Patching(tower.patch, 1),
        side=tower.side,
        learned=LearnedPlaces(f"{TOWER}{TABLE}.weight", tower.grid, Between.GRID, first=first),
    )
    biased = fields.boolean("multimodal_projector_bias", True)
    between = activation(fields, "projector_hidden_act", "gelu")

    def program(t: Tracer) -> tuple[Value, ...]:
        with t.layer(TOWER):
            x = gather_rows(_features(t, tower, clip=clip), t.logit_rows)
        with t.layer(PROJECTOR):
            return (two_products(t, x, width, ("linear_1", "linear_2"), between, width, bias=biased),)

    prefixes = (*PREFIXES, (STORED_NEWLINE, NEWLINE))
    facts = CommonFacts(1, tower.width, tower.layers, 1, None, (), "float32", stored_prefixes=prefixes)
    return sight, facts, program


def _features(t: Tracer, tower: Siglip, *, clip: bool) -> Value:
    """Returns the tower's rows after the layer that vision_feature_layer names; later layers, and the norm after the
    last one, are not computed. clip: a CLIP tower, which has a norm before its layers, and no bias in the patch
    embedding."""
    x = with_given_places(t, Patches(tower.patch, tower.width, "embeddings.patch_embedding", bias=not clip)(t))
    x = Norm(tower.eps, NormKind.LAYER)(t, "pre_layrnorm", x, in_place=True) if clip else x
    return tower.of_layers(t, x)


def _of_sheets(fields: Fields, kind: str, side: int) -> dict[str, Any]:
    """Returns the arguments of Sight for models that divide an image into a grid of tiles. They are empty for LLaVA
    1.5, whose images are one tile. kind: the model_type. side: the pixels of a tile's side."""
    if kind == "llava":
        return {}
    word = fields.text("vision_aspect_ratio", "anyres_max_9") if kind == ONEVISION else ""
    most = word.removeprefix("anyres_max_")
    if kind == ONEVISION and not (most.isascii() and most.isdigit() and 0 < len(most) < 4 and int(most)):
        raise fields.wrong("vision_aspect_ratio", "It must be anyres_max_N, with N tiles whose rows are kept.")
    usual = ONEVISION_GRIDS if kind == ONEVISION else NEXT_GRIDS
    return {
        "newline": NEWLINE,
        "grids": read_grids(fields, usual),
        "most_tiles": int(most) if most else 0,
        "apart": kind == ONEVISION,
    }


def _layers(fields: Fields, count: int, usual: int) -> int:
    """Returns how many layers of the tower are computed before image rows are made."""
    asked = fields.value("vision_feature_layer", usual)
    asked = asked[0] if isinstance(asked, list) and len(asked) == 1 else asked
    if not isinstance(asked, int) or not -count <= asked <= count or asked == 0:
        raise fields.wrong("vision_feature_layer", f"It is one of the tower's {count} layers.")
    return asked if asked > 0 else count + 1 + asked
