"""Kimi K2.5 and Kimi-VL: MoonViT over tiles of any size, with learned places that are fitted to each tile. Patches are
also rotated by line and column, and are joined in groups (Kimi team 2025, 2026)."""

from __future__ import annotations

from typing import Any

from twostroke.models.common.blocks.attend import AttentionNames, Heads, joined_of_pairs
from twostroke.models.common.blocks.feed import Feed
from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.models.common.blocks.tower import Patches, Tower, merged, turn_by_pairs, with_given_places
from twostroke.models.common.encoders import EncoderText
from twostroke.models.common.fields.fields import activation, head_dim, with_silent
from twostroke.models.common.fields.places import theta_of
from twostroke.models.common.sight import Between, LearnedPlaces, Sight
from twostroke.models.kit import CommonFacts, Fields, Tracer, Value
from twostroke.ops.program.values import ALL_AHEAD
from twostroke.types.images import Patching

SILENT = {
    **{"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16},
    **{"patch_size": 14, "pos_emb_height": 64, "pos_emb_width": 64, "merge_kernel_size": [2, 2]},
}
"""The defaults of transformers for fields of the tower that vision_config does not have."""
FORMER = {
    **{f"vt_{name}": name for name in ("hidden_size", "intermediate_size", "num_hidden_layers")},
    **{"vt_num_attention_heads": "num_attention_heads", "init_pos_emb_height": "pos_emb_height"},
    "init_pos_emb_width": "pos_emb_width",
}
"""Names of fields in the files that Moonshot AI has published, each with its name in transformers."""
NORM = Norm(1e-5, NormKind.LAYER)
TOWER, PROJECTOR = "vision_tower.", "mm_projector."
PREFIXES = (
    ("vision_tower.encoder.patch_embed.", "vision_tower.patch_embed."),  # as transformers 5.23 writes it
    ("model.mm_projector.", PROJECTOR),  # as the same version writes one norm
    ("multi_modal_projector.linear_1.", "mm_projector.proj.0."),  # Kimi-VL
    ("multi_modal_projector.linear_2.", "mm_projector.proj.2."),
    ("multi_modal_projector.", PROJECTOR),
)


def read(fields: Fields, width: int) -> tuple[Sight, CommonFacts, EncoderText]:
    """A square of patches becomes one image row."""
    own = _own_fields(fields)
    patch, merge = own.integer("patch_size", 1, 4096), _square(own, "merge_kernel_size")
    wide, count = own.integer("hidden_size", 4, 1 << 17), own.integer("num_attention_heads", 1, 4096)
    layers, side = own.integer("num_hidden_layers", 1, 4096), own.integer("pos_emb_height", 1, 4096)
    if own.integer("pos_emb_width", 1, 4096) != side:
        raise own.wrong("pos_emb_width", "Places of patches are a square grid.")
    if fields.integer("projection_hidden_size", 1, 1 << 17, default=wide) != wide:
        raise fields.wrong("projection_hidden_size", f"The norm before the projector reads rows of {wide} elements.")
    dim = head_dim(own, wide, count)
    if dim % 4:
        raise own.wrong("num_attention_heads", "Half of a head's pairs turn by column, the others by line.")
    turn = turn_by_pairs(dim, theta_of(own))
    usual = fields.optional_integer("media_placeholder_token_id", 0, 1 << 24) or 163_605
    sight = Sight(
        family="kimi",
        placeholder=fields.integer("image_token_id", 0, 1 << 24, default=usual),
        patching=Patching(patch, merge),
        turn=turn,
        learned=LearnedPlaces(f"{TOWER}patch_embed.pos_emb.weight", side, Between.BICUBIC),
    )
    heads = Heads(
        *(wide, count, count, dim),
        qkv_bias=True,
        output_bias=True,
        names=AttentionNames(o="wo"),
        joined=joined_of_pairs("wqkv"),
        ahead=ALL_AHEAD,
    )
    act = activation(own, "hidden_act", "gelu_pytorch_tanh")
    inner = own.integer("intermediate_size", 1, 1 << 20)
    feed = Feed(wide, inner, act, bias=True, gate="", up="mlp.fc0", down="mlp.fc1")
    tower = Tower("encoder.blocks.", layers, heads, feed, NORM, ("norm0", "norm1"), turn)
    usual_eps = own.number("projector_ln_eps", 1e-15, 0.1, default=1e-5)
    between = Norm(fields.number("projection_layer_norm_eps", 1e-15, 0.1, default=usual_eps), NormKind.LAYER)
    patches = Patches(patch, wide, "patch_embed.proj")

    def program(t: Tracer) -> tuple[Value, ...]:
        with t.layer(TOWER):
            x = NORM(t, "encoder.final_layernorm", tower(t, with_given_places(t, patches(t))), in_place=True)
        with t.layer(PROJECTOR):
            return (merged(t, between(t, "pre_norm", x, in_place=True), merge**2, width, ("proj.0", "proj.2")),)

    return sight, CommonFacts(1, wide, layers, 1, None, (), "float32", stored_prefixes=PREFIXES), program


def _own_fields(fields: Fields) -> Fields:
    """Returns the fields of the tower by their names in transformers."""
    group = fields.group("vision_config") or fields.only({})
    renamed: dict[str, Any] = {new: group.value(old) for old, new in FORMER.items() if group.has(old)}
    return with_silent(group.changed({**renamed, **group.values}), SILENT)


def _square(own: Fields, name: str) -> int:
    """Reads the side of a square of patches from the field `name`, which holds one number or a list of equal
    numbers."""
    sides = own.integers(name)
    if not sides or any(side != sides[0] or not 1 <= side <= 64 for side in sides):
        raise own.wrong(name, "Patches are joined in squares.")
    return sides[0]
