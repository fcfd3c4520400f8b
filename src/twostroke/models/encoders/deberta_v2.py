"""DeBERTa 2 and 3: BERT whose attention scores also have products of queries and of keys with vectors of the distance
between the two positions (He et al. 2021).

The distances' vectors go through the same matrices in every step, so these products are made once, when the model is
loaded.
"""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.models.common.blocks.attend import AttentionNames, Heads
from twostroke.models.common.blocks.encoder import SCORES, VECTORS, BlockText, Inputs, after_blocks, classified
from twostroke.models.common.blocks.feed import Feed
from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.models.common.blocks.placed import Beside, deberta_places, placed_attend
from twostroke.models.common.fields.fields import activation, head_dim, read_facts, refuse_setting
from twostroke.models.common.forms import num_labels
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture
from twostroke.ops.attention.place_scores import place_scores
from twostroke.ops.program.values import ALL_AHEAD, Tensor, Vector, VectorForm
from twostroke.ops.rows.expressions import activate
from twostroke.ops.rows.gather_rows import gather_rows
from twostroke.types.errors import UnsupportedModel
from twostroke.types.spec.rope import MAX_POSITIONS

PREFIX = "deberta."
STEM = "attention.self."
NAMES = AttentionNames(STEM + "query_proj", STEM + "key_proj", STEM + "value_proj", "attention.output.dense")
NORMS = ("attention.output.LayerNorm", "output.LayerNorm")
BY_ROW, BY_KEY = "c2p", "p2c"
"""The words of pos_att_type, which names the terms that are added to the scores. c2p: the query times the vector of the
distance to the key. p2c: the key times the vector of the distance to the query."""
UNUSED = ("cls.", "lm_predictions.", "mask_predictions.", "embeddings.position_ids", PREFIX + "embeddings.position_ids")
"""The beginnings of tensor names that are not read: the heads of the pretraining tasks, and stored position ids."""
PLACES = ("embeddings.position_embeddings.", PREFIX + "embeddings.position_embeddings.")
"""The names of a table of absolute positions. Only models with position_biased_input read it, but old files of other
models hold it too."""


@dataclass(frozen=True, slots=True)
class Distances:
    """The vectors of distances, and how they become terms of the attention scores. count: the number of distances.
    normed: the epsilon of the vectors' norm; None without a norm. shared: whether they go through the matrices of
    queries and keys, or through matrices of their own. kinds: the words of pos_att_type."""

    heads: Heads
    count: int
    normed: float | None
    shared: bool
    kinds: tuple[str, ...]
    table: Tensor
    norm: tuple[Tensor, ...]

    def __call__(self, t: Tracer, q: Value, k: Value) -> Beside:
        """Returns the products of queries and of keys with all distances' vectors, which attention adds to the
        scores."""
        keys, queries = ("key_proj", "query_proj") if self.shared else ("pos_key_proj", "pos_query_proj")
        row = place_scores(q, self._made(t, keys)) if BY_ROW in self.kinds else None
        key = place_scores(k, self._made(t, queries)) if BY_KEY in self.kinds else None
        return Beside(by_row=row, by_key=key)

    def _made(self, t: Tracer, name: str) -> Vector:
        """Returns the distances' vectors after the matrix `name`, as (heads, head_dim, distances)."""
        shape, full = self.heads, t.name(STEM + name)
        matrix = Tensor(f"{full}.weight", (shape.query, shape.hidden_size))
        parts = (self.table, *self.norm, matrix, Tensor(f"{full}.bias", (shape.query,)))
        numbers = () if self.normed is None else (self.normed,)
        return t.vector_of(parts, shape.query * self.count, form=VectorForm.PRODUCT, numbers=numbers)


@architecture("DebertaV2Model", "DebertaV2ForMaskedLM", model_type="deberta-v2", form=VECTORS)
def deberta(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads DeBERTa; the result is the last layer's rows, without a head."""
    return _read(fields, lambda t, x: gather_rows(x, t.logit_rows))


@architecture("DebertaV2ForSequenceClassification", model_type="deberta-v2", form=SCORES)
def deberta_classifier(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads DeBERTa's classifiers. The head is a product, an activation and a product; the activation is GELU unless
    pooler_hidden_act overrides this."""
    labels = num_labels(fields)
    act = activation(fields, "pooler_hidden_act", "gelu")
    width = fields.integer("hidden_size", 2, 1 << 17)
    if fields.integer("pooler_hidden_size", 1, 1 << 17, default=width) != width:
        raise fields.wrong("pooler_hidden_size", "It must be hidden_size.")
    return _read(
        fields, lambda t, x: classified(t, x, "pooler.dense", "classifier", labels, lambda row: activate(row, act))
    )


def _read(fields: Fields, head: BlockText) -> tuple[CommonFacts, ProgramText]:
    _refuse(fields)
    absolute = fields.boolean("position_biased_input", True)
    ignored = UNUSED if absolute else (*UNUSED, *PLACES)
    facts = read_facts(fields, positions=512, ignored=ignored, optional_prefix=PREFIX)
    width, num_heads = facts.hidden_size, fields.integer("num_attention_heads", 1, 4096)
    eps = fields.number("layer_norm_eps", 1e-15, 0.1, default=1e-7)
    norm, dim = Norm(eps, NormKind.LAYER), head_dim(fields, width, num_heads)
    kinds = _kinds(fields)
    scale = (dim * (1 + len(kinds))) ** -0.5
    heads = Heads(
        width, num_heads, num_heads, dim, scale, qkv_bias=True, output_bias=True, names=NAMES, ahead=ALL_AHEAD
    )
    inner, act = fields.integer("intermediate_size", 1, 1 << 20), activation(fields, "hidden_act", "gelu")
    feed = Feed(width, inner, act, bias=True, gate="", up="intermediate.dense", down="output.dense")
    longest = fields.integer("max_relative_positions", -1, MAX_POSITIONS, default=-1)
    longest = longest if longest > 0 else facts.max_positions
    buckets = max(0, fields.integer("position_buckets", -1, MAX_POSITIONS, default=-1))
    span = buckets or longest
    normed = eps if "layer_norm" in fields.text("norm_rel_ebd", "none").lower() else None
    shared = fields.boolean("share_att_key", False)
    positions = facts.max_positions if absolute else 0
    inputs = Inputs(facts.vocab_size, width, norm, positions, 0, fields.integer("type_vocab_size", 0, 64, default=0))
    places = deberta_places(buckets, longest)

    def text(t: Tracer) -> Value:
        with t.layer(PREFIX):
            x = inputs(t)
            table = Tensor(t.name("encoder.rel_embeddings.weight"), (2 * span, width))
            vectors = tuple(Tensor(t.name(f"encoder.LayerNorm.{part}"), (width,)) for part in ("weight", "bias"))
            beside = Distances(heads, 2 * span, normed, shared, kinds, table, () if normed is None else vectors)

            def seen(t: Tracer, x: Value) -> Value:
                return placed_attend(t, heads, x, places, beside)

            for index in range(facts.num_layers):
                with t.layer(f"encoder.layer.{index}."):
                    x = after_blocks(t, seen, feed, norm, x, NORMS)
        return head(t, x)

    return facts, text


def _kinds(fields: Fields) -> tuple[str, ...]:
    """Reads pos_att_type, which is a list, or words with | between them."""
    said = fields.value("pos_att_type")
    words = said.lower().split("|") if isinstance(said, str) else fields.texts("pos_att_type")
    kinds = tuple(dict.fromkeys(word.strip() for word in words))
    if not kinds or any(kind not in (BY_ROW, BY_KEY) for kind in kinds):
        raise UnsupportedModel(
            f"config.json: pos_att_type {str(said)[:40]!r} is not implemented.",
            why=f"Implemented: {BY_ROW}, {BY_KEY}, or both.",
            fix="Use a model with one of these.",
        )
    return kinds


def _refuse(fields: Fields) -> None:
    refuse_setting(fields, "conv_kernel_size", "A convolution after the first layer is not implemented.")
    if not fields.boolean("relative_attention", False):
        raise UnsupportedModel(
            "config.json: relative_attention is false.",
            why="Only models whose scores depend on distances are implemented; all published ones are such.",
            fix="Use a model with relative_attention.",
        )
    width = fields.integer("hidden_size", 2, 1 << 17)
    for name in ("embedding_size", "attention_head_size"):
        own = fields.optional_integer(name, 1, 1 << 17)
        usual = width if name == "embedding_size" else width // fields.integer("num_attention_heads", 1, 4096)
        if own is not None and own != usual:
            raise UnsupportedModel(f"config.json: {name} must be {usual}.", why="Other widths are not implemented.")
