"""MPNet: RoBERTa whose scores also have a term for the distance, from one table for all layers (Song et al. 2020)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.attend import AttentionNames, Heads
from twostroke.models.common.blocks.encoder import SCORES, VECTORS, BlockText, Inputs, after_blocks, classified
from twostroke.models.common.blocks.feed import Feed
from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.models.common.blocks.placed import Beside, bias_table, placed_attend, t5_places
from twostroke.models.common.fields.fields import activation, head_dim, read_facts
from twostroke.models.common.forms import num_labels
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture
from twostroke.ops.program.values import ALL_AHEAD
from twostroke.ops.rows.gather_rows import gather_rows
from twostroke.types.errors import UnsupportedModel

PREFIX = "mpnet."
NAMES = AttentionNames("attention.attn.q", "attention.attn.k", "attention.attn.v", "attention.attn.o")
NORMS = ("attention.LayerNorm", "output.LayerNorm")
UNUSED = ("lm_head.", "pooler.", PREFIX + "pooler.", "embeddings.position_ids", PREFIX + "embeddings.position_ids")
FIRST_PLACE = 2
"""The row of position 0 in the table of positions, whatever pad_token_id is."""
BUCKETS, LONGEST = 32, 128
"""The number of buckets of distances between positions, and the distance from which on all distances share the last
bucket of their direction. transformers reads neither number from a config."""


@architecture("MPNetModel", "MPNetForMaskedLM", model_type="mpnet", form=VECTORS)
def mpnet(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads MPNet without a head: the program's result is the last layer's rows."""
    return _read(fields, lambda t, x: gather_rows(x, t.logit_rows))


@architecture("MPNetForSequenceClassification", model_type="mpnet", form=SCORES)
def mpnet_classifier(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads MPNet's classifiers, whose head has two linear layers."""
    labels = num_labels(fields)
    return _read(fields, lambda t, x: classified(t, x, "classifier.dense", "classifier.out_proj", labels))


def _read(fields: Fields, head: BlockText) -> tuple[CommonFacts, ProgramText]:
    if fields.integer("relative_attention_num_buckets", 1, 1 << 16, default=BUCKETS) != BUCKETS:
        raise UnsupportedModel(
            f"config.json: relative_attention_num_buckets must be {BUCKETS} for this family.",
            why="transformers gives distances to 32 places whatever the field says.",
            fix="Use a model with this number.",
        )
    facts = read_facts(fields, positions=512, ignored=UNUSED, optional_prefix=PREFIX)
    rows = facts.max_positions
    if rows <= FIRST_PLACE:
        raise fields.wrong("max_position_embeddings", f"The first {FIRST_PLACE} places are for padding.")
    width, num_heads = facts.hidden_size, fields.integer("num_attention_heads", 1, 4096)
    norm = Norm(fields.number("layer_norm_eps", 1e-15, 0.1, default=1e-12), NormKind.LAYER)
    dim = head_dim(fields, width, num_heads)
    heads = Heads(width, num_heads, num_heads, dim, qkv_bias=True, output_bias=True, names=NAMES, ahead=ALL_AHEAD)
    inner, act = fields.integer("intermediate_size", 1, 1 << 20), activation(fields, "hidden_act", "gelu")
    feed = Feed(width, inner, act, bias=True, gate="", up="intermediate.dense", down="output.dense")
    inputs = Inputs(facts.vocab_size, width, norm, rows, FIRST_PLACE)
    places = t5_places(BUCKETS, LONGEST)

    def text(t: Tracer) -> Value:
        with t.layer(PREFIX):
            x = inputs(t)
            table = bias_table(t, "encoder.relative_attention_bias", BUCKETS, num_heads)

            def seen(t: Tracer, x: Value) -> Value:
                return placed_attend(t, heads, x, places, lambda _t, _q, _k: Beside(table))

            for index in range(facts.num_layers):
                with t.layer(f"encoder.layer.{index}."):
                    x = after_blocks(t, seen, feed, norm, x, NORMS)
        return head(t, x)

    return replace(facts, max_positions=rows - FIRST_PLACE), text
