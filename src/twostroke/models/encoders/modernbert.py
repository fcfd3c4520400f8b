"""ModernBERT: rotary positions, norms before gated blocks, windows on two of three layers (Warner et al. 2024)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.attend import AttentionNames, Heads, attend, joined_in_order
from twostroke.models.common.blocks.encoder import SCORES, VECTORS, BlockText, Inputs
from twostroke.models.common.blocks.feed import Feed
from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.models.common.fields.fields import activation, head_dim, read_facts, with_silent
from twostroke.models.common.fields.read import pattern_windows
from twostroke.models.common.forms import num_labels
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture
from twostroke.ops.products.linear import linear
from twostroke.ops.program.values import ALL_AHEAD
from twostroke.ops.rows.expressions import activate, add
from twostroke.ops.rows.gather_rows import gather_rows
from twostroke.types.errors import UnsupportedModel
from twostroke.types.spec.rope import MAX_POSITIONS, ropes_by_layer_type

SILENT = {"local_attention": 128, "global_attn_every_n_layers": 3, "max_position_embeddings": 8192, "norm_eps": 1e-5}
THETAS = {"sliding_attention": ("local_rope_theta", 10_000.0), "full_attention": ("global_rope_theta", 160_000.0)}
UNUSED = ("head.", "decoder.")


@architecture("ModernBertModel", "ModernBertForMaskedLM", model_type="modernbert", form=VECTORS)
def modernbert(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads ModernBERT without a head: the program's result is the last layer's rows after the last norm."""
    return _read(fields, lambda _t, x: x)


@architecture("ModernBertForSequenceClassification", model_type="modernbert", form=SCORES)
def modernbert_classifier(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads ModernBERT's classifiers. The head multiplies a text's first row by a matrix, applies classifier_activation
    and a norm, and multiplies by the matrix of classes."""
    word = fields.text("classifier_pooling", "cls")
    if word != "cls":
        raise UnsupportedModel(
            f"config.json: classifier_pooling {word[:40]!r} is not implemented.",
            why="A text is scored by its first row, which is cls. Here no head stands after a mean of rows.",
            fix="Use a model of this family whose classifier_pooling is cls.",
        )
    labels, biased = num_labels(fields), fields.boolean("classifier_bias", False)
    last = activation(fields, "classifier_activation", "gelu")
    norm = _norm(with_silent(fields, SILENT))

    def head(t: Tracer, x: Value) -> Value:
        width = x.width
        made = activate(linear(x, t.matrix("classes", {"head.dense": width}, width, bias=biased)), last)
        made = norm(t, "head.norm", made, in_place=True)
        return linear(made, t.matrix("classes", {"classifier": labels}, width, bias=True))

    facts, text = _read(fields, head)
    return replace(facts, ignored=("decoder.",)), text


def _norm(fields: Fields) -> Norm:
    kind = NormKind.LAYER if fields.boolean("norm_bias", False) else NormKind.PLAIN_LAYER
    return Norm(fields.number("norm_eps", 1e-15, 0.1), kind)


def _read(fields: Fields, head: BlockText) -> tuple[CommonFacts, ProgramText]:
    """Reads ModernBERT. Every third layer sees everything. The others see `sliding_window` positions, or half of
    `local_attention`, in each direction. Layer 0 has no first norm. head: makes the result from the rows after the last
    norm."""
    fields = with_silent(fields, SILENT)
    facts = read_facts(fields, positions=8192, ignored=UNUSED, optional_prefix="model.")
    width, num_heads = facts.hidden_size, fields.integer("num_attention_heads", 1, 4096)
    norm = _norm(fields)
    local = fields.integer("local_attention", 2, MAX_POSITIONS) // 2
    half = fields.integer("sliding_window", 1, MAX_POSITIONS, default=local)  # transformers uses it when it is given
    every = fields.integer("global_attn_every_n_layers", 1, 4096)
    usual = tuple(half + 1 if index % every else 0 for index in range(facts.num_layers))
    windows = pattern_windows(fields, facts.num_layers, half + 1, 0) if fields.texts("layer_types") else usual
    dim = head_dim(fields, width, num_heads)
    ropes = ropes_by_layer_type(fields, dim, facts.max_positions, THETAS, "full_attention")
    biased = fields.boolean("attention_bias", False)
    heads = Heads(
        width,
        num_heads,
        num_heads,
        dim,
        qkv_bias=biased,
        output_bias=biased,
        names=AttentionNames(o="attn.Wo"),
        joined=joined_in_order("attn.Wqkv"),
    )
    feed = Feed(
        width,
        fields.integer("intermediate_size", 1, 1 << 20),
        activation(fields, "hidden_activation", "gelu"),
        bias=fields.boolean("mlp_bias", False),
        gate_up="mlp.Wi",
        down="mlp.Wo",
    )
    inputs = Inputs(facts.vocab_size, width, norm, words_name="embeddings.tok_embeddings", norm_name="embeddings.norm")

    def layer(t: Tracer, index: int, x: Value) -> Value:
        window = windows[index]
        own = replace(heads, ahead=window - 1 if window else ALL_AHEAD)
        turn = ropes["sliding_attention" if window else "full_attention"]
        h = norm(t, "attn_norm", x) if index else x
        x = add(x, attend(t, own, h, window=window, turn=turn))
        return add(x, feed(t, norm(t, "mlp_norm", x)))

    def text(t: Tracer) -> Value:
        with t.layer("model."):
            x = inputs(t)
            for index in range(facts.num_layers):
                with t.layer(f"layers.{index}."):
                    x = layer(t, index, x)
            x = norm(t, "final_norm", gather_rows(x, t.logit_rows), in_place=True)
        return head(t, x)

    return facts, text
