"""InternLM 2 and 2.5: Llama with q, k and v in one tensor. After the query heads of a KV head, the tensor has this
head's rows of k and v (InternLM team 2024)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.attend import joined_by_head
from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.fields.fields import silu_only
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture

SILENT = {"bos_token_id": 1, "eos_token_id": 2}


@architecture("InternLM2ForCausalLM", model_type="internlm2")
def internlm2(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads InternLM 2 and 2.5. bias: whether attention's products for q, k and v and for the output have biases."""
    silu_only(fields)
    parts = read_parts(fields, SILENT)
    fields = parts.fields
    turn = parts.rope()
    biased = fields.boolean("bias", True)
    heads = replace(
        parts.heads,
        qkv_bias=biased,
        output_bias=biased,
        joined=joined_by_head("attention.wqkv"),
        names=replace(parts.heads.names, o="attention.wo"),
    )
    feed = replace(parts.feed, gate="feed_forward.w1", up="feed_forward.w3", down="feed_forward.w2")
    decoder = replace(parts.decoder, embedding="model.tok_embeddings", head="output")
    ignored = ("output.weight",) if decoder.tied else ()
    parts = replace(parts, heads=heads, feed=feed, decoder=decoder, facts=replace(parts.facts, ignored=ignored))
    return pre_decoder(parts, turn, norms=("attention_norm", "ffn_norm"))
