"""DistilBERT: BERT of half as many layers, without token types (Sanh et al. 2019)."""

from __future__ import annotations

from twostroke.models.common.blocks.attend import AttentionNames, Heads
from twostroke.models.common.blocks.encoder import SCORES, VECTORS, BlockText, Inputs, after_layer, classified
from twostroke.models.common.blocks.feed import Feed
from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.models.common.fields.fields import activation, head_dim, read_facts, usual_names
from twostroke.models.common.forms import num_labels
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture
from twostroke.ops.program.values import ALL_AHEAD
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import activate
from twostroke.ops.rows.gather_rows import gather_rows

OWN_NAMES = {
    **{"dim": "hidden_size", "n_layers": "num_hidden_layers", "n_heads": "num_attention_heads"},
    "hidden_dim": "intermediate_size",
}
"""The fields of this family's config.json, each with the name that other families give it."""
NORM = Norm(1e-12, NormKind.LAYER)
PREFIX = "distilbert."
NAMES = AttentionNames("attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin")
NORMS = ("sa_layer_norm", "output_layer_norm")
UNUSED = ("vocab_transform.", "vocab_layer_norm.", "vocab_projector.", PREFIX + "embeddings.position_ids")


@architecture("DistilBertModel", "DistilBertForMaskedLM", model_type="distilbert", form=VECTORS)
def distilbert(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads DistilBERT without a head: the program's result is the last layer's rows."""
    return _read(fields, lambda t, x: gather_rows(x, t.logit_rows))


@architecture("DistilBertForSequenceClassification", model_type="distilbert", form=SCORES)
def distilbert_classifier(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads DistilBERT's classifiers, whose head has two linear layers with ReLU between them."""
    labels = num_labels(fields)

    def relu(x: Value) -> Value:
        return activate(x, Activation.RELU)

    return _read(fields, lambda t, x: classified(t, x, "pre_classifier", "classifier", labels, relu))


def _read(fields: Fields, head: BlockText) -> tuple[CommonFacts, ProgramText]:
    """Reads DistilBERT; `head` makes the result from the last layer's rows. sinusoidal_pos_embds is ignored, because
    checkpoints hold the table of position embeddings in any case."""
    fields.boolean("sinusoidal_pos_embds", False)
    fields = usual_names(fields, OWN_NAMES)
    facts = read_facts(fields, positions=512, ignored=UNUSED, optional_prefix=PREFIX)
    width, num_heads = facts.hidden_size, fields.integer("num_attention_heads", 1, 4096)
    dim = head_dim(fields, width, num_heads)
    heads = Heads(width, num_heads, num_heads, dim, qkv_bias=True, output_bias=True, names=NAMES, ahead=ALL_AHEAD)
    inner, act = fields.integer("intermediate_size", 1, 1 << 20), activation(fields, "activation", "gelu")
    feed = Feed(width, inner, act, bias=True, gate="", up="ffn.lin1", down="ffn.lin2")
    inputs = Inputs(facts.vocab_size, width, NORM, facts.max_positions)

    def text(t: Tracer) -> Value:
        with t.layer(PREFIX):
            x = inputs(t)
            for index in range(facts.num_layers):
                with t.layer(f"transformer.layer.{index}."):
                    x = after_layer(t, heads, feed, NORM, x, NORMS)
        return head(t, x)

    return facts, text
