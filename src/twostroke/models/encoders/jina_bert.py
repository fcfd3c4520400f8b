"""Jina embeddings 2: BERT whose scores fall with the distance in both directions, with gated blocks (Günther et al.
2023)."""

from __future__ import annotations

from twostroke.models.common.blocks.alibi import alibi_slopes
from twostroke.models.common.blocks.attend import AttentionNames, Heads
from twostroke.models.common.blocks.encoder import VECTORS, Inputs, after_blocks
from twostroke.models.common.blocks.feed import Feed
from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.models.common.blocks.placed import Beside, placed_attend
from twostroke.models.common.fields.fields import head_dim, read_facts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture
from twostroke.ops.program.values import ALL_AHEAD
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.gather_rows import gather_rows
from twostroke.types.errors import UnsupportedModel

PREFIX = "bert."
NAMES = AttentionNames("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense")
NORMS = ("attention.output.LayerNorm", "mlp.layernorm")
GATES = {"geglu": Activation.GELU, "reglu": Activation.RELU}
UNUSED = ("cls.", "pooler.", PREFIX + "pooler.")


@architecture("JinaBertModel", "JinaBertForMaskedLM", model_type="bert", form=VECTORS)
def jina_bert(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads JinaBERT without a head: the program's result is the last layer's rows."""
    gate = _named(fields, "feed_forward_type", "original", tuple(GATES))
    _named(fields, "position_embedding_type", "absolute", ("alibi",))
    facts = read_facts(fields, positions=8192, ignored=UNUSED, optional_prefix=PREFIX)
    width, num_heads = facts.hidden_size, fields.integer("num_attention_heads", 1, 4096)
    norm = Norm(fields.number("layer_norm_eps", 1e-15, 0.1, default=1e-12), NormKind.LAYER)
    dim = head_dim(fields, width, num_heads)
    heads = Heads(width, num_heads, num_heads, dim, qkv_bias=True, output_bias=True, names=NAMES, ahead=ALL_AHEAD)
    inner = fields.integer("intermediate_size", 1, 1 << 20)
    feed = Feed(width, inner, GATES[gate], gate_up="mlp.gated_layers", down="mlp.wo", down_bias=True)
    inputs = Inputs(facts.vocab_size, width, norm, types=fields.integer("type_vocab_size", 0, 64, default=2))
    reach = facts.max_positions - 1
    places = tuple(float(abs(away)) for away in range(-reach, reach + 1))
    table = tuple(-slope * away for slope in alibi_slopes(num_heads) for away in range(facts.max_positions))

    def seen(t: Tracer, x: Value) -> Value:
        return placed_attend(t, heads, x, places, lambda t, _q, _k: Beside(t.constant("slopes", table)))

    def text(t: Tracer) -> Value:
        with t.layer(PREFIX):
            x = inputs(t)
            for index in range(facts.num_layers):
                with t.layer(f"encoder.layer.{index}."):
                    x = after_blocks(t, seen, feed, norm, x, NORMS)
        return gather_rows(x, t.logit_rows)

    return facts, text


def _named(fields: Fields, name: str, absent: str, known: tuple[str, ...]) -> str:
    word = fields.text(name, absent)
    if word not in known:
        raise UnsupportedModel(
            f"config.json: {name} {word[:40]!r} is not implemented for this family.",
            why=f"Implemented: {', '.join(known)}.",
            fix="Use a model with one of these.",
        )
    return word
