"""Pixtral, Mistral 3 and LightOnOCR: a tower over tiles of any size, with RMS norms and gates. Its patches are rotated
by line and column (Agrawal et al. 2024; Taghadouini et al. 2025).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from twostroke.models.common.blocks.attend import AttentionNames, Heads
from twostroke.models.common.blocks.feed import Feed
from twostroke.models.common.blocks.norm import Norm
from twostroke.models.common.blocks.tower import Patches, Tower, by_channel, turn_by_turns
from twostroke.models.common.encoders import EncoderText
from twostroke.models.common.fields.fields import activation, head_dim, with_silent
from twostroke.models.common.fields.places import theta_of
from twostroke.models.common.sight import Sight
from twostroke.models.kit import CommonFacts, Fields, Tracer, Value, defaults
from twostroke.ops.products.linear import linear
from twostroke.ops.program.values import ALL_AHEAD
from twostroke.ops.rows.expressions import activate
from twostroke.ops.rows.gather_rows import gather_rows
from twostroke.ops.rows.join_rows import join_rows
from twostroke.types.images import Patching

EPS = 1e-5


class PixtralKind(Struct, frozen=True):
    """How a family of models differs from Pixtral. family: the family of the processor. merges: whether squares of
    patches become one image row. tower, projector: the beginnings of tensor names. placeholder: the image token's id
    where the config does not have it. silent: defaults of the tower that replace Pixtral's."""

    family: str = "pixtral"
    merges: bool = False
    tower: str = "vision_tower."
    projector: str = "multi_modal_projector."
    placeholder: int = 32_000
    silent: Mapping[str, Any] = {}

    @property
    def prefixes(self) -> tuple[tuple[str, str], ...]:
        """The beginnings of tensor names in some files, each with the beginning that programs use."""
        return tuple((name, f"model.{name}") for name in (self.tower, self.projector))


KINDS = {
    "mistral3": PixtralKind(merges=True, placeholder=10),
    "lighton_ocr": PixtralKind(
        *("lighton_ocr", True, "vision_encoder.", "vision_projection.", 151_655),
        silent={"patch_size": 14, "hidden_act": "silu"},
    ),
}


def read(fields: Fields, width: int) -> tuple[Sight, CommonFacts, EncoderText]:
    """Reads the tower. In Mistral 3 and LightOnOCR (PixtralKind.merges), a square of spatial_merge_size x
    spatial_merge_size patches becomes one image row. In Pixtral, each patch becomes an image row."""
    kind = KINDS.get(fields.text("model_type", ""), PixtralKind())
    merges = kind.merges
    own = with_silent(fields.group("vision_config") or fields.only({}), {**defaults("pixtral"), **kind.silent})
    patch, layers = own.integer("patch_size", 1, 4096), own.integer("num_hidden_layers", 1, 4096)
    wide, count = own.integer("hidden_size", 4, 1 << 17), own.integer("num_attention_heads", 1, 4096)
    merge = fields.integer("spatial_merge_size", 1, 64, default=2) if merges else 1
    _last_layer_only(fields, layers)
    dim = head_dim(own, wide, count)
    turn = turn_by_turns(dim, theta_of(own))
    usual = fields.optional_integer("image_token_id", 0, 1 << 24) or kind.placeholder
    sight = Sight(
        family=kind.family,
        placeholder=fields.integer("image_token_index", 0, 1 << 24, default=usual),
        patching=Patching(patch, merge),
        turn=turn,
    )
    names = AttentionNames("attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.o_proj")
    heads = Heads(wide, count, count, dim, names=names, ahead=ALL_AHEAD)
    feed = Feed(
        *(wide, own.integer("intermediate_size", 1, 1 << 20), activation(own, "hidden_act", "")),
        gate="feed_forward.gate_proj",
        up="feed_forward.up_proj",
        down="feed_forward.down_proj",
    )
    norm = Norm(EPS)
    tower = Tower("transformer.layers.", layers, heads, feed, norm, ("attention_norm", "ffn_norm"), turn)
    patches = Patches(patch, wide, "patch_conv", bias=False)
    text = fields.group("text_config") or fields.only({})
    between = Norm(text.number("rms_norm_eps", 1e-12, 0.1, default=1e-5))
    biased = fields.boolean("multimodal_projector_bias", not merges)
    act = activation(fields, "projector_hidden_act", "gelu")

    def program(t: Tracer) -> tuple[Value, ...]:
        with t.layer(f"model.{kind.tower}"):
            x = tower(t, norm(t, "ln_pre", patches(t), in_place=True))
        with t.layer(f"model.{kind.projector}"):
            if merges:
                joined = join_rows(between(t, "norm", x), t.logit_rows, merge**2)
                matrix = t.matrix("connector", {"patch_merger.merging_layer": wide}, joined.width)
                rows = linear(by_channel(t, joined, wide), matrix)
            else:
                rows = gather_rows(x, t.logit_rows)
            middle = activate(linear(rows, t.matrix("connector", {"linear_1": width}, wide, bias=biased)), act)
            return (linear(middle, t.matrix("connector", {"linear_2": width}, width, bias=biased)),)

    return sight, CommonFacts(1, wide, layers, 1, None, (), "float32", stored_prefixes=kind.prefixes), program


def _last_layer_only(fields: Fields, layers: int) -> None:
    if fields.value("vision_feature_layer", -1) not in (-1, layers, [-1], [layers]):
        raise fields.wrong("vision_feature_layer", "Image rows are made of the last layer.")
