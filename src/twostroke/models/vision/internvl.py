"""InternVL 3 and 3.5: InternViT over square tiles, with a class token and with numbers that scale each block's output;
its patches are joined in groups (Zhu et al. 2025; Wang et al. 2025)."""

from __future__ import annotations

from twostroke.models.common.blocks.attend import AttentionNames, Heads
from twostroke.models.common.blocks.feed import Feed
from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.models.common.blocks.tower import Patches, Tower, two_products, with_given_places
from twostroke.models.common.encoders import EncoderText
from twostroke.models.common.fields.fields import activation, head_dim, with_silent
from twostroke.models.common.sight import Between, LearnedPlaces, Sight
from twostroke.models.kit import CommonFacts, Fields, Tracer, Value
from twostroke.ops.program.values import ALL_AHEAD
from twostroke.ops.rows.join_rows import join_rows
from twostroke.types.images import Patching

SILENT = {
    **{"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16},
    **{"hidden_act": "gelu", "norm_type": "layer_norm", "layer_norm_eps": 1e-6, "image_size": 448, "patch_size": 14},
}
"""The defaults of transformers for fields of the tower that vision_config does not have."""
NORMS = {"layer_norm": NormKind.LAYER, "rms_norm": NormKind.RMS}
HEADS_EPS = 1e-6
BETWEEN = Norm(1e-5, NormKind.LAYER)
TOWER, PROJECTOR = "model.vision_tower.", "model.multi_modal_projector."
PREFIXES = (("vision_tower.", TOWER), ("multi_modal_projector.", PROJECTOR))


def read(fields: Fields, width: int) -> tuple[Sight, CommonFacts, EncoderText]:
    """Reads the tower. A square of patches becomes one image row; its side is 1 / downsample_ratio."""
    own = with_silent(fields.group("vision_config") or fields.only({}), SILENT)
    side, patch = _side(own, "image_size"), _side(own, "patch_size")
    wide, count = own.integer("hidden_size", 4, 1 << 17), own.integer("num_attention_heads", 1, 4096)
    layers, kind = own.integer("num_hidden_layers", 1, 4096), NORMS.get(own.text("norm_type", ""))
    grid, merge = side // patch, int(1 / fields.number("downsample_ratio", 1 / 64, 1.0, default=0.5))
    if not grid or grid % merge:
        raise fields.wrong("downsample_ratio", f"A tile has {grid} patches a side, which are not groups of {merge}.")
    if kind is None or not own.boolean("use_absolute_position_embeddings", True):
        raise own.wrong("norm_type", "It is layer_norm or rms_norm, and places of patches are learned.")
    _rows_of_the_last_layer(fields, own)
    sight = Sight(
        family="internvl",
        placeholder=fields.integer("image_token_id", 0, 1 << 24, default=151_667),
        patching=Patching(patch, merge),
        side=side,
        learned=LearnedPlaces(
            *(f"{TOWER}embeddings.position_embeddings", grid, Between.GRID),
            first=f"{TOWER}embeddings.cls_token",
            bias=f"{TOWER}embeddings.patch_embeddings.projection.bias",
        ),
    )
    name = "attention.{}".format
    heads = Heads(
        *(wide, count, count, head_dim(own, wide, count)),
        qkv_bias=own.boolean("attention_bias", False),
        output_bias=True,
        wide_norm=Norm(HEADS_EPS) if own.boolean("use_qk_norm", False) else None,
        names=AttentionNames(*map(name, ("q_proj", "k_proj", "v_proj", "projection_layer", "q_norm", "k_norm"))),
        ahead=ALL_AHEAD,
    )
    inner, act = own.integer("intermediate_size", 1, 1 << 20), activation(own, "hidden_act", "")
    feed = Feed(wide, inner, act, bias=True, gate="", up="mlp.fc1", down="mlp.fc2")
    norm = Norm(own.number("layer_norm_eps", 1e-15, 0.1), kind)
    norms = ("layernorm_before", "layernorm_after")
    tower = Tower("encoder.layer.", layers, heads, feed, norm, norms, scales=("lambda_1", "lambda_2"))
    patches = Patches(patch, wide, "embeddings.patch_embeddings.projection", bias=False)
    between = activation(fields, "projector_hidden_act", "gelu")

    def program(t: Tracer) -> tuple[Value, ...]:
        with t.layer(TOWER):
            x = tower(t, with_given_places(t, patches(t)))
        with t.layer(PROJECTOR):
            joined = BETWEEN(t, "layer_norm", join_rows(x, t.logit_rows, merge**2), in_place=True)
            return (two_products(t, joined, width, ("linear_1", "linear_2"), between, width),)

    return sight, CommonFacts(1, wide, layers, 1, None, (), "float32", stored_prefixes=PREFIXES), program


def _side(own: Fields, name: str) -> int:
    """Reads the side of a square; newer files give it twice, as height and width."""
    found = own.value(name)
    if isinstance(found, list):
        if len(found) != 2 or found[0] != found[1]:
            raise own.wrong(name, "Tiles and patches are square.")
        own = own.changed({name: found[0]})
    return own.integer(name, 1, 4096)


def _rows_of_the_last_layer(fields: Fields, own: Fields) -> None:
    """Raises CorruptModel where image rows are not those of the last layer's patches: other layers, the class token, or
    a norm after the last layer."""
    if fields.value("vision_feature_layer", -1) != -1:
        raise fields.wrong("vision_feature_layer", "Image rows are made of the last layer.")
    if fields.text("vision_feature_select_strategy", "default") != "default":
        raise fields.wrong("vision_feature_select_strategy", "Image rows are made of patches alone.")
    if not own.boolean("use_mean_pooling", True):
        raise own.wrong("use_mean_pooling", "There is no norm after the last layer.")
