"""T5's encoder: RMS norms before blocks, and positions only as terms for distances in the scores (Raffel et al. 2020).

sentence-t5, GTR and Instructor are such encoders (Ni et al. 2021; Su et al. 2022). mT5 has other vocabularies.
"""

from __future__ import annotations

from twostroke.models.common.blocks.attend import AttentionNames, Heads
from twostroke.models.common.blocks.encoder import VECTORS
from twostroke.models.common.blocks.feed import Feed
from twostroke.models.common.blocks.norm import Norm
from twostroke.models.common.blocks.placed import Beside, bias_table, placed_attend, t5_places
from twostroke.models.common.fields.fields import head_dim, read_facts, refuse_setting, usual_names, with_silent
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.products.embed import embed
from twostroke.ops.program.values import ALL_AHEAD
from twostroke.ops.rows.activation import HF_NAMES
from twostroke.ops.rows.expressions import add
from twostroke.ops.rows.gather_rows import gather_rows
from twostroke.types.errors import UnsupportedModel

OWN_NAMES = {
    **{"d_model": "hidden_size", "num_layers": "num_hidden_layers", "num_heads": "num_attention_heads"},
    **{"d_kv": "head_dim", "n_positions": "max_position_embeddings"},
}
"""The fields of this family's config.json, each with the name that other families give it."""
SHARED = "shared"
NAMES = AttentionNames(*(f"layer.0.SelfAttention.{name}" for name in "qkvo"))
UNUSED = ("decoder.", "lm_head.", "encoder.embed_tokens.")
"""Names of tensors that an encoder does not read. The last is the embedding, which some files hold twice."""


@architecture("T5EncoderModel", "MT5EncoderModel", model_type="t5", other_types=("mt5",), form=VECTORS)
def t5_encoder(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads the encoder of T5; the result is its rows after the last norm. Scores are not scaled. All layers use the
    first layer's table of relative position terms."""
    refuse_setting(fields, "is_decoder", "Positions would not see later ones, and other results would be expected.")
    fields = with_silent(usual_names(fields, OWN_NAMES), defaults("t5"))
    facts = read_facts(fields, positions=512, ignored=UNUSED)
    width, num_heads = facts.hidden_size, fields.integer("num_attention_heads", 1, 4096)
    norm = Norm(fields.number("layer_norm_epsilon", 1e-15, 0.1))
    dim = head_dim(fields, width, num_heads, absent=64)
    heads = Heads(width, num_heads, num_heads, dim, scale=1.0, names=NAMES, ahead=ALL_AHEAD)
    feed = _feed(fields, width)
    count = fields.integer("relative_attention_num_buckets", 4, 1 << 12)
    longest = fields.integer("relative_attention_max_distance", 2, 1 << 16)
    if count % 4 or longest <= count // 4:
        raise fields.wrong(
            "relative_attention_num_buckets",
            "It must be a multiple of 4, with a longest distance above a fourth of it.",
        )
    places = t5_places(count, longest)

    def text(t: Tracer) -> Value:
        x = embed(t.matrix("embedding", {SHARED: facts.vocab_size}, width), t.token_ids, t)
        table = bias_table(t, "encoder.block.0.layer.0.SelfAttention.relative_attention_bias", count, num_heads)
        for index in range(facts.num_layers):
            with t.layer(f"encoder.block.{index}."):
                h = norm(t, "layer.0.layer_norm", x)
                x = add(x, placed_attend(t, heads, h, places, lambda _t, _q, _k: Beside(table)))
                x = add(x, feed(t, norm(t, "layer.1.layer_norm", x)))
        return norm(t, "encoder.final_layer_norm", gather_rows(x, t.logit_rows), in_place=True)

    return facts, text


def _feed(fields: Fields, width: int) -> Feed:
    """Reads the feed-forward block: relu, or a gate, where gated-gelu means the approximation of GELU by tanh."""
    word = fields.text("feed_forward_proj", "relu")
    gated, own = word.startswith("gated-"), word.removeprefix("gated-")
    name = "gelu_new" if word == "gated-gelu" else own
    if name not in HF_NAMES:
        raise UnsupportedModel(
            f"config.json: feed_forward_proj {word[:40]!r} is not implemented.",
            why="Implemented: one of " + ", ".join(HF_NAMES) + ", perhaps with gated- before it.",
            fix="Use a model with one of these.",
        )
    stem, inner = "layer.1.DenseReluDense.", fields.integer("d_ff", 1, 1 << 20)
    gate, up = (stem + "wi_0", stem + "wi_1") if gated else ("", stem + "wi")
    return Feed(width, inner, HF_NAMES[name], gate=gate, up=up, down=stem + "wo")
