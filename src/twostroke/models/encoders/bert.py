"""BERT and RoBERTa: learned position embeddings, norms after the blocks, biases everywhere (Devlin et al. 2018; Liu et
al. 2019).

XLM-RoBERTa and CamemBERT are RoBERTa with other vocabularies (Conneau et al. 2019; Martin et al. 2019). ELECTRA is BERT
whose embeddings may be narrower than its layers (Clark et al. 2020).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from twostroke.models.common.blocks.attend import AttentionNames, Heads
from twostroke.models.common.blocks.encoder import SCORES, VECTORS, Inputs, after_layer, classified
from twostroke.models.common.blocks.feed import Feed
from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.models.common.fields.fields import activation, head_dim, read_facts, refuse_setting
from twostroke.models.common.forms import num_labels
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture
from twostroke.ops.products.linear import linear
from twostroke.ops.program.values import ALL_AHEAD
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import activate
from twostroke.ops.rows.gather_rows import gather_rows
from twostroke.types.errors import UnsupportedModel

NAMES = AttentionNames("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense")
NORMS = ("attention.output.LayerNorm", "output.LayerNorm")
UNUSED = (
    *("pooler.", "cls.", "lm_head.", "embeddings.position_ids"),
    *("generator_predictions.", "generator_lm_head.", "discriminator_predictions."),
)
"""The beginnings of tensor names that are not read: the pooler, the heads of the pretraining tasks, and the position
ids that old files store."""

HeadText = Callable[[Tracer, Value], Value]
InputText = Callable[[Tracer], Value]
"""A function that records a model's embeddings and returns the rows that the first layer takes."""


@dataclass(frozen=True, slots=True)
class Encoder:
    """What was read from a config. prefix: the beginning of the names of all tensors except a head's."""

    prefix: str
    facts: CommonFacts
    inputs: InputText
    heads: Heads
    feed: Feed
    norm: Norm

    def program(self, head: HeadText) -> tuple[CommonFacts, ProgramText]:
        """Returns the facts and the program. head: the function that makes the result from the last layer's rows."""

        def text(t: Tracer) -> Value:
            with t.layer(self.prefix):
                x = self.inputs(t)
                for index in range(self.facts.num_layers):
                    with t.layer(f"encoder.layer.{index}."):
                        x = after_layer(t, self.heads, self.feed, self.norm, x, NORMS)
            return head(t, x)

        return self.facts, text


def rows(t: Tracer, x: Value) -> Value:
    """Returns the last layer's rows as they are: a head without products."""
    return gather_rows(x, t.logit_rows)


@architecture("BertModel", "BertForMaskedLM", model_type="bert", form=VECTORS)
def bert(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads BERT without its pooler: sentence-transformers pools the last layer's rows."""
    return _read(fields, "bert.").program(rows)


@architecture("BertForSequenceClassification", model_type="bert", form=SCORES)
def bert_classifier(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads BERT's classifiers: the head is the pooler with a classifier after it."""
    labels = num_labels(fields)
    read = _read(fields, "bert.")
    # The classifier uses the pooler, so its tensors must be present. transformers writes the prefix in every such
    # checkpoint.
    facts = replace(read.facts, ignored=tuple(name for name in read.facts.ignored if "pooler" not in name))
    return replace(read, facts=facts).program(lambda t, x: classified(t, x, "bert.pooler.dense", "classifier", labels))


@architecture("CamembertModel", "CamembertForMaskedLM", model_type="camembert", form=VECTORS)
@architecture("XLMRobertaModel", "XLMRobertaForMaskedLM", model_type="xlm-roberta", form=VECTORS)
@architecture("RobertaModel", "RobertaForMaskedLM", model_type="roberta", form=VECTORS)
def roberta(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads RoBERTa, whose first position has the embedding with the number pad_token_id + 1. XLM-RoBERTa and CamemBERT
    are the same program."""
    return _read(fields, "roberta.", padded=True).program(rows)


@architecture("CamembertForSequenceClassification", model_type="camembert", form=SCORES)
@architecture("XLMRobertaForSequenceClassification", model_type="xlm-roberta", form=SCORES)
@architecture("RobertaForSequenceClassification", model_type="roberta", form=SCORES)
def roberta_classifier(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads the classifiers of RoBERTa, XLM-RoBERTa and CamemBERT, whose head has two linear layers."""
    labels = num_labels(fields)
    names = ("classifier.dense", "classifier.out_proj")
    return _read(fields, "roberta.", padded=True).program(lambda t, x: classified(t, x, *names, labels))

@architecture("ElectraModel", "ElectraForMaskedLM", "ElectraForPreTraining", model_type="electra", form=VECTORS)
def electra(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads ELECTRA's generators and discriminators, which are computed in the same way."""
    return _electra(fields).program(rows)


@architecture("ElectraForSequenceClassification", model_type="electra", form=SCORES)
def electra_classifier(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads ELECTRA's classifiers: the head has two products, with GELU between them whatever hidden_act is."""
    labels = num_labels(fields)
    names = ("classifier.dense", "classifier.out_proj")
    return _electra(fields).program(lambda t, x: classified(t, x, *names, labels, gelu))


def gelu(x: Value) -> Value:
    """Returns GELU of each element."""
    return activate(x, Activation.GELU)


def _electra(fields: Fields) -> Encoder:
    read = _read(fields, "electra.")
    width, own = read.facts.hidden_size, fields.integer("embedding_size", 2, 1 << 17, default=128)
    types = fields.integer("type_vocab_size", 0, 64, default=2)
    inputs = Inputs(read.facts.vocab_size, own, read.norm, read.facts.max_positions, 0, types)

    def widened(t: Tracer) -> Value:
        x = inputs(t)
        return x if own == width else linear(x, t.matrix("up", {"embeddings_project": width}, own, bias=True))

    return replace(read, inputs=widened)


def _read(fields: Fields, prefix: str, *, padded: bool = False) -> Encoder:
    """Reads an encoder. padded: whether the first position's embedding has the number pad_token_id + 1 instead of 0."""
    refuse_setting(fields, "is_decoder", "Positions would not see later ones, and other results would be expected.")
    refuse_setting(fields, "add_cross_attention", "The layers would also see another encoder's output.")
    _absolute_only(fields)
    ignored = (*UNUSED, *(prefix + name for name in UNUSED))
    facts = read_facts(fields, positions=512, ignored=ignored, optional_prefix=prefix)
    first = fields.integer("pad_token_id", 0, 1 << 20, default=1) + 1 if padded else 0
    places = facts.max_positions
    if places <= first:
        raise fields.wrong("max_position_embeddings", f"The first {first} places are for padding, and none is left.")
    width, num_heads = facts.hidden_size, fields.integer("num_attention_heads", 1, 4096)
    norm = Norm(fields.number("layer_norm_eps", 1e-15, 0.1, default=1e-12), NormKind.LAYER)
    dim = head_dim(fields, width, num_heads)
    inner = fields.integer("intermediate_size", 1, 1 << 20)
    return Encoder(
        prefix,
        replace(facts, max_positions=places - first),
        Inputs(facts.vocab_size, width, norm, places, first, fields.integer("type_vocab_size", 0, 64, default=2)),
        Heads(width, num_heads, num_heads, dim, qkv_bias=True, output_bias=True, names=NAMES, ahead=ALL_AHEAD),
        Feed(
            width,
            inner,
            activation(fields, "hidden_act", "gelu"),
            bias=True,
            gate="",
            up="intermediate.dense",
            down="output.dense",
        ),
        norm,
    )


def _absolute_only(fields: Fields) -> None:
    word = fields.text("position_embedding_type", "absolute")
    if word != "absolute":
        raise UnsupportedModel(
            f"config.json: position_embedding_type {word[:40]!r} is not implemented.",
            why="Implemented: absolute.",
            fix="Use a model with learned absolute positions.",
        )
