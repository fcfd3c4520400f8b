"""Baichuan 1 and 2: Llama with q, k and v in one tensor; the large models have ALiBi slopes in place of rotations
(Baichuan 2023)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from twostroke.models.common.blocks.alibi import alibi_slopes
from twostroke.models.common.blocks.attend import joined_in_order
from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.fields.fields import silu_only, usual_names
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture
from twostroke.ops.program.values import Tensor, VectorForm
from twostroke.ops.rows.expressions import scale_columns
from twostroke.types.errors import UnsupportedModel

SILENT = {"max_position_embeddings": 4096, "bos_token_id": 1, "eos_token_id": 2}
SECOND_VOCABULARY = 125_696
"""The vocabulary size of Baichuan 2. The rows of the head of Baichuan 2 are scaled to length 1; no other field of its
config tells this."""
TURNS, SLOPES = "ROPE", "ALIBI"


@architecture("BaichuanForCausalLM", "BaiChuanForCausalLM", model_type="baichuan")
def baichuan(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Baichuan. Configs of 13B models, which have ALiBi, are recognised by model_max_length in place of
    max_position_embeddings.

    position_embedding and norm_head are fields that this project adds, for files other than Baichuan's config.json.
    """
    silu_only(fields)
    usual = TURNS if fields.has("max_position_embeddings") else SLOPES
    word = fields.text("position_embedding", usual)
    if word not in (TURNS, SLOPES):
        raise UnsupportedModel(
            f"config.json: position_embedding {word[:40]!r} is not implemented.", why=f"Implemented: {TURNS}, {SLOPES}."
        )
    if not fields.has("max_position_embeddings"):
        fields = usual_names(fields, {"model_max_length": "max_position_embeddings"})
    parts = read_parts(fields, SILENT)
    fields, heads = parts.fields, replace(parts.heads, joined=joined_in_order("self_attn.W_pack"))
    if heads.num_kv_heads != heads.num_heads:
        raise fields.wrong("num_key_value_heads", "Every query head of this family has K and V of its own.")
    turn = None
    if word == TURNS:
        turn = parts.rope()
    else:
        heads = replace(heads, slopes=alibi_slopes(heads.num_heads))
    facts, text = pre_decoder(replace(parts, heads=heads), turn)
    if not fields.boolean("norm_head", facts.vocab_size == SECOND_VOCABULARY):
        return facts, text
    return facts, _normed(text, Tensor("lm_head.weight", (facts.vocab_size, facts.hidden_size)))


def _normed(text: Callable[[Tracer], Value], head: Tensor) -> ProgramText:
    """Returns the program whose logits are divided by the lengths of the head's rows."""

    def normed(t: Tracer) -> Value:
        return scale_columns(text(t), t.vector_of((head,), head.length, form=VectorForm.INVERSE_LENGTHS))

    return normed
