"""Gemma 4 12B: there is no vision tower. The pixels of an image row pass a norm and a product, and learned position
embeddings of its column and line are added (Gemma team 2026)."""

from __future__ import annotations

from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.models.common.blocks.tower import COLORS, with_given_places
from twostroke.models.common.encoders import EncoderText
from twostroke.models.common.fields.fields import with_silent
from twostroke.models.common.fields.nested import text_fields
from twostroke.models.common.sight import Between, LearnedPlaces, Sight
from twostroke.models.kit import CommonFacts, Fields, Tracer, Value, defaults
from twostroke.ops.products.linear import linear
from twostroke.ops.rows.gather_rows import gather_rows
from twostroke.types.images import Patching, SpanLayers

EPS = 1e-5
"""The epsilon of PyTorch's layer norms."""
EMBEDDER, PROJECTOR = "model.vision_embedder.", "model.embed_vision."
PREFIXES = (("vision_embedder.", EMBEDDER), ("embed_vision.", PROJECTOR))


def read(fields: Fields, width: int) -> tuple[Sight, CommonFacts, EncoderText]:
    """Reads the embedder of pixels. With use_bidirectional_attention, the rows of an image see each other in the layers
    with a window.

    The field `planes` of vision_config is set for tensors of a GGUF file. They have pixels colour by colour, and
    position embeddings axis by axis.
    """
    own = with_silent(fields.group("vision_config") or fields.only({}), defaults("gemma4_unified_vision"))
    text = text_fields(fields)
    side = own.integer("patch_size", 1, 4096) * own.integer("pooling_kernel_size", 1, 64)
    wide, places = own.integer("mm_embed_dim", 1, 1 << 17), own.integer("mm_posemb_size", 1, 1 << 20)
    planes = own.boolean("planes", False)
    sees = text.text("use_bidirectional_attention", "") == "vision"
    sight = Sight(
        family="gemma4_unified",
        placeholder=fields.integer("image_token_id", 0, 1 << 24, default=258_880),
        patching=Patching(side, 1),
        learned=LearnedPlaces(f"{EMBEDDER}pos_embedding", places, Between.AXES if planes else Between.PAIRS),
        scaled=False,
        spans=SpanLayers.WINDOWED if sees else SpanLayers.NONE,
        colors_last=not planes,
        filler=text.integer("pad_token_id", 0, 1 << 24, default=0),
    )
    norm, last = Norm(EPS, NormKind.LAYER), Norm(own.number("rms_norm_eps", 1e-12, 0.1), NormKind.UNIT)

    def program(t: Tracer) -> tuple[Value, ...]:
        with t.layer(EMBEDDER):
            x = norm(t, "patch_ln1", t.given(COLORS * side**2))
            x = linear(x, t.matrix("pixels", {"patch_dense": wide}, COLORS * side**2, bias=True))
            x = with_given_places(t, norm(t, "patch_ln2", x, in_place=True))
            x = last(t, "", norm(t, "pos_norm", x, in_place=True), in_place=True)
        with t.layer(PROJECTOR):
            x = gather_rows(x, t.logit_rows)
            return (linear(x, t.matrix("connector", {"embedding_projection": width}, wide)),)

    return sight, CommonFacts(1, wide, 1, 1, None, (), "float32", stored_prefixes=PREFIXES), program
