"""Llama 4: a tower over square tiles, with a class token and rotary positions of patches by line and column. After the
tower, each square of neighbouring patches is joined into one image row (Meta 2025)."""

from __future__ import annotations

from twostroke.models.common.blocks.attend import Heads
from twostroke.models.common.blocks.feed import Feed
from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.models.common.blocks.tower import Patches, Tower, turn_by_halves, two_products, with_given_places
from twostroke.models.common.encoders import EncoderText
from twostroke.models.common.fields.fields import head_dim, with_silent
from twostroke.models.common.fields.places import theta_of
from twostroke.models.common.sight import Between, LearnedPlaces, Sight
from twostroke.models.kit import CommonFacts, Fields, Tracer, Value
from twostroke.ops.products.linear import linear
from twostroke.ops.program.values import ALL_AHEAD
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import activate
from twostroke.ops.rows.join_rows import join_rows
from twostroke.types.images import Patching

SILENT = {
    **{"hidden_size": 768, "intermediate_size": 5632, "num_hidden_layers": 34, "num_attention_heads": 16},
    **{"image_size": 448, "patch_size": 14, "vision_output_dim": 7680, "projector_input_dim": 4096},
    "projector_output_dim": 4096,
}
"""The defaults of transformers for fields of the tower that vision_config does not have."""
NORM = Norm(1e-5, NormKind.LAYER)
"""The norm of all blocks. transformers reads neither its eps nor the activation from the config; the activation is
always gelu."""
TOWER, PROJECTOR = "vision_model.", "multi_modal_projector."


def read(fields: Fields, width: int) -> tuple[Sight, CommonFacts, EncoderText]:
    """Reads config.json and returns the image encoder. A square of n x n patches becomes one image row, where n is 1 /
    pixel_shuffle_ratio."""
    own = with_silent(fields.group("vision_config") or fields.only({}), SILENT)
    side, patch = own.integer("image_size", 1, 4096), own.integer("patch_size", 1, 4096)
    wide, count = own.integer("hidden_size", 4, 1 << 17), own.integer("num_attention_heads", 1, 4096)
    layers, inner = own.integer("num_hidden_layers", 1, 4096), own.integer("intermediate_size", 1, 1 << 20)
    grid, merge = side // patch, int(1 / own.number("pixel_shuffle_ratio", 1 / 64, 1.0, default=0.5))
    if not grid or grid % merge or side % patch:
        raise own.wrong("pixel_shuffle_ratio", f"A tile has {grid} patches a side, which are not groups of {merge}.")
    if inner != merge**2 * wide:
        raise own.wrong("intermediate_size", f"It is also the width of {merge} x {merge} patches together.")
    middle = own.integer("projector_input_dim", 1, 1 << 20)
    for name in ("projector_output_dim", "vision_output_dim"):
        if own.integer(name, 1, 1 << 20) != middle:
            raise own.wrong(name, f"Both products after the tower have {middle} outputs.")
    dim = head_dim(own, wide, count)
    if dim % 4:
        raise own.wrong("num_attention_heads", "A quarter of a head's elements turns by column, as pairs.")
    turn = turn_by_halves(dim, theta_of(own), axes=(1, 0))
    sight = Sight(
        family="llama4",
        placeholder=fields.integer(
            "image_token_index", 0, 1 << 24, default=fields.optional_integer("image_token_id", 0, 1 << 24) or 200_092
        ),
        patching=Patching(patch, merge),
        side=side,
        turn=turn,
        turned_from=1,
        learned=LearnedPlaces(
            *(f"{TOWER}positional_embedding_vlm", grid, Between.GRID, f"{TOWER}class_embedding"), first_is_last=True
        ),
    )
    heads = Heads(*(wide, count, count, dim), qkv_bias=True, output_bias=True, interleaved=True, ahead=ALL_AHEAD)
    feed = Feed(wide, inner, Activation.GELU, bias=True, gate="", up="mlp.fc1", down="mlp.fc2")
    norms = ("input_layernorm", "post_attention_layernorm")
    tower = Tower("model.layers.", layers, heads, feed, NORM, norms, turn)
    patches = Patches(patch, wide, "patch_embedding.linear", bias=False, flat=True)

    def program(t: Tracer) -> tuple[Value, ...]:
        with t.layer(TOWER):
            x = NORM(t, "layernorm_pre", with_given_places(t, patches(t)), in_place=True)
            x = join_rows(NORM(t, "layernorm_post", tower(t, x), in_place=True), t.logit_rows, merge**2)
            names = ("vision_adapter.mlp.fc1", "vision_adapter.mlp.fc2")
            x = activate(two_products(t, x, middle, names, Activation.GELU, middle, bias=False), Activation.GELU)
        with t.layer(PROJECTOR):
            return (linear(x, t.matrix("connector", {"linear_1": width}, middle)),)

    return sight, CommonFacts(1, wide, layers, 1, None, (), "float32"), program
