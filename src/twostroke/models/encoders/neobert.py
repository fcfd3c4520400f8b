"""NeoBERT: norms before gated blocks, rotations whose pairs lie side by side, no biases (Le Breton et al. 2025)."""

from __future__ import annotations

from twostroke.models.common.blocks.attend import AttentionNames, Heads, attend
from twostroke.models.common.blocks.encoder import VECTORS
from twostroke.models.common.blocks.feed import Feed
from twostroke.models.common.blocks.norm import Norm
from twostroke.models.common.fields.fields import head_dim, read_facts, with_silent
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture
from twostroke.ops.products.embed import embed
from twostroke.ops.program.values import ALL_AHEAD, HeadRows, Weight
from twostroke.ops.rows.expressions import add
from twostroke.ops.rows.gather_rows import gather_rows
from twostroke.types.errors import UnsupportedModel
from twostroke.types.spec.rope import rope_from_config

SILENT = {"max_length": 1024, "norm_eps": 1e-6, "intermediate_size": 3072}
PREFIX = "model."
MULTIPLE = 8
"""The inner size is rounded up to a multiple of this number."""


@architecture("NeoBERT", "NeoBERTLMHead", "NeoBERTModel", model_type="neobert", form=VECTORS)
def neobert(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads NeoBERT. The feed-forward block's inner size is two thirds of intermediate_size. In the tensor of q, k and
    v, the rows of each head's q, k and v lie together."""
    _refuse(fields)
    fields = with_silent(fields, SILENT)
    facts = read_facts(fields, positions=1024, longest="max_length", ignored=("decoder.",), optional_prefix=PREFIX)
    width, num_heads = facts.hidden_size, fields.integer("num_attention_heads", 1, 4096)
    norm = Norm(fields.number("norm_eps", 1e-15, 0.1))
    dim = head_dim(fields, width, num_heads)
    turn = rope_from_config(fields, dim, facts.max_positions)
    names = AttentionNames(o="wo")
    heads = Heads(width, num_heads, num_heads, dim, names=names, joined=_joined, ahead=ALL_AHEAD)
    inner = -(-(2 * fields.integer("intermediate_size", 12, 1 << 20) // 3) // MULTIPLE) * MULTIPLE
    feed = Feed(width, inner, gate_up="ffn.w12", down="ffn.w3")

    def layer(t: Tracer, x: Value) -> Value:
        x = add(x, attend(t, heads, norm(t, "attention_norm", x), turn=turn))
        return add(x, feed(t, norm(t, "ffn_norm", x)))

    def text(t: Tracer) -> Value:
        with t.layer(PREFIX):
            x = embed(t.matrix("embedding", {"encoder": facts.vocab_size}, width), t.token_ids, t)
            for index in range(facts.num_layers):
                with t.layer(f"transformer_encoder.{index}."):
                    x = layer(t, x)
            return norm(t, "layer_norm", gather_rows(x, t.logit_rows), in_place=True)

    return facts, text


def _joined(t: Tracer, shape: Heads) -> Weight:
    dim, rows = shape.head_dim, 3 * shape.query
    orders = [HeadRows(shape.num_heads, 3 * dim, dim, place * dim, dim // 2 if place < 2 else 0) for place in range(3)]
    return t.selected("qkv", "qkv", rows, shape.hidden_size, orders)


def _refuse(fields: Fields) -> None:
    """Raises UnsupportedModel for settings of the training code that the published model does not have."""
    for name in ("rope", "rms_norm"):
        if not fields.boolean(name, True):
            raise UnsupportedModel(
                f"config.json: {name} is false.",
                why="Implemented are rotary positions and RMS norms, which the published model has.",
                fix="Use a model of this family with both.",
            )
    word = fields.text("hidden_act", "SwiGLU")
    if word.lower() != "swiglu":
        raise UnsupportedModel(f"config.json: hidden_act {word[:40]!r} is not implemented.", why="Implemented: SwiGLU.")
