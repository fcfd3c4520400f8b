"""ALBERT: BERT whose layers share their tensors, with embeddings narrower than the layers (Lan et al. 2019)."""

from __future__ import annotations

from twostroke.models.common.blocks.attend import AttentionNames, Heads
from twostroke.models.common.blocks.encoder import SCORES, VECTORS, BlockText, Inputs, after_layer, classified
from twostroke.models.common.blocks.feed import Feed
from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.models.common.fields.fields import activation, head_dim, read_facts
from twostroke.models.common.forms import num_labels
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture
from twostroke.ops.products.linear import linear
from twostroke.ops.program.values import ALL_AHEAD
from twostroke.ops.rows.gather_rows import gather_rows

PREFIX = "albert."
NAMES = AttentionNames("attention.query", "attention.key", "attention.value", "attention.dense")
NORMS = ("attention.LayerNorm", "full_layer_layer_norm")
HEADS = ("predictions.", "sop_classifier.", "embeddings.position_ids", PREFIX + "embeddings.position_ids")
POOLER = ("pooler.", PREFIX + "pooler.")
"""The beginnings of tensor names that are not read. HEADS: the heads of the pretraining tasks, and the position ids
that old files store. POOLER: the pooler, which only classifiers use."""


@architecture("AlbertModel", "AlbertForMaskedLM", "AlbertForPreTraining", model_type="albert", form=VECTORS)
def albert(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads ALBERT; the result is the last layer's rows, without a head."""
    return _read(fields, lambda t, x: gather_rows(x, t.logit_rows), (*HEADS, *POOLER))


@architecture("AlbertForSequenceClassification", model_type="albert", form=SCORES)
def albert_classifier(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads ALBERT's classifiers: the head is the pooler with a classifier after it."""
    labels = num_labels(fields)
    return _read(fields, lambda t, x: classified(t, x, PREFIX + "pooler", "classifier", labels), HEADS)


def _read(fields: Fields, head: BlockText, ignored: tuple[str, ...]) -> tuple[CommonFacts, ProgramText]:
    """Reads num_hidden_groups sets of tensors, each of which serves neighbouring layers. A set has inner_group_num
    blocks, and each of the num_hidden_layers layers applies them in order."""
    facts = read_facts(fields, positions=512, ignored=ignored, optional_prefix=PREFIX)
    width, num_heads = facts.hidden_size, fields.integer("num_attention_heads", 1, 4096)
    own = fields.integer("embedding_size", 2, 1 << 17, default=128)
    groups = fields.integer("num_hidden_groups", 1, facts.num_layers, default=1)
    inside = fields.integer("inner_group_num", 1, 64, default=1)
    norm = Norm(fields.number("layer_norm_eps", 1e-15, 0.1, default=1e-12), NormKind.LAYER)
    dim = head_dim(fields, width, num_heads)
    heads = Heads(width, num_heads, num_heads, dim, qkv_bias=True, output_bias=True, names=NAMES, ahead=ALL_AHEAD)
    inner, act = fields.integer("intermediate_size", 1, 1 << 20), activation(fields, "hidden_act", "gelu_new")
    feed = Feed(width, inner, act, bias=True, gate="", up="ffn", down="ffn_output")
    types = fields.integer("type_vocab_size", 0, 64, default=2)
    inputs = Inputs(facts.vocab_size, own, norm, facts.max_positions, 0, types)

    def text(t: Tracer) -> Value:
        with t.layer(PREFIX):
            x = linear(inputs(t), t.matrix("up", {"encoder.embedding_hidden_mapping_in": width}, own, bias=True))
            for index in range(facts.num_layers):
                group = index * groups // facts.num_layers
                for place in range(inside):
                    with t.layer(f"encoder.albert_layer_groups.{group}.albert_layers.{place}."):
                        x = after_layer(t, heads, feed, norm, x, NORMS)
        return head(t, x)

    return facts, text
