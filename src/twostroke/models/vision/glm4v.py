"""GLM-4.1V, 4.5V and 4.6V: a tower over tiles of any size, with RMS norms and gated feed-forward blocks. Its q and k
have rotary positions by line and column, and its patches have learned position embeddings too (GLM-V team 2025)."""

from __future__ import annotations

from twostroke.models.common.blocks.attend import AttentionNames, Heads, joined_in_order
from twostroke.models.common.blocks.feed import Feed
from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.models.common.blocks.tower import Patches, Tower, by_channel, turn_by_halves, with_given_places
from twostroke.models.common.encoders import EncoderText
from twostroke.models.common.fields.fields import activation, head_dim, with_silent
from twostroke.models.common.fields.nested import text_fields
from twostroke.models.common.fields.places import text_turns, theta_of
from twostroke.models.common.sight import Between, LearnedPlaces, Sight
from twostroke.models.kit import CommonFacts, Fields, Tracer, Value, defaults
from twostroke.ops.products.linear import linear
from twostroke.ops.program.values import ALL_AHEAD, Tensor
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import activate
from twostroke.ops.rows.join_rows import join_rows
from twostroke.types.images import Patching

SECTIONS = (8, 12, 12)
PREFIX = "model.visual."
PREFIXES = (("visual.", PREFIX),)
BETWEEN = Norm(1e-5, NormKind.LAYER)


def read(fields: Fields, width: int) -> tuple[Sight, CommonFacts, EncoderText]:
    """Reads config.json and returns the image encoder. A square of spatial_merge_size x spatial_merge_size patches
    becomes one image row. The inner size of the layers' feed-forward blocks is out_hidden_size; that of the one block
    after all layers is intermediate_size."""
    own = with_silent(fields.group("vision_config") or fields.only({}), defaults("glm4v_vision"))
    patch, merge = own.integer("patch_size", 1, 4096), own.integer("spatial_merge_size", 1, 64)
    frames, depth = own.integer("temporal_patch_size", 1, 64), own.integer("depth", 1, 4096)
    wide, count = own.integer("hidden_size", 4, 1 << 17), own.integer("num_heads", 1, 4096)
    if own.integer("out_hidden_size", 1, 1 << 17) != width:
        raise own.wrong("out_hidden_size", f"Rows of the language model have {width} elements.")
    usual = 151_363 if fields.text("model_type", "") == "glm4v_moe" else 151_343
    dim, grid = head_dim(own, wide, count), own.integer("image_size", 1, 1 << 16) // patch
    turn, norm = turn_by_halves(dim, theta_of(own)), Norm(own.number("rms_norm_eps", 1e-12, 0.1))
    sight = Sight(
        family="glm4v",
        placeholder=fields.integer("image_token_id", 0, 1 << 24, default=usual),
        patching=Patching(patch, merge),
        frames=frames,
        turn=turn,
        learned=LearnedPlaces(f"{PREFIX}embeddings.position_embedding.weight", grid, Between.BICUBIC),
        text_turns=text_turns(text_fields(fields), SECTIONS, interleaved=False),
    )
    heads = Heads(
        *(wide, count, count, dim),
        qkv_bias=own.boolean("attention_bias", False),
        names=AttentionNames(o="attn.proj"),
        joined=joined_in_order("attn.qkv"),
        ahead=ALL_AHEAD,
    )
    act = activation(own, "hidden_act", "")
    tower = Tower("blocks.", depth, heads, Feed(wide, width, act), norm, ("norm1", "norm2"), turn)
    patches = Patches(patch, wide, "patch_embed.proj", frames)
    inner = own.integer("intermediate_size", 1, 1 << 20)
    feed = Feed(width, inner, act, gate="gate_proj", up="up_proj", down="down_proj")

    def program(t: Tracer) -> tuple[Value, ...]:
        with t.layer(PREFIX):
            x = with_given_places(t, norm(t, "post_conv_layernorm", patches(t), in_place=True))
            return (image_rows(t, norm(t, "post_layernorm", tower(t, x)), merge, feed),)

    return sight, CommonFacts(1, wide, depth, 1, None, (), "float32", stored_prefixes=PREFIXES), program


def image_rows(t: Tracer, x: Value, merge: int, feed: Feed) -> Value:
    """Returns squares of patches as rows of the language model. feed: the block after the product that joins the
    patches."""
    joined, width = join_rows(x, t.logit_rows, merge**2), feed.hidden_size
    kernel = Tensor(t.name("downsample.weight"), (width, x.width, merge, merge))
    bias = Tensor(t.name("downsample.bias"), (width,))
    rows = linear(by_channel(t, joined, x.width), t.weight("connector", width, joined.width, (kernel,), (bias,)))
    with t.layer("merger."):
        rows = linear(rows, t.matrix("connector", {"proj": width}, width))
        rows = activate(BETWEEN(t, "post_projection_norm", rows, in_place=True), Activation.GELU)
        return feed(t, rows)
