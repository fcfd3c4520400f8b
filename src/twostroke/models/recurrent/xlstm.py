"""xLSTM: a matrix memory for each head in place of attention, between Llama's norms and blocks (Beck et al. 2024)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from twostroke.models.common.blocks.decoder import decoder_of, decoder_program
from twostroke.models.common.blocks.feed import Feed
from twostroke.models.common.blocks.norm import Norm
from twostroke.models.common.fields.fields import read_facts, refuse_setting, usual_names, with_silent
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.products.linear import linear
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import add, soft_cap
from twostroke.ops.rows.head_layer_norm import head_layer_norm
from twostroke.ops.rows.multiply import multiply
from twostroke.ops.states.mlstm import MOST_ROWS, mlstm
from twostroke.types.spec.rope import MAX_POSITIONS

SAME = {"num_blocks": "num_hidden_layers", "embedding_dim": "hidden_size"}


@dataclass(frozen=True, slots=True)
class Cell:
    """xLSTM's block with a matrix memory. keys, values: the elements of all heads of q and k, and of v, together. cap:
    the soft cap of the gates. eps: the epsilon that is added to the divisor of the memory's output."""

    hidden_size: int
    heads: int
    keys: int
    values: int
    cap: float
    eps: float
    norm: Norm

    def __call__(self, t: Tracer, h: Value) -> Value:
        """Returns the block's output for the normed rows h, before it is added to the residual."""
        widths = {"q": self.keys, "k": self.keys, "v": self.values, "ogate_preact": self.values}
        gates = {"igate_preact": self.heads, "fgate_preact": self.heads}
        parts = linear(h, t.matrix("qkv", widths, self.hidden_size)).split(*widths.values())
        q, k, v = (part.heads(self.heads) for part in parts[:3])
        logits = linear(h, t.matrix("router", gates, self.hidden_size, bias=True))
        arriving, kept = soft_cap(logits, self.cap).split(self.heads, self.heads)
        seen = mlstm(q, k, v, arriving, kept, self.eps)
        seen = head_layer_norm(seen, t.vector("multihead_norm", self.values), None, self.norm.eps)
        seen = multiply(seen, parts[3], Activation.SIGMOID)
        return linear(seen, t.matrix("o", {"out_proj": self.hidden_size}, self.values))


@architecture("xLSTMForCausalLM", model_type="xlstm")
def xlstm(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads xLSTM. The kernels and chunk sizes that the config names do not change the result."""
    fields = with_silent(usual_names(fields, SAME), defaults("xlstm"))
    refuse_setting(fields, "use_bias", "No published model of this family has other biases than those of its gates.")
    if not fields.boolean("add_out_norm", True):
        raise fields.wrong("add_out_norm", "transformers has the norm after the last layer, whatever this field says.")
    if fields.boolean("tie_word_embeddings", False):
        raise fields.wrong("tie_word_embeddings", "transformers does not tie them in this family.")
    if fields.text("weight_mode", "single") != "single":
        raise fields.wrong("weight_mode", "It must be single: transformers cannot make models with other tensors.")
    facts = read_facts(fields, positions=MAX_POSITIONS)
    cell = _cell(fields, facts.hidden_size)
    feed = _feed(fields, facts.hidden_size)
    decoder = replace(
        decoder_of(facts, cell.norm, False),
        soft_cap=fields.number("output_logit_soft_cap", 1e-3, 1e6),
        embedding="backbone.embeddings",
        layers="backbone.blocks",
        last_norm="backbone.out_norm",
    )

    def layer(t: Tracer, _index: int, x: Value) -> Value:
        h = cell.norm(t, "norm_mlstm", x)
        with t.layer("mlstm_layer."):
            x = add(x, cell(t, h))
        return add(x, feed(t, cell.norm(t, "norm_ffn", x)))

    return facts, decoder_program(decoder, layer)


def _cell(fields: Fields, hidden: int) -> Cell:
    heads = fields.integer("num_heads", 1, 4096)
    keys, values = (int(hidden * fields.number(f"{name}_dim_factor", 1e-3, 64.0)) for name in ("qk", "v"))
    if keys % heads or values % heads or not 0 < keys // heads <= MOST_ROWS:
        raise fields.wrong("num_heads", f"It must divide the {keys} elements of keys and the {values} of values.")
    cap, norm = fields.number("gate_soft_cap", 1e-3, 1e6), Norm(fields.number("norm_eps", 1e-12, 0.1))
    return Cell(hidden, heads, keys, values, cap, fields.number("eps", 1e-12, 0.1), norm)


def _feed(fields: Fields, hidden: int) -> Feed:
    multiple = fields.integer("ffn_round_up_to_multiple_of", 1, 1 << 20)
    inner = math.ceil(hidden * fields.number("ffn_proj_factor", 1e-3, 64.0) / multiple) * multiple
    return Feed(hidden, inner, gate="ffn.proj_up_gate", up="ffn.proj_up", down="ffn.proj_down")
