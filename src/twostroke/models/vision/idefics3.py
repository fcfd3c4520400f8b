"""Idefics 3 and SmolVLM: SigLIP over square tiles, whose patches are joined in groups and multiplied by one matrix
(Laurençon et al. 2024; Marafioti et al. 2025).
"""

from __future__ import annotations

from twostroke.models.common.blocks.attend import AttentionNames, Heads
from twostroke.models.common.blocks.feed import Feed
from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.models.common.blocks.tower import Patches, Tower, with_table
from twostroke.models.common.encoders import EncoderText
from twostroke.models.common.fields.fields import activation, head_dim, with_silent
from twostroke.models.common.registry import CommonFacts
from twostroke.models.common.sight import Sight
from twostroke.ops.products.linear import linear
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import ALL_AHEAD, Value
from twostroke.ops.rows.join_rows import join_rows
from twostroke.types.images import Patching
from twostroke.types.spec.fields import Fields

SILENT = {
    **{"hidden_size": 1152, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 16},
    **{"image_size": 224, "patch_size": 32, "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6},
}
"""What transformers assumes for the tower where vision_config is silent."""

MOST_PIXELS = 4096


def read(fields: Fields, width: int) -> tuple[Sight, CommonFacts, EncoderText]:
    """The tower reads tiles of image_size; scale_factor squared patches become one image row."""
    own = with_silent(fields.group("vision_config") or fields.only({}), SILENT)
    side, patch = own.integer("image_size", 1, MOST_PIXELS), own.integer("patch_size", 1, MOST_PIXELS)
    merge = fields.integer("scale_factor", 1, 64, default=2)
    placeholder = fields.integer("image_token_id", 0, 1 << 24, default=128_257)
    sight = Sight(family="idefics3", placeholder=placeholder, patching=Patching(patch, merge), side=side)
    grid = side // patch
    if not grid or grid % merge:
        raise fields.wrong("scale_factor", f"A tile has {grid} patches a side, which are not groups of {merge}.")
    inner, layers = own.integer("intermediate_size", 1, 1 << 20), own.integer("num_hidden_layers", 1, 4096)
    wide, count = own.integer("hidden_size", 2, 1 << 17), own.integer("num_attention_heads", 1, 4096)
    norm = Norm(own.number("layer_norm_eps", 1e-15, 0.1), NormKind.LAYER)
    heads = Heads(
        *(wide, count, count, head_dim(own, wide, count)),
        qkv_bias=True,
        output_bias=True,
        names=AttentionNames(o="self_attn.out_proj"),
        ahead=ALL_AHEAD,
    )
    feed = Feed(wide, inner, activation(own, "hidden_act", ""), bias=True, gate="", up="mlp.fc1", down="mlp.fc2")
    tower = Tower("encoder.layers.", layers, heads, feed, norm)
    patches = Patches(patch, wide, "embeddings.patch_embedding")

    def text(t: Tracer) -> tuple[Value, ...]:
        with t.layer("model.vision_model."):
            x = with_table(t, patches(t), "embeddings.position_embedding", grid**2)
            x = norm(t, "post_layernorm", tower(t, x))
        joined = join_rows(x, t.logit_rows, merge**2)
        matrix = t.matrix("connector", {"model.connector.modality_projection.proj": width}, joined.width)
        return (linear(joined, matrix),)

    facts = CommonFacts(grid**2, wide, layers, grid**2, None, (), "float32")
    return sight, facts, text
