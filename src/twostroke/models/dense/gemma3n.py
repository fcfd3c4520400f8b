"""Gemma 3n: four streams of which one goes through each layer (AltUp), a learned residual (LAuReL), sparse activations,
shared K and V, per-layer embeddings (Gemma team 2025; Baykal et al. 2023).

Some checkpoints also take images and sounds: this file reads only their language model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import NormalDist

from twostroke.models.common.blocks.decoder import Decoder
from twostroke.models.common.blocks.norm import Norm
from twostroke.models.common.blocks.owned_attention import NormedHeads, attend_owned, owners
from twostroke.models.common.blocks.per_layer import PerLayer
from twostroke.models.common.fields.fields import rounded_to
from twostroke.models.common.fields.nested import language_model
from twostroke.models.common.fields.read import Parts, read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.products.embed import embed
from twostroke.ops.products.linear import Linear, linear
from twostroke.ops.products.take_columns import TakeColumns, take_columns
from twostroke.ops.program.values import Cache, Vector, join
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import add, scale, scale_columns, soft_cap
from twostroke.ops.rows.gate import gate
from twostroke.ops.rows.gather_rows import gather_rows
from twostroke.ops.rows.gaussian_cut import gaussian_cut
from twostroke.ops.rows.match_rms import match_rms
from twostroke.ops.rows.mix_streams import mix_streams
from twostroke.types.spec.rope import MAX_POSITIONS, ropes_by_layer_type

SLIDING, FULL = "sliding_attention", "full_attention"
THETAS = {SLIDING: ("rope_local_base_freq", 10_000.0), FULL: ("rope_theta", 1_000_000.0)}
SILENT = {**defaults("gemma3n_text"), "intermediate_size": 16_384}
LEAST_SQUARE = 1e-5
"""The least mean square of a stream: a smaller one counts as this number."""
SPARSE_LAYERS, SPARSITY = 10, 0.95
"""The defaults where the config has no activation_sparsity_pattern. In a model with more than SPARSE_LAYERS layers, the
first SPARSE_LAYERS layers have this sparsity. In smaller models no layer has it."""


@dataclass(frozen=True, slots=True)
class SparseFeed:
    """A gated feed-forward block in which only the largest gates of each row are not 0. cut: the threshold, in standard
    deviations above the mean of the row's gates; None for a block in which all gates count."""

    hidden_size: int
    inner_size: int
    activation: Activation
    cut: float | None

    def __call__(self, t: Tracer, h: Value) -> Value:
        """Returns the block's output for the normed rows h."""
        inner = self.inner_size
        both = linear(h, t.matrix("gate_up", {"mlp.gate_proj": inner, "mlp.up_proj": inner}, self.hidden_size))
        if self.cut is not None:
            gates, ups = both.split(inner, inner)
            both = join(gaussian_cut(gates, self.cut), ups)
        made = gate(both, self.activation)
        return linear(made, t.matrix("down", {"mlp.down_proj": self.hidden_size}, inner))


@dataclass(frozen=True, slots=True)
class AltUpStreams:
    """AltUp: `count` streams side by side in a row, of which the layer reads only stream `active`."""

    count: int
    active: int
    width: int
    norm: Norm
    corrected: bool

    def begin(self, t: Tracer, x: Value) -> Value:
        """Returns all streams of the embedded rows x: x itself, and products of x that are scaled to the same root mean
        square."""
        others = (self.count - 1) * self.width
        whole = x.fresh(self.count * self.width)
        first, rest = whole.split(self.width, others)
        t.record(TakeColumns(first, x, identity(t, self.width)))
        names = {f"model.altup_projections.{index}": self.width for index in range(self.count - 1)}
        t.record(Linear(rest, x, t.matrix("altup", names, self.width)))
        loud = [match_rms(each, x, LEAST_SQUARE) for each in rest.split(*(self.width for _ in range(self.count - 1)))]
        return join(first, *loud)

    def end(self, t: Tracer, x: Value) -> Value:
        """Returns one row made of all streams: the mean of the first stream and of a product of each other stream. Each
        product is first scaled to the root mean square of the first stream."""
        first, total = self.of(x, 0), None
        for index in range(1, self.count):
            name = {f"model.altup_unembed_projections.{index - 1}": self.width}
            made = match_rms(linear(self.of(x, index), t.matrix("altup", name, self.width)), first, LEAST_SQUARE)
            total = made if total is None else add(total, made)
        return scale(add(total, first) if total else first, 1.0 / self.count)

    def of(self, x: Value, index: int) -> Value:
        """Returns the AltUp stream number `index` of x."""
        return x.flat().columns(index * self.width, self.width)

    def predicted(self, t: Tracer, x: Value) -> Value:
        """Returns each stream plus a weighted sum of all streams."""
        names = {"altup.prediction_coefs": self.count**2}
        weights = linear(self._modalities(t, self.of(x, self.active)), t.matrix("router", names, self.count))
        streams = x.flat().heads(self.count)
        return mix_streams(streams, streams, weights).flat()

    def correct(self, t: Tracer, predicted: Value, made: Value) -> Value:
        """Returns each predicted stream plus a share of the change: the layer's output minus the predicted active
        stream."""
        names = {"altup.correction_coefs": self.count}
        weights = linear(self._modalities(t, made), t.matrix("router", names, self.count))
        was = take_columns(self.of(predicted, self.active), identity(t, self.width))
        change = add(scale(was, -1.0), made)
        return mix_streams(predicted.heads(self.count), change.heads(1), weights, shift=1.0).flat()

    def _modalities(self, t: Tracer, x: Value) -> Value:
        rows = scale(self.norm(t, "altup.router_norm", x), 1.0 / self.width)
        return soft_cap(linear(rows, t.matrix("router", {"altup.modality_router": self.count}, self.width)), 1.0)

    def corrected_active(self, t: Tracer, x: Value) -> Value:
        """Returns a copy of the active stream, times a number for each column where the config sets one."""
        rows = take_columns(self.of(x, self.active), identity(t, self.width))
        if not self.corrected:
            return rows
        return scale_columns(rows, t.vector("altup.correct_output_scale", self.width, suffix=""))


def identity(t: Tracer, width: int) -> Vector:
    """The order of columns that copies a row unchanged."""
    return t.constant("order", tuple(float(column) for column in range(width)))


@dataclass(frozen=True, slots=True)
class StreamLayer:
    """One layer over all AltUp streams. owner: the layer whose K and V this layer reads, None for its own. rank: the
    rank of the learned residual (LAuReL)."""

    heads: NormedHeads
    owner: int | None
    feed: SparseFeed
    norm: Norm
    streams: AltUpStreams
    per_layer: PerLayer
    rank: int

    def __call__(self, t: Tracer, x: Value, p: Value, owner: Cache | None) -> tuple[Value, Cache]:
        """Returns all AltUp streams after the layer, and the cache that the layer read. x: the streams before the
        layer. p: the layer's per-layer embeddings of the tokens. owner: the cache of an earlier layer, or None."""
        streams, norm = self.streams, self.norm
        predicted = streams.predicted(t, x)
        h = norm(t, "input_layernorm", streams.of(predicted, streams.active))
        seen, cache = attend_owned(t, self.heads, h, owner)
        y = add(norm(t, "post_attention_layernorm", seen, in_place=True), streams.of(predicted, streams.active))
        y = scale(add(add(y, self._learned(t, h)), h), 2.0**-0.5)
        made = self.feed(t, norm(t, "pre_feedforward_layernorm", y))
        y = add(y, norm(t, "post_feedforward_layernorm", made, in_place=True))
        x = streams.correct(t, predicted, y)
        own = self.per_layer(t, streams.corrected_active(t, x), p)
        others = [add(streams.of(x, index), own) for index in range(1, streams.count)]
        return join(streams.of(x, 0), *others), cache

    def _learned(self, t: Tracer, h: Value) -> Value:
        small = linear(h, t.matrix("laurel", {"laurel.linear_left": self.rank}, h.width))
        made = linear(small, t.matrix("laurel", {"laurel.linear_right": h.width}, self.rank))
        return self.norm(t, "laurel.post_laurel_norm", made, in_place=True)


@architecture("Gemma3nForCausalLM", model_type="gemma3n_text")
def gemma3n(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Gemma 3n. The last num_kv_shared_layers layers have no K and V of their own. Each reads those of the last
    layer of its type that has its own."""
    own = fields.value("intermediate_size")
    sizes = fields.integers("intermediate_size") if isinstance(own, list) else ()
    usual = {**fields.values, "intermediate_size": max(sizes)} if sizes else fields.values
    parts = read_parts(fields.only(usual), SILENT, act=("hidden_activation", "gelu_pytorch_tanh"))
    facts, norm = parts.facts, parts.norm
    layers = _layers(parts, sizes or (parts.feed.inner_size,) * facts.num_layers)
    decoder = replace(
        parts.decoder,
        embedding_scale=rounded_to(facts.dtype, facts.hidden_size**0.5),
        soft_cap=parts.fields.optional_number("final_logit_softcapping", 1e-3, 1e6) or 0.0,
    )
    streams, per_layer = layers[0].streams, layers[0].per_layer

    def text(t: Tracer) -> Value:
        table = t.matrix("embedding", {decoder.embedding: facts.vocab_size}, facts.hidden_size)
        embedded = scale(embed(table, t.token_ids, t), decoder.embedding_scale)
        inputs = per_layer.inputs(t, embedded)
        x = streams.begin(t, embedded)
        caches: list[Cache] = []
        for index, layer in enumerate(layers):
            with t.layer(f"{decoder.layers}.{index}."):
                owner = None if layer.owner is None else caches[layer.owner]
                x, cache = layer(t, x, inputs[index], owner)
                caches.append(cache)
        rows = streams.end(t, gather_rows(x.flat(), t.logit_rows))
        return _logits(t, decoder, norm(t, decoder.last_norm, rows, in_place=True))

    unread = tuple(
        f"{decoder.layers}.{index}.self_attn.{name}."
        for index, layer in enumerate(layers)
        if layer.owner is not None
        for name in ("k_proj", "v_proj", "k_norm", "v_norm")
    )
    if not streams.corrected:
        unread += tuple(f"{decoder.layers}.{index}.altup.correct_output_scale" for index in range(len(layers)))
    return replace(facts, ignored=(*facts.ignored, *unread)), text


@architecture("Gemma3nForConditionalGeneration", model_type="gemma3n")
def gemma3n_with_images(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads only the language model of a checkpoint that also has encoders for images and sounds."""
    return language_model(fields, "Gemma3nForCausalLM")


def _logits(t: Tracer, decoder: Decoder, rows: Value) -> Value:
    name = decoder.embedding if decoder.tied else decoder.head
    logits = linear(rows, t.matrix("embedding" if decoder.tied else "head", {name: decoder.vocab_size}, rows.width))
    return soft_cap(logits, decoder.soft_cap)


def _layers(parts: Parts, sizes: tuple[int, ...]) -> tuple[StreamLayer, ...]:
    fields, facts, heads = parts.fields, parts.facts, parts.heads
    count, width = facts.num_layers, facts.hidden_size
    types = fields.texts("layer_types") or tuple(SLIDING if (index + 1) % 5 else FULL for index in range(count))
    if len(types) != count or any(kind not in (SLIDING, FULL) for kind in types):
        raise fields.wrong("layer_types", f"It must say {FULL} or {SLIDING} {count} times.")
    if len(sizes) != count:
        raise fields.wrong("intermediate_size", f"It must be one number, or {count} of them.")
    try:
        owner = owners(types, fields.integer("num_kv_shared_layers", 0, count - 1))
    except ValueError as error:
        raise fields.wrong("num_kv_shared_layers", f"{error}.") from error
    ropes = ropes_by_layer_type(fields, heads.head_dim, facts.max_positions, THETAS, FULL)
    window = fields.integer("sliding_window", 1, MAX_POSITIONS)
    biased = fields.boolean("attention_bias", False)
    shape = (width, heads.num_heads, heads.num_kv_heads, heads.head_dim, parts.norm.eps)
    streams, per_layer = _streams(parts), _per_layer(parts)
    rank = fields.integer("laurel_rank", 1, 1 << 16)
    cuts = _cuts(fields, count)
    return tuple(
        StreamLayer(
            NormedHeads(*shape, ropes[types[index]], window if types[index] == SLIDING else 0, biased),
            owner[index],
            SparseFeed(width, sizes[index], parts.feed.activation, cuts[index]),
            parts.norm,
            streams,
            per_layer,
            rank,
        )
        for index in range(count)
    )


def _streams(parts: Parts) -> AltUpStreams:
    fields = parts.fields
    count = fields.integer("altup_num_inputs", 2, 16)
    active = fields.integer("altup_active_idx", 0, count - 1)
    corrected = fields.boolean("altup_correct_scale", True)
    return AltUpStreams(count, active, parts.facts.hidden_size, parts.norm, corrected)


def _per_layer(parts: Parts) -> PerLayer:
    fields, facts = parts.fields, parts.facts
    width = fields.integer("hidden_size_per_layer_input", 1, 1 << 16)
    rows = fields.integer("vocab_size_per_layer_input", 1, 1 << 24)
    sizes = (facts.vocab_size, rows, facts.hidden_size, facts.num_layers, width)
    return PerLayer(*sizes, rounded_to(facts.dtype, width**0.5), parts.norm, parts.feed.activation)


def _cuts(fields: Fields, count: int) -> tuple[float | None, ...]:
    """Returns how many standard deviations above its mean an element of each layer's gate must lie; None for a dense
    layer."""
    if fields.value("activation_sparsity_pattern") is None:
        sparse = SPARSE_LAYERS if count > SPARSE_LAYERS else 0
        shares = (SPARSITY,) * sparse + (0.0,) * (count - sparse)
    else:
        shares = fields.numbers("activation_sparsity_pattern", count, 0.0, 0.999999)
    return tuple(NormalDist().inv_cdf(share) if share else None for share in shares)
