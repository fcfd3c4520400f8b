"""The parts of a decoder around its layers: the embedding, the last norm, the head."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twostroke.models.common.blocks.norm import Norm
from twostroke.models.common.registry import CommonFacts, ProgramText
from twostroke.ops.products.embed import embed
from twostroke.ops.products.linear import linear
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Value
from twostroke.ops.rows.expressions import scale, soft_cap
from twostroke.ops.rows.gather_rows import gather_rows

LayerText = Callable[[Tracer, int, Value], Value]
"""layer(trace, index, residual) returns the residual after the layer."""


@dataclass(frozen=True, slots=True)
class Decoder:
    """The shape of a decoder around its layers. norm: the last norm. tied: the head is the embedding. embedding_scale,
    logit_scale: factors, 1 for none.

    soft_cap: the soft cap of the logits, 0 for none. after_embedding: a function that changes the embedded rows before
    the first layer. The names of tensors have no ".weight"; last_norm is empty where there is no last norm.
    embedding_size: the width of the embedding's rows, 0 for hidden_size. before_head: a function that changes the rows
    before the head.
    """

    vocab_size: int
    hidden_size: int
    num_layers: int
    norm: Norm
    tied: bool
    embedding_scale: float = 1.0
    logit_scale: float = 1.0
    soft_cap: float = 0.0
    head_bias: bool = False
    embedding: str = "model.embed_tokens"
    layers: str = "model.layers"
    last_norm: str = "model.norm"
    head: str = "lm_head"
    after_embedding: Callable[[Tracer, Value], Value] | None = None
    embedding_size: int = 0
    before_head: Callable[[Tracer, Value], Value] | None = None


def decoder_of(facts: CommonFacts, norm: Norm, tied: bool) -> Decoder:
    """Returns the parts around the layers (embedding, last norm, head) with the tensor names that most families
    have."""
    return Decoder(facts.vocab_size, facts.hidden_size, facts.num_layers, norm, tied)


def decoder_program(shape: Decoder, layer: LayerText) -> ProgramText:
    """Returns the program that calls `layer` for each layer, with the layer's prefix before the names of its tensors.
    """

    def text(t: Tracer) -> Value:
        table = t.matrix("embedding", {shape.embedding: shape.vocab_size}, shape.embedding_size or shape.hidden_size)
        x = scale(embed(table, t.token_ids, t), shape.embedding_scale)
        x = shape.after_embedding(t, x) if shape.after_embedding else x
        for index in range(shape.num_layers):
            with t.layer(f"{shape.layers}.{index}."):
                x = layer(t, index, x)
        return head(t, shape, x)

    return text


def head(t: Tracer, shape: Decoder, x: Value) -> Value:
    """Returns the logits of the rows that need them."""
    return logits_of(t, shape, gather_rows(x, t.logit_rows))


def logits_of(t: Tracer, shape: Decoder, rows: Value) -> Value:
    """Returns the logits of `rows`, which are normed in place and must not be read afterwards."""
    return logits_of_normed(t, shape, shape.norm(t, shape.last_norm, rows, in_place=True) if shape.last_norm else rows)


def logits_of_normed(t: Tracer, shape: Decoder, rows: Value) -> Value:
    """Returns the logits of `rows`, which have been normed."""
    rows = shape.before_head(t, rows) if shape.before_head else rows
    name, role = (shape.embedding, "embedding") if shape.tied else (shape.head, "head")
    logits = linear(rows, t.matrix(role, {name: shape.vocab_size}, rows.width, bias=shape.head_bias))
    return soft_cap(scale(logits, shape.logit_scale), shape.soft_cap)
