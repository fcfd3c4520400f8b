"""The orders in which a layer's two blocks and their norms stand, under the names of tensors that most families use."""

from __future__ import annotations

from collections.abc import Sequence

from twostroke.models.common.blocks.attend import attend
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.families.dense import FeedForwardText
from twostroke.models.common.fields.read import Parts
from twostroke.models.common.registry import CommonFacts, ProgramText
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Value
from twostroke.ops.rows.add import add
from twostroke.ops.rows.scale import scale
from twostroke.types.spec.rope import RopeSpec

USUAL_NORMS = ("input_layernorm", "post_attention_layernorm")
ONE_NORM = ("input_layernorm",)


def pre_layer(
    t: Tracer,
    parts: Parts,
    x: Value,
    *,
    window: int = 0,
    turn: RopeSpec | None = None,
    factor: float = 1.0,
    norms: tuple[str, str] = USUAL_NORMS,
) -> Value:
    """A norm before each block (Llama). factor: what a block's output is multiplied by before it is added to the
    residual.
    """
    seen = attend(t, parts.heads, parts.norm(t, norms[0], x), window=window, turn=turn)
    x = add(x, scale(seen, factor))
    return add(x, scale(parts.feed(t, parts.norm(t, norms[1], x)), factor))


def pre_decoder(
    parts: Parts,
    turn: RopeSpec | None = None,
    *,
    windows: Sequence[int] = (),
    factor: float = 1.0,
    norms: tuple[str, str] = USUAL_NORMS,
) -> tuple[CommonFacts, ProgramText]:
    """Facts and program of a decoder whose layers are all `pre_layer`. windows: one for each layer; empty for none."""

    def layer(t: Tracer, index: int, x: Value) -> Value:
        window = windows[index] if windows else 0
        return pre_layer(t, parts, x, window=window, turn=turn, factor=factor, norms=norms)

    return parts.facts, decoder_program(parts.decoder, layer)


def sparse_layer(
    t: Tracer,
    parts: Parts,
    block: FeedForwardText | None,
    x: Value,
    *,
    window: int = 0,
    turn: RopeSpec | None = None,
    factor: float = 1.0,
) -> Value:
    """A pre_layer with `block` in place of the usual feed-forward block, unless it is None. block: scales itself."""
    seen = attend(t, parts.heads, parts.norm(t, USUAL_NORMS[0], x), window=window, turn=turn)
    x = add(x, scale(seen, factor))
    h = parts.norm(t, USUAL_NORMS[1], x)
    return block(t, x, h) if block else add(x, scale(parts.feed(t, h), factor))


def post_layer(t: Tracer, parts: Parts, x: Value, *, window: int = 0, turn: RopeSpec | None = None) -> Value:
    """A norm after each block (OLMo 2)."""
    seen = attend(t, parts.heads, x, window=window, turn=turn)
    x = add(x, parts.norm(t, "post_attention_layernorm", seen, in_place=True))
    return add(x, parts.norm(t, "post_feedforward_layernorm", parts.feed(t, x), in_place=True))


def normed_sums_layer(
    t: Tracer, parts: Parts, x: Value, *, turn: RopeSpec | None = None, norms: tuple[str, str] = USUAL_NORMS
) -> Value:
    """A norm of the residual after each block was added to it (the first Transformer, OPT 350M)."""
    x = parts.norm(t, norms[0], add(x, attend(t, parts.heads, x, turn=turn)))
    return parts.norm(t, norms[1], add(x, parts.feed(t, x)))


def parallel_layer(
    t: Tracer,
    parts: Parts,
    x: Value,
    *,
    window: int = 0,
    turn: RopeSpec | None = None,
    norms: tuple[str, ...] = ONE_NORM,
) -> Value:
    """A layer whose blocks both read the residual, by one norm (GPT-J, Cohere) or by one each (GPT-NeoX), and are
    added."""
    first = parts.norm(t, norms[0], x)
    last = first if len(norms) == 1 else parts.norm(t, norms[1], x)
    return add(add(x, attend(t, parts.heads, first, window=window, turn=turn)), parts.feed(t, last))
