"""Parts that encoders share: embeddings of tokens, places and token types, layers with norms after their blocks, heads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from twostroke.models.common.blocks.attend import AttentionNames, Heads, attend, joined_in_order
from twostroke.models.common.blocks.norm import Norm
from twostroke.models.common.forms import Form, unchanged
from twostroke.ops.products.embed import embed
from twostroke.ops.products.linear import linear
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import ALL_AHEAD, Tensor, Value
from twostroke.ops.rows.expressions import add, soft_cap
from twostroke.ops.rows.gather_rows import gather_rows
from twostroke.types.pooling import Task
from twostroke.types.spec.rope import RopeSpec

BlockText = Callable[[Tracer, Value], Value]
"""block(trace, rows) returns the output of a feed-forward block, before it is added to the residual."""

VECTORS = Form(Task.EMBED, unchanged)
SCORES = Form(Task.RERANK, unchanged)


ValueText = Callable[[Value], Value]


def tanh(x: Value) -> Value:
    """The hyperbolic tangent of each element."""
    return soft_cap(x, 1.0)  # 1 * tanh(x / 1)


@dataclass(frozen=True, slots=True)
class Inputs:
    """The embedding tables of which one row each is added up for a token, and the norm of the sum. The names of tensors
    have no ".weight".

    places: rows of the table of positions, 0 for none (rotations say where a token is). first_place: the row of
    position 0. types: rows of the table of token types, 0 for none.
    """

    vocab_size: int
    hidden_size: int
    norm: Norm
    places: int = 0
    first_place: int = 0
    types: int = 0
    words_name: str = "embeddings.word_embeddings"
    places_name: str = "embeddings.position_embeddings"
    types_name: str = "embeddings.token_type_embeddings"
    norm_name: str = "embeddings.LayerNorm"

    def __call__(self, t: Tracer) -> Value:
        """Returns the rows that the first layer takes."""
        width = self.hidden_size
        x = embed(t.matrix("embedding", {self.words_name: self.vocab_size}, width), t.token_ids, t)
        if self.places:
            rows = (self.first_place, self.places)
            part = Tensor(t.name(f"{self.places_name}.weight"), (self.places, width), rows=rows)
            x = add(x, embed(t.weight("positions", self.places - self.first_place, width, (part,)), t.positions, t))
        if self.types:
            x = add(x, embed(t.matrix("positions", {self.types_name: self.types}, width), t.token_types, t))
        return self.norm(t, self.norm_name, x, in_place=True)


def after_layer(
    t: Tracer, heads: Heads, feed: BlockText, norm: Norm, x: Value, names: tuple[str, str], turn: RopeSpec | None = None
) -> Value:
    """Applies a post-norm encoder layer: attention, then the feed-forward block `feed`, with a norm after each sum.
    names: the names of the two norms. turn: the rotation of q and k; None for none."""
    return after_blocks(t, lambda t, x: attend(t, heads, x, turn=turn), feed, norm, x, names)


def after_blocks(t: Tracer, first: BlockText, second: BlockText, norm: Norm, x: Value, names: tuple[str, str]) -> Value:
    """Applies a layer whose norms follow the sums (post-norm). The first norm reads the sum of the residual and the
    first block's output. The second norm reads the sum of the first norm's result and the second block's output."""
    x = norm(t, names[0], add(x, first(t, x)), in_place=True)
    return norm(t, names[1], add(x, second(t, x)), in_place=True)


@dataclass(frozen=True, slots=True)
class AfterLayers:
    """Post-norm encoder layers: each has attention and a feed-forward block, with a norm after each sum. blocks: the
    feed-forward block of each layer. stem: the part of names before a layer's number. names: the names of a layer's two
    norms."""

    stem: str
    heads: Heads
    blocks: Sequence[BlockText]
    norm: Norm
    names: tuple[str, str]
    turn: RopeSpec | None = None

    def __call__(self, t: Tracer, x: Value) -> Value:
        """Returns the rows after the last layer."""
        for index, block in enumerate(self.blocks):
            with t.layer(f"{self.stem}{index}."):
                x = after_layer(t, self.heads, block, self.norm, x, self.names, self.turn)
        return x


def joined_heads(width: int, num_heads: int, head_dim: int, joined: str, out: str, biased: bool) -> Heads:
    """Returns heads that each see the whole text. joined: the tensor of q, k and v in this order. out: the tensor of
    the product after them."""
    return Heads(
        width,
        num_heads,
        num_heads,
        head_dim,
        qkv_bias=biased,
        output_bias=biased,
        names=AttentionNames(o=out),
        joined=joined_in_order(joined),
        ahead=ALL_AHEAD,
    )


def classified(t: Tracer, x: Value, dense: str, out: str, labels: int, between: ValueText = tanh) -> Value:
    """Returns the scores of a text from its first row: two products with biases, and the activation `between` them."""
    width = x.width
    middle = linear(gather_rows(x, t.logit_rows), t.matrix("classes", {dense: width}, width, bias=True))
    return linear(between(middle), t.matrix("classes", {out: labels}, width, bias=True))
