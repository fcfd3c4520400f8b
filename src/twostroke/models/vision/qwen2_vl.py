"""Qwen2-VL and Qwen2.5-VL: towers over tiles of any size, with rotary positions of patches by line and column. In most
layers of Qwen2.5-VL, patches see only the patches of a window (Wang et al. 2024; Bai et al. 2025)."""

from __future__ import annotations

from twostroke.models.common.blocks.attend import AttentionNames, Heads, joined_in_order
from twostroke.models.common.blocks.feed import Feed
from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.models.common.blocks.tower import Patches, Tower, merged, turn_by_halves
from twostroke.models.common.encoders import EncoderText
from twostroke.models.common.fields.fields import activation, head_dim, with_silent
from twostroke.models.common.fields.nested import text_fields
from twostroke.models.common.fields.places import text_turns, theta_of
from twostroke.models.common.sight import Sight, Windows
from twostroke.models.kit import CommonFacts, Fields, Tracer, Value
from twostroke.ops.program.values import ALL_AHEAD
from twostroke.types.images import Patching

FORMER = {
    **{"depth": 32, "embed_dim": 1280, "hidden_size": 3584, "hidden_act": "quick_gelu", "mlp_ratio": 4},
    **{"num_heads": 16, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2},
}
LATTER = {
    **{"depth": 32, "hidden_size": 3584, "hidden_act": "silu", "intermediate_size": 3420, "num_heads": 16},
    **{"patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2, "window_size": 112},
    "fullatt_block_indexes": (7, 15, 23, 31),
}
"""The defaults of transformers for the towers of Qwen2-VL (FORMER) and Qwen2.5-VL (LATTER), for fields that
vision_config does not have."""
SECTIONS = (16, 24, 24)
EPS = 1e-6
PREFIX = "model.visual."


def read(fields: Fields, width: int) -> tuple[Sight, CommonFacts, EncoderText]:
    """Reads config.json and returns the image encoder. A square of spatial_merge_size x spatial_merge_size patches
    becomes one image row."""
    latter = fields.text("model_type", "") == "qwen2_5_vl"
    own = with_silent(fields.group("vision_config") or fields.only({}), LATTER if latter else FORMER)
    patching = Patching(own.integer("patch_size", 1, 4096), own.integer("spatial_merge_size", 1, 64))
    frames, depth = own.integer("temporal_patch_size", 1, 64), own.integer("depth", 1, 4096)
    wide = own.integer("hidden_size" if latter else "embed_dim", 4, 1 << 17)
    count = own.integer("num_heads", 1, 4096)
    made = "out_hidden_size" if latter else "hidden_size"
    if own.integer(made, 1, 1 << 17, default=width) != width:
        raise own.wrong(made, f"Rows of the language model have {width} elements.")
    dim = head_dim(own, wide, count)
    turn = turn_by_halves(dim, theta_of(own))
    sight = Sight(
        family="qwen_vl",
        placeholder=fields.integer("image_token_id", 0, 1 << 24, default=151_655),
        patching=patching,
        frames=frames,
        turn=turn,
        windows=_windows(own, patching, depth) if latter else None,
        text_turns=text_turns(text_fields(fields), SECTIONS, interleaved=False),
    )
    heads = Heads(
        *(wide, count, count, dim),
        qkv_bias=True,
        output_bias=True,
        names=AttentionNames(o="attn.proj"),
        joined=joined_in_order("attn.qkv"),
        ahead=ALL_AHEAD,
    )
    act = activation(own, "hidden_act", "")
    if latter:
        feed = Feed(wide, own.integer("intermediate_size", 1, 1 << 20), act, bias=True)
    else:
        inner = int(wide * own.number("mlp_ratio", 1e-3, 1e3))
        feed = Feed(wide, inner, act, bias=True, gate="", up="mlp.fc1", down="mlp.fc2")
    norm = Norm(EPS, NormKind.RMS if latter else NormKind.LAYER)
    tower = Tower("blocks.", depth, heads, feed, norm, ("norm1", "norm2"), turn)
    patches = Patches(patching.patch, wide, "patch_embed.proj", frames, bias=False)

    def program(t: Tracer) -> tuple[Value, ...]:
        with t.layer(PREFIX):
            x = tower(t, patches(t))
            with t.layer("merger."):
                return (merged(t, norm(t, "ln_q", x), patching.merge**2, width, ("mlp.0", "mlp.2")),)

    prefixes = (("visual.", PREFIX),)
    return sight, CommonFacts(1, wide, depth, 1, None, (), "float32", stored_prefixes=prefixes), program


def _windows(own: Fields, patching: Patching, depth: int) -> Windows:
    side = own.integer("window_size", 1, 1 << 16) // patching.merge // patching.patch
    if not side:
        raise own.wrong("window_size", f"An image row shows {patching.unit} pixels.")
    whole = own.integers("fullatt_block_indexes")
    if any(index < 0 for index in whole):
        raise own.wrong("fullatt_block_indexes", f"The tower has layers 0 to {depth - 1}.")
    return Windows(side, tuple(whole))
