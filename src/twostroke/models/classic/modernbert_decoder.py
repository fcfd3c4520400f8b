"""ModernBERT as a decoder (Ettin): ModernBERT's gated blocks and windows; before the output matrix, a product, an
activation and a norm, as in BERT's head (Weller et al. 2025)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.attend import AttentionNames, attend
from twostroke.models.common.blocks.norm import NormKind
from twostroke.models.common.fields.fields import activation, windows_by_layer
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.products.embed import embed
from twostroke.ops.products.linear import linear
from twostroke.ops.program.values import Tensor
from twostroke.ops.rows.expressions import activate, add
from twostroke.ops.rows.gather_rows import gather_rows
from twostroke.types.spec.rope import MAX_POSITIONS, ropes_by_layer_type

SILENT = defaults("modernbert-decoder")
THETAS = {"sliding_attention": ("local_rope_theta", 10_000.0), "full_attention": ("global_rope_theta", 160_000.0)}
TABLE = "model.embeddings.tok_embeddings"


@architecture("ModernBertDecoderForCausalLM", model_type="modernbert-decoder")
def modernbert_decoder(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads ModernBERT decoders. Every third layer sees all earlier positions. The others see `sliding_window`
    positions, or half of `local_attention`. Layer 0 has no first norm."""
    kind = NormKind.LAYER if fields.boolean("norm_bias", False) else NormKind.PLAIN_LAYER
    fields = fields.changed({"num_key_value_heads": None, "head_dim": None})
    parts = read_parts(fields, SILENT, kind=kind, eps="norm_eps", act=("hidden_activation", "gelu"))
    fields, norm, layers, width = parts.fields, parts.norm, parts.facts.num_layers, parts.facts.hidden_size
    local = fields.integer("local_attention", 2, MAX_POSITIONS, default=128) // 2
    window = fields.integer("sliding_window", 1, MAX_POSITIONS, default=local)  # transformers writes and uses it
    every = fields.integer("global_attn_every_n_layers", 1, 4096, default=3)
    usual = tuple(window if index % every else 0 for index in range(layers))
    windows = windows_by_layer(fields, layers, window, usual)
    ropes = ropes_by_layer_type(fields, parts.heads.head_dim, parts.facts.max_positions, THETAS, "full_attention")
    names = AttentionNames(*(f"attn.{name}" for name in ("q_proj", "k_proj", "v_proj", "Wo")))
    heads = replace(parts.biased_heads(), names=names)
    feed = replace(parts.biased_feed(), gate_up="mlp.Wi", down="mlp.Wo")
    last = activation(fields, "classifier_activation", "gelu")
    tied = parts.decoder.tied
    last_bias, head_bias = fields.boolean("classifier_bias", False), fields.boolean("decoder_bias", True)

    def layer(t: Tracer, index: int, x: Value) -> Value:
        turn = ropes["sliding_attention" if windows[index] else "full_attention"]
        h = norm(t, "attn_norm", x) if index else x
        x = add(x, attend(t, heads, h, window=windows[index], turn=turn))
        return add(x, feed(t, norm(t, "mlp_norm", x)))

    def text(t: Tracer) -> Value:
        vocabulary = parts.facts.vocab_size
        bias = (Tensor("decoder.bias", (vocabulary,)),) if head_bias else ()
        # When the head is the embedding too, its bias is stored next to the table. Looking tokens up does not read the
        # bias.
        table = t.weight("embedding", vocabulary, width, (_table(TABLE, vocabulary, width),), bias if tied else ())
        x = norm(t, "model.embeddings.norm", embed(table, t.token_ids, t), in_place=True)
        for index in range(layers):
            with t.layer(f"model.layers.{index}."):
                x = layer(t, index, x)
        rows = norm(t, "model.final_norm", gather_rows(x, t.logit_rows), in_place=True)
        rows = activate(linear(rows, t.matrix("last", {"lm_head.dense": width}, width, bias=last_bias)), last)
        rows = norm(t, "lm_head.norm", rows, in_place=True)
        if tied:
            return linear(rows, table)
        return linear(rows, t.weight("head", vocabulary, width, (_table("decoder", vocabulary, width),), bias))

    return replace(parts.facts, ignored=("decoder.weight",) if tied else ()), text


def _table(name: str, vocabulary: int, width: int) -> Tensor:
    return Tensor(f"{name}.weight", (vocabulary, width))
