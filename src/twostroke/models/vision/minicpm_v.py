"""MiniCPM-V 4.6, 4.7 and MiniCPM-OCR: SigLIP over tiles of any size. In the middle of the tower, four patches become
one row, and four rows of its result become one image row (OpenBMB 2026).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.models.common.blocks.tower import mean_of, two_products
from twostroke.models.common.encoders import EncoderText
from twostroke.models.common.families.siglip import TABLE, TOWER, Siglip, read_siglip
from twostroke.models.common.fields.nested import text_fields
from twostroke.models.common.fields.places import text_turns
from twostroke.models.common.sight import Between, LearnedPlaces, Sight
from twostroke.models.kit import CommonFacts, Fields, Tracer, Value
from twostroke.ops.products.linear import linear
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import activate, add
from twostroke.ops.rows.join_rows import join_rows
from twostroke.types.images import Patching, RowFold

USUAL = {
    **{"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12},
    **{"image_size": 224, "patch_size": 16, "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6},
}
"""The defaults of transformers for fields that vision_config does not have."""
OCR, CANVAS = "minicpm_ocr", "minicpmv4_7"
MARKS = ("image_start", "image_end", "slice_start", "slice_end", "newline")
SIDE = 2
"""A square of SIDE x SIDE rows becomes one row, once inside the tower and once after it."""
LAST = Norm(1e-6, NormKind.LAYER)
WHOLE, FOLDED = "4x", "16x"
"""The values of downsample_mode. With 4x, one image row is made from four patches; with 16x, from sixteen."""


def read(fields: Fields, width: int) -> tuple[Sight, CommonFacts, EncoderText]:
    """Reads config.json and returns the image encoder. An image row is made from sixteen patches, or from four where
    downsample_mode asks for it. In MiniCPM-OCR, four are the default."""
    own = fields.group("vision_config") or fields.only({})
    tower = replace(read_siglip(own, USUAL), fitted=True)
    fold = _fold(fields, own, tower)
    sight = Sight(
        family="minicpm_v",
        placeholder=fields.integer("image_token_id", 0, 1 << 24),
        patching=Patching(tower.patch, SIDE * (fold.side if fold else 1)),
        learned=LearnedPlaces(f"{TOWER}{TABLE}.weight", tower.grid, Between.NEAREST),
        fold=fold,
        **_of_canvas(fields),
    )

    def program(t: Tracer) -> tuple[Value, ...]:
        with t.layer(TOWER):
            x, before = _of_tower(t, tower, fold)
            joined = join_rows(tower.norm(t, "post_layernorm", x), t.logit_rows, SIDE**2)
        with t.layer("model.merger.mlp.0."):
            joined = LAST(t, "pre_norm", joined, in_place=True)
            return (two_products(t, joined, width, ("linear_1", "linear_2"), Activation.GELU), *before)

    return sight, CommonFacts(1, tower.width, tower.layers, 1, None, (), "float32"), program


def _fold(fields: Fields, own: Fields, tower: Siglip) -> RowFold | None:
    """Returns where in the tower four patches become one row; None for a tower that keeps all patches."""
    ocr = fields.text("model_type", "") == OCR
    mode = fields.text("downsample_mode", WHOLE if ocr else FOLDED)
    if mode not in (WHOLE, FOLDED):
        raise fields.wrong("downsample_mode", f"It is {WHOLE} or {FOLDED}.")
    for group, name in ((fields, "merge_kernel_size"), (own, "window_kernel_size")):
        if group.has(name) and tuple(group.integers(name)) != (SIDE, SIDE):
            raise group.wrong(name, f"Squares of {SIDE} x {SIDE} rows become one row.")
    if fields.integer("merger_times", 1, 64, default=1) != 1:
        raise fields.wrong("merger_times", "The processor counts image rows that were merged once.")
    layer = fields.integer("insert_layer_id", 0, 4096, default=6)
    if mode == WHOLE:
        return None
    if layer >= tower.layers - 1:
        raise fields.wrong("insert_layer_id", f"It must be below {tower.layers - 1}, the last layer of the tower.")
    return RowFold(layer + 1, SIDE)


def _of_canvas(fields: Fields) -> dict[str, Any]:
    """Returns the arguments of Sight for a model whose image rows, and the marks around images, have positions in two
    dimensions (M-RoPE). They are empty for a model whose positions are plain sequence numbers."""
    if fields.text("model_type", "") != CANVAS:
        return {}
    return {
        "text_turns": text_turns(text_fields(fields), (11, 11, 10), interleaved=True),
        "marks": tuple(fields.integer(f"{name}_id", 0, 1 << 24) for name in MARKS),
    }


def _of_tower(t: Tracer, tower: Siglip, fold: RowFold | None) -> tuple[Value, tuple[Value, ...]]:
    """Returns the rows after the last layer, and the value at which four patches become one row (`fold`): the rows of
    single patches. The code that runs the program joins them there. With `fold` None, no rows are joined and the second
    result is empty."""
    layers, x = tower.tower, tower.of_patches(t)
    if fold is None:
        return layers(t, x), ()
    cache = layers.cache(t)
    x = layers.of_layers(t, x, cache, range(fold.layer))
    with t.layer("vit_merger."):
        before = layers.attended(t, x, cache)
        joined = t.given(fold.group * tower.width)
        h = tower.norm(t, "pre_norm", joined)
        inner = fold.group * tower.feed.inner_size
        middle = linear(h, t.matrix("up", {"linear_1": inner}, joined.width, bias=True))
        middle = activate(middle, Activation.GELU_TANH)
        made = linear(middle, t.matrix("down", {"linear_2": tower.width}, inner, bias=True))
        x = add(mean_of(joined, fold.group), made)
    return layers.of_layers(t, x, cache, range(fold.layer, tower.layers)), (before,)
