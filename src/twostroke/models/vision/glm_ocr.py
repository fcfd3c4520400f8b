"""GLM-OCR: the image encoder of GLM-4.1V without learned position embeddings. Its products have biases, and each head
of q and k has a norm (GLM-V team 2026)."""

from __future__ import annotations

from twostroke.models.common.blocks.attend import AttentionNames, Heads, joined_in_order
from twostroke.models.common.blocks.feed import Feed
from twostroke.models.common.blocks.norm import Norm
from twostroke.models.common.blocks.tower import COLORS, Patches, Tower, turn_by_halves
from twostroke.models.common.encoders import EncoderText
from twostroke.models.common.fields.fields import activation, head_dim, with_silent
from twostroke.models.common.fields.nested import text_fields
from twostroke.models.common.fields.places import text_turns, theta_of
from twostroke.models.common.sight import Sight
from twostroke.models.kit import CommonFacts, Fields, Tracer, Value, defaults
from twostroke.models.vision.glm4v import PREFIX, PREFIXES, SECTIONS, image_rows
from twostroke.ops.program.values import ALL_AHEAD
from twostroke.types.images import Patching


def read(fields: Fields, width: int) -> tuple[Sight, CommonFacts, EncoderText]:
    """Reads config.json and returns the image encoder. A square of spatial_merge_size x spatial_merge_size patches
    becomes one image row."""
    own = with_silent(fields.group("vision_config") or fields.only({}), defaults("glm_ocr_vision"))
    patch, merge = own.integer("patch_size", 1, 4096), own.integer("spatial_merge_size", 1, 64)
    frames, depth = own.integer("temporal_patch_size", 1, 64), own.integer("depth", 1, 4096)
    wide, count = own.integer("hidden_size", 4, 1 << 17), own.integer("num_heads", 1, 4096)
    if own.integer("out_hidden_size", 1, 1 << 17) != width:
        raise own.wrong("out_hidden_size", f"Rows of the language model have {width} elements.")
    dim = head_dim(own, wide, count)
    turn, norm = turn_by_halves(dim, theta_of(own)), Norm(own.number("rms_norm_eps", 1e-12, 0.1))
    sight = Sight(
        family="glm4v",
        placeholder=fields.integer("image_token_id", 0, 1 << 24, default=59_280),
        patching=Patching(patch, merge),
        frames=frames,
        turn=turn,
        text_turns=text_turns(text_fields(fields), SECTIONS, interleaved=False),
    )
    biased, act = own.boolean("attention_bias", True), activation(own, "hidden_act", "")
    heads = Heads(
        *(wide, count, count, dim),
        qkv_bias=biased,
        output_bias=biased,
        head_norm=norm,
        names=AttentionNames(o="attn.proj", q_norm="attn.q_norm", k_norm="attn.k_norm"),
        joined=joined_in_order("attn.qkv"),
        ahead=ALL_AHEAD,
    )
    inner = own.integer("intermediate_size", 1, 1 << 20)
    tower = Tower("blocks.", depth, heads, Feed(wide, inner, act, bias=biased), norm, ("norm1", "norm2"), turn)
    patches = Patches(patch, wide, "patch_embed.proj", frames)
    feed = Feed(width, COLORS * width, act, gate="gate_proj", up="up_proj", down="down_proj")

    def program(t: Tracer) -> tuple[Value, ...]:
        with t.layer(PREFIX):
            return (image_rows(t, norm(t, "post_layernorm", tower(t, patches(t))), merge, feed),)

    return sight, CommonFacts(1, wide, depth, 1, None, (), "float32", stored_prefixes=PREFIXES), program
