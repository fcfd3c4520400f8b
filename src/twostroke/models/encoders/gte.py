"""GTE: BERT with rotary positions and a gated feed-forward block (Zhang et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from twostroke.models.common.blocks.encoder import (
    SCORES,
    VECTORS,
    AfterLayers,
    BlockText,
    Inputs,
    classified,
    joined_heads,
)
from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.models.common.fields.fields import activation, head_dim, read_facts, with_silent
from twostroke.models.common.forms import num_labels
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.products.linear import linear
from twostroke.ops.program.values import HeadRows
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.gate import gate
from twostroke.ops.rows.gather_rows import gather_rows
from twostroke.types.spec.rope import rope_from_config

THETA = 160_000.0
NORMS = ("attn_ln", "mlp_ln")
PREFIXES = (("gte.", ""), ("new.", ""))
"""The beginnings of names in files that transformers writes ("gte.") and in published files ("new.")."""
POOLER = "pooler."


@dataclass(frozen=True, slots=True)
class UpAndGate:
    """A gated block whose first tensor has the rows of `up` before those of the gate. The second product has a bias."""

    hidden_size: int
    inner_size: int
    activation: Activation

    def __call__(self, t: Tracer, h: Value) -> Value:
        """Returns the block's output for the rows h, before it is added to the residual."""
        inner, width = self.inner_size, self.hidden_size
        orders = [HeadRows(1, 2 * inner, inner, first) for first in (inner, 0)]
        both = t.selected("gate_up", "mlp.up_gate_proj", 2 * inner, width, orders)
        down = t.matrix("down", {"mlp.down_proj": width}, inner, bias=True)
        return linear(gate(linear(h, both), self.activation), down)


@architecture("GteModel", "GteForMaskedLM", model_type="gte", form=VECTORS)
def gte(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads GTE without a head: the program's result is the last layer's rows."""
    facts, text = _read(fields, lambda t, x: gather_rows(x, t.logit_rows))
    return replace(facts, ignored=(*facts.ignored, POOLER)), text


@architecture("GteForSequenceClassification", model_type="gte", form=SCORES)
def gte_classifier(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads GTE's classifiers: the head is the pooler with a classifier after it."""
    labels = num_labels(fields)
    return _read(fields, lambda t, x: classified(t, x, f"{POOLER}dense", "classifier", labels))


def _read(fields: Fields, head: BlockText) -> tuple[CommonFacts, ProgramText]:
    fields = with_silent(fields, defaults("gte"))
    facts = replace(read_facts(fields, positions=8192, ignored=("lm_head.",)), stored_prefixes=PREFIXES)
    width, num_heads = facts.hidden_size, fields.integer("num_attention_heads", 1, 4096)
    norm = Norm(fields.number("layer_norm_eps", 1e-15, 0.1), NormKind.LAYER)
    dim = head_dim(fields, width, num_heads)
    turn = rope_from_config(fields, dim, facts.max_positions, theta=THETA)
    inputs = Inputs(facts.vocab_size, width, norm, types=fields.integer("type_vocab_size", 0, 64))
    heads = joined_heads(width, num_heads, dim, "attention.qkv_proj", "attention.o_proj", biased=True)
    feed = UpAndGate(width, fields.integer("intermediate_size", 1, 1 << 20), activation(fields, "hidden_act", "gelu"))

    layers = AfterLayers("encoder.layer.", heads, [feed] * facts.num_layers, norm, NORMS, turn)
    return facts, lambda t: head(t, layers(t, inputs(t)))
