"""Qwen3-VL and Qwen3.5: a tower over tiles of any size, whose patches are rotated by line and column. In Qwen3-VL, rows
of some of the tower's layers are added after the first layers of the language model (Qwen team 2025)."""

from __future__ import annotations

import math

from twostroke.models.common.blocks.attend import AttentionNames, Heads, joined_in_order
from twostroke.models.common.blocks.feed import Feed
from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.models.common.blocks.tower import (
    Patches,
    Tower,
    merged,
    turn_by_halves,
    two_products,
    with_given_places,
)
from twostroke.models.common.encoders import EncoderText
from twostroke.models.common.fields.fields import activation, head_dim, with_silent
from twostroke.models.common.fields.places import text_turns, theta_of
from twostroke.models.common.sight import Between, LearnedPlaces, Sight
from twostroke.models.kit import CommonFacts, Fields, Tracer, Value, defaults
from twostroke.ops.products.take_columns import take_columns
from twostroke.ops.program.values import ALL_AHEAD
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.join_rows import join_rows
from twostroke.types.images import Patching

DEEP = (8, 16, 24)
"""The layers of Qwen3-VL's tower whose rows are added after layers of the language model. Qwen3.5 has no such layers.
"""
EPS = 1e-6
PREFIX = "model.visual."


def read(fields: Fields, width: int) -> tuple[Sight, CommonFacts, EncoderText]:
    """A square of spatial_merge_size x spatial_merge_size patches becomes one image row."""
    own = with_silent(fields.group("vision_config") or fields.only({}), defaults("qwen3_vl_vision"))
    patch, merge = own.integer("patch_size", 1, 4096), own.integer("spatial_merge_size", 1, 64)
    frames, depth = own.integer("temporal_patch_size", 1, 64), own.integer("depth", 1, 4096)
    wide, count = own.integer("hidden_size", 4, 1 << 17), own.integer("num_heads", 1, 4096)
    places = own.integer("num_position_embeddings", 1, 1 << 24)
    grid = math.isqrt(places)
    if grid**2 != places:
        raise own.wrong("num_position_embeddings", "Places of patches are a square grid.")
    if own.integer("out_hidden_size", 1, 1 << 17, default=width) != width:
        raise own.wrong("out_hidden_size", f"Rows of the language model have {width} elements.")
    deep = _deep(fields, own, depth)
    dim = head_dim(own, wide, count)
    turn = turn_by_halves(dim, theta_of(own))
    text = fields.group("text_config") or fields.only({})
    sight = Sight(
        family="qwen_vl",
        placeholder=fields.integer("image_token_id", 0, 1 << 24, default=151_655),
        patching=Patching(patch, merge),
        frames=frames,
        turn=turn,
        learned=LearnedPlaces(f"{PREFIX}pos_embed.weight", grid, Between.CORNERS),
        text_turns=text_turns(text, _sections(fields), interleaved=True),
        added=tuple(range(len(deep))),
    )
    norm = Norm(EPS, NormKind.LAYER)
    heads = Heads(
        *(wide, count, count, dim),
        qkv_bias=True,
        output_bias=True,
        names=AttentionNames(o="attn.proj"),
        joined=joined_in_order("attn.qkv"),
        ahead=ALL_AHEAD,
    )
    inner = own.integer("intermediate_size", 1, 1 << 20)
    act = activation(own, "hidden_act", "")
    feed = Feed(wide, inner, act, bias=True, gate="", up="mlp.linear_fc1", down="mlp.linear_fc2")
    patches = Patches(patch, wide, "patch_embed.proj", frames)
    names = ("linear_fc1", "linear_fc2")

    def program(t: Tracer) -> tuple[Value, ...]:
        kept: dict[int, Value] = {}

        def keep(t: Tracer, index: int, x: Value) -> None:
            if index in deep:
                kept[index] = take_columns(x, t.constant("all_columns", tuple(map(float, range(wide)))))

        tower = Tower("blocks.", depth, heads, feed, norm, ("norm1", "norm2"), turn, keep)
        with t.layer(PREFIX):
            x = tower(t, with_given_places(t, patches(t)))
            with t.layer("merger."):
                rows = [merged(t, norm(t, "norm", x), merge**2, width, names)]
            for place, index in enumerate(deep):
                with t.layer(f"deepstack_merger_list.{place}."):
                    h = norm(t, "norm", join_rows(kept[index], t.logit_rows, merge**2))
                    rows.append(two_products(t, h, width, names, Activation.GELU))
        return tuple(rows)

    return sight, CommonFacts(1, wide, depth, 1, None, (), "float32"), program


def _sections(fields: Fields) -> tuple[int, int, int]:
    return (24, 20, 20) if "qwen3_vl" in fields.text("model_type", "") else (11, 11, 10)


def _deep(fields: Fields, own: Fields, depth: int) -> tuple[int, ...]:
    """Returns the layers of the tower whose rows are added after the first layers of the language model, in order."""
    if "qwen3_vl" not in fields.text("model_type", ""):
        return ()
    found = own.integers("deepstack_visual_indexes") if own.has("deepstack_visual_indexes") else DEEP
    if any(not 0 <= index < depth for index in found) or len(set(found)) < len(found):
        raise own.wrong("deepstack_visual_indexes", f"The tower has layers 0 to {depth - 1}.")
    return tuple(found)
