"""Gemma 4: a tower over tiles of any size, with norms before and after each block. Its q and k have rotary positions by
column and line, and its patches have learned position embeddings of both. Each image row is the mean of a square of
neighbouring patches (Gemma team 2026)."""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.models.common.blocks.attend import HeadCounts
from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.models.common.blocks.tower import Patches, mean_rows, turn_by_halves, with_given_places
from twostroke.models.common.encoders import EncoderText
from twostroke.models.common.fields.fields import activation, head_dim, with_silent
from twostroke.models.common.fields.nested import text_fields
from twostroke.models.common.fields.places import theta_of
from twostroke.models.common.sight import Between, LearnedPlaces, Sight
from twostroke.models.kit import CommonFacts, Fields, Tracer, Value, defaults
from twostroke.ops.attention.attention import attention
from twostroke.ops.attention.kv_write import kv_write
from twostroke.ops.attention.rope import rope
from twostroke.ops.products.linear import linear
from twostroke.ops.products.take_columns import take_columns
from twostroke.ops.program.values import ALL_AHEAD, ROW_NUMBERS, Cache, PagedKV, Rope, Tensor, Vector
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import add, clip_rows, scale, scale_columns, shift_columns
from twostroke.ops.rows.multiply import multiply
from twostroke.types.images import Patching, SpanLayers

THETA = 100.0
TOWER, PROJECTOR = "model.vision_tower.", "model.embed_vision."
PREFIXES = (("vision_tower.", TOWER), ("embed_vision.", PROJECTOR))


@dataclass(frozen=True, slots=True)
class Gemma4Tower:
    """The layers of the vision encoder. bounded: whether the inputs and outputs of products are clamped to limits that
    the checkpoint stores."""

    num_layers: int
    heads: HeadCounts
    inner: int
    activation: Activation
    norm: Norm
    turn: Rope
    bounded: bool

    def __call__(self, t: Tracer, x: Value) -> Value:
        """Returns the rows after the last layer. All layers use the same KV cache in turn: a tile is computed in one
        step, so a layer's K and V are not needed after the layer."""
        cache = t.cache(PagedKV(self.heads.num_kv_heads, self.heads.head_dim, ahead=ALL_AHEAD))
        for index in range(self.num_layers):
            with t.layer(f"encoder.layers.{index}."):
                seen = self._attend(t, self.norm(t, "input_layernorm", x), cache)
                x = add(x, self.norm(t, "post_attention_layernorm", seen, in_place=True))
                h = self.norm(t, "pre_feedforward_layernorm", x)
                up, gate = (self._product(t, f"mlp.{name}_proj", h, self.inner) for name in ("up", "gate"))
                made = self._product(t, "mlp.down_proj", multiply(up, gate, self.activation), x.width)
                x = add(x, self.norm(t, "post_feedforward_layernorm", made, in_place=True))
        return x

    def _attend(self, t: Tracer, h: Value, cache: Cache) -> Value:
        heads, counts = self.heads, (self.heads.num_heads, self.heads.num_kv_heads, self.heads.num_kv_heads)
        q, k, v = (
            self._product(t, f"self_attn.{name}_proj", h, count * heads.head_dim).heads(count)
            for name, count in zip("qkv", counts, strict=True)
        )
        q, k = (self._turned(t, f"self_attn.{name}_norm", x) for name, x in (("q", q), ("k", k)))
        v = Norm(self.norm.eps, NormKind.UNIT).of_heads(t, "", v)
        kv_write(cache, k, v, t.slots)
        return self._product(t, "self_attn.o_proj", attention(q, cache, 1.0).flat(), heads.hidden_size)

    def _turned(self, t: Tracer, name: str, x: Value) -> Value:
        """Returns the heads of q or k with norm and rotary positions. name: the norm's weight. The first half of a head
        is rotated by the patch's column, the second half by its line. The second and third quarter are exchanged first,
        because the op `rope` pairs elements that lie half a head apart."""
        (count, dim), quarter = x.shape, x.shape[1] // 4
        order = tuple(
            float(head * dim + part * quarter + column)
            for head in range(count)
            for part in (0, 2, 1, 3)
            for column in range(quarter)
        )
        normed = self.norm.of_heads(t, name, x).flat()
        return rope(take_columns(normed, t.constant("quarters", order)).heads(count), self.turn, ROW_NUMBERS)

    def _product(self, t: Tracer, name: str, x: Value, width: int) -> Value:
        x = clip_rows(x, _bounds(t, f"{name}.input")) if self.bounded else x.flat()
        made = linear(x, t.matrix(name.rpartition(".")[2].removesuffix("_proj"), {f"{name}.linear": width}, x.width))
        return clip_rows(made, _bounds(t, f"{name}.output")) if self.bounded else made


def _bounds(t: Tracer, name: str) -> Vector:
    return t.vector_of(tuple(Tensor(t.name(f"{name}_{end}"), ()) for end in ("min", "max")), 2)


def read(fields: Fields, width: int) -> tuple[Sight, CommonFacts, EncoderText]:
    """Reads config.json and returns the image encoder. A square of pooling_kernel_size x pooling_kernel_size patches
    becomes one image row. With use_bidirectional_attention, the rows of an image see each other in the layers with a
    window."""
    own = with_silent(fields.group("vision_config") or fields.only({}), defaults("gemma4_vision"))
    text = text_fields(fields)
    patch, merge = own.integer("patch_size", 1, 4096), own.integer("pooling_kernel_size", 1, 64)
    wide, count = own.integer("hidden_size", 4, 1 << 17), own.integer("num_attention_heads", 1, 4096)
    dim, kv = head_dim(own, wide, count), own.integer("num_key_value_heads", 1, 4096)
    if dim % 4 or count % kv:
        raise own.wrong("head_dim", "It must be a multiple of 4, and K/V heads must divide the query heads.")
    layers, places = own.integer("num_hidden_layers", 1, 4096), own.integer("position_embedding_size", 1, 1 << 20)
    turn = turn_by_halves(dim, theta_of(own, THETA), axes=(1, 0))
    sees = text.text("use_bidirectional_attention", "") == "vision"
    sight = Sight(
        family="gemma4",
        placeholder=fields.integer("image_token_id", 0, 1 << 24, default=258_880),
        patching=Patching(patch, merge),
        turn=turn,
        learned=LearnedPlaces(f"{TOWER}patch_embedder.position_embedding_table", places, Between.AXES),
        scaled=False,
        spans=SpanLayers.WINDOWED if sees else SpanLayers.NONE,
        colors_last=True,
        filler=text.integer("pad_token_id", 0, 1 << 24, default=0),
    )
    norm = Norm(own.number("rms_norm_eps", 1e-12, 0.1))
    heads, inner = HeadCounts(wide, count, kv, dim), own.integer("intermediate_size", 1, 1 << 20)
    act, bounded = activation(own, "hidden_activation", ""), own.boolean("use_clipped_linears", False)
    tower = Gemma4Tower(layers, heads, inner, act, norm, turn, bounded)
    patches = Patches(patch, wide, "patch_embedder.input_proj", bias=False, flat=True)
    standard = own.boolean("standardize", False)

    def program(t: Tracer) -> tuple[Value, ...]:
        with t.layer(TOWER):
            x = scale(mean_rows(tower(t, with_given_places(t, patches(t))), t.logit_rows, merge**2), wide**0.5)
            if standard:
                x = shift_columns(x, t.vector("std_bias", wide, suffix=""))
                x = scale_columns(x, t.vector("std_scale", wide, suffix=""))
        with t.layer(PROJECTOR):
            x = Norm(norm.eps, NormKind.UNIT)(t, "", x, in_place=True)
            return (linear(x, t.matrix("connector", {"embedding_projection": width}, wide)),)

    return sight, CommonFacts(1, wide, layers, 1, None, (), "float32", stored_prefixes=PREFIXES), program
