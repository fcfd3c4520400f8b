"""Molmo 2: the language model of a checkpoint that also sees images and films, by Qwen 3's or OLMo's rules (Ai2 2025).
"""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.attend import AttentionNames, attend, joined_in_order
from twostroke.models.common.blocks.decoder import head
from twostroke.models.common.fields.fields import refuse_setting, usual_names
from twostroke.models.common.fields.nested import text_model
from twostroke.models.common.fields.read import Parts, read_parts
from twostroke.models.kit import Architecture, CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.products.embed import embed
from twostroke.ops.products.linear import linear
from twostroke.ops.program.values import HeadRows, Tensor
from twostroke.ops.rows.expressions import add
from twostroke.ops.rows.gate import gate
from twostroke.types.spec.rope import rope_from_config

OWN_NAMES = {"qkv_bias": "attention_bias", "layer_norm_eps": "rms_norm_eps"}
BEGIN = "model.transformer"
NOT_TEXT = (f"{BEGIN}.wte.new_embedding", "model.vision_backbone.")
"""Tensors that only images need. The first is the table of tokens that stand for parts of images."""
NAMES = AttentionNames(o="self_attn.attn_out")
NORMS = ("attn_norm", "ff_norm")


@architecture("Molmo2ForConditionalGeneration", model_type="molmo2")
def molmo2(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads the language model, with the table of the tokens of text. Tokens of images have no logits and are no part
    of the vocabulary."""
    facts, text = text_model(fields, Architecture("Molmo2Text", "molmo2_text", _text))
    return replace(facts, ignored=(*facts.ignored, *NOT_TEXT)), text


def _text(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads the language model. qk_norm_type: qwen3 for norms of heads, olmo for norms of the whole of q and of k.
    norm_after: norms stand after blocks. rope_scaling_layers: the layers whose rotations are scaled; all where the
    field is absent."""
    refuse_setting(fields, "tie_word_embeddings", "The head has other rows than the embedding.")
    if not fields.boolean("use_qk_norm", True):
        raise fields.wrong("use_qk_norm", "It must be true: transformers knows no other model of the family.")
    parts = read_parts(usual_names(fields, OWN_NAMES), defaults("molmo2_text"), kv_absent=8)
    fields, facts = parts.fields, parts.facts
    kind = fields.text("qk_norm_type", "qwen3")
    if kind not in ("qwen3", "olmo"):
        raise fields.wrong("qk_norm_type", "It must be qwen3 or olmo.")
    heads = replace(
        parts.heads,
        qkv_bias=fields.boolean("attention_bias", False),
        names=NAMES,
        joined=joined_in_order("self_attn.att_proj"),
        head_norm=parts.norm if kind == "qwen3" else None,
        wide_norm=parts.norm if kind == "olmo" else None,
    )
    parts = replace(parts, heads=heads, decoder=replace(parts.decoder, last_norm=f"{BEGIN}.ln_f"))
    turn = parts.rope()
    scaled = fields.integers("rope_scaling_layers") if fields.has("rope_scaling_layers") else range(facts.num_layers)
    still = fields.only({**fields.values, "rope_scaling": None, "rope_parameters": {"rope_theta": turn.theta}})
    plain = rope_from_config(still, heads.head_dim, facts.max_positions)
    after = fields.boolean("norm_after", False)

    def text(t: Tracer) -> Value:
        vocab, width = facts.vocab_size, facts.hidden_size
        table = t.weight("embedding", vocab, width, (Tensor(f"{BEGIN}.wte.embedding", (vocab, width)),))
        x = embed(table, t.token_ids, t)
        for index in range(facts.num_layers):
            own = turn if index in scaled else plain
            with t.layer(f"{BEGIN}.blocks.{index}."):
                h = x if after else parts.norm(t, NORMS[0], x)
                x = _added(t, parts, x, attend(t, parts.heads, h, turn=own), after, NORMS[0])
                h = x if after else parts.norm(t, NORMS[1], x)
                x = _added(t, parts, x, _feed(t, parts, h), after, NORMS[1])
        return head(t, parts.decoder, x)

    return facts, text


def _added(t: Tracer, parts: Parts, x: Value, made: Value, after: bool, norm: str) -> Value:
    return add(x, parts.norm(t, norm, made, in_place=True) if after else made)


def _feed(t: Tracer, parts: Parts, h: Value) -> Value:
    """Returns the feed-forward block's output. One tensor has the rows of `up`, then those of the gate."""
    inner, width = parts.feed.inner_size, parts.facts.hidden_size
    orders = HeadRows(1, 2 * inner, inner, inner), HeadRows(1, 2 * inner, inner)
    both = linear(h, t.selected("gate_up", "mlp.ff_proj", 2 * inner, width, orders))
    return linear(gate(both, parts.feed.activation), t.matrix("down", {"mlp.ff_out": width}, inner))
