"""RWKV-4: a decayed sum of values in place of attention, channel by channel (Peng et al. 2023)."""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.models.common.blocks.decoder import Decoder, decoder_program
from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.models.common.fields.fields import read_facts, with_silent
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.products.linear import linear
from twostroke.ops.program.values import Tensor, VectorForm
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import activate, add, scale
from twostroke.ops.rows.multiply import multiply
from twostroke.ops.states.token_shift import token_shift
from twostroke.ops.states.wkv4 import wkv4

TIME, CHANNEL = "attention", "feed_forward"
LAST_EPS = 1e-5
"""The eps of the norm after the last layer, whatever eps the config gives for the other norms."""


@dataclass(frozen=True, slots=True)
class Rwkv4Sizes:
    """The sizes of a layer. inner_size: the inner size of the feed-forward block (channel mixing)."""

    hidden_size: int
    inner_size: int


def rwkv_decoder(facts: CommonFacts, norm: Norm, tied: bool) -> Decoder:
    """Returns the embedding, the last norm and the head of RWKV-4 and RWKV-6, with the names of their tensors. norm:
    the kind and epsilon of the last norm."""
    return Decoder(
        *(facts.vocab_size, facts.hidden_size, facts.num_layers, norm, tied),
        embedding="rwkv.embeddings",
        layers="rwkv.blocks",
        last_norm="rwkv.ln_out",
        head="head",
    )


@architecture("RwkvForCausalLM", model_type="rwkv")
def rwkv4(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads RWKV-4. rescale_every: the residual is halved after each group of this many layers. So that later layers
    keep their weight, what they add is halved as often."""
    fields = with_silent(fields, defaults("rwkv"))
    tied = fields.boolean("tie_word_embeddings", False)
    facts = read_facts(fields, positions=1024, longest="context_length", ignored=("head.weight",) if tied else ())
    width = facts.hidden_size
    sizes = Rwkv4Sizes(
        width,
        fields.optional_integer("intermediate_size", 1, 1 << 20) or 4 * width,
    )
    if (fields.optional_integer("attention_hidden_size", 1, 1 << 20) or width) != width:
        raise fields.wrong(
            "attention_hidden_size", f"transformers keeps states of hidden_size, {width}, numbers alone."
        )
    norm = Norm(fields.number("layer_norm_epsilon", 1e-12, 0.1), NormKind.LAYER)
    every = max(0, fields.integer("rescale_every", -4096, 4096))
    decoder = rwkv_decoder(facts, Norm(LAST_EPS, NormKind.LAYER), tied)

    def layer(t: Tracer, index: int, x: Value) -> Value:
        share = 0.5 ** (index // every) if every else 1.0
        x = x if index else norm(t, "pre_ln", x, in_place=True)
        x = add(x, scale(_time_mix(t, sizes, norm(t, "ln1", x)), share))
        x = add(x, scale(_channel_mix(t, sizes, norm(t, "ln2", x)), share))
        return scale(x, 0.5) if every and (index + 1) % every == 0 else x

    return facts, decoder_program(decoder, layer)


def _mixed(t: Tracer, h: Value, block: str, ways: tuple[str, ...]) -> tuple[Value, ...]:
    """Returns, for each of `ways` (such as key, value), the rows h mixed with the rows of the token before. A tensor of
    this name holds the share of the row itself, channel by channel."""
    names = (f"{block}.time_mix_{way}" for way in ways)
    parts = tuple(Tensor(t.name(name), (1, 1, h.width)) for name in names)
    return token_shift(h, t.vector_of(parts, len(ways) * h.width, form=VectorForm.REST))


def _time_mix(t: Tracer, sizes: Rwkv4Sizes, h: Value) -> Value:
    width = sizes.hidden_size
    mixed = _mixed(t, h, TIME, ("key", "value", "receptance"))
    k, v, r = (
        linear(rows, t.matrix(way, {f"{TIME}.{name}": width}, width))
        for rows, way, name in zip(mixed, "kvr", ("key", "value", "receptance"), strict=True)
    )
    decay = t.vector_of((Tensor(t.name(f"{TIME}.time_decay"), (width,)),), width, form=VectorForm.NEGATED_EXP)
    found = wkv4(k, v, t.vector(f"{TIME}.time_first", width, suffix=""), decay)
    return linear(multiply(found, r, Activation.SIGMOID), t.matrix("o", {f"{TIME}.output": width}, width))


def _channel_mix(t: Tracer, sizes: Rwkv4Sizes, h: Value) -> Value:
    width, inner = sizes.hidden_size, sizes.inner_size
    k, r = _mixed(t, h, CHANNEL, ("key", "receptance"))
    middle = activate(linear(k, t.matrix("up", {f"{CHANNEL}.key": inner}, width)), Activation.RELU2)
    made = linear(middle, t.matrix("down", {f"{CHANNEL}.value": width}, inner))
    share = linear(r, t.matrix("r", {f"{CHANNEL}.receptance": width}, width))
    return multiply(made, share, Activation.SIGMOID)
