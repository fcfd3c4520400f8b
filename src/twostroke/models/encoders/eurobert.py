"""EuroBERT: Llama's layers, whose positions also see later ones (Boizard et al. 2025)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.fields.read import read_parts
from twostroke.models.common.forms import EMBEDDINGS
from twostroke.models.common.registry import CommonFacts, ProgramText, architecture
from twostroke.ops.program.values import ALL_AHEAD
from twostroke.types.spec.fields import Fields

SILENT = {"max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "bos_token_id": 128_000, "eos_token_id": 128_001}


@architecture("EuroBertModel", "EuroBertForMaskedLM", model_type="eurobert", form=EMBEDDINGS)
def eurobert(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """The result is the last layer's rows after the last norm. The head for masked tokens is not read."""
    parts = read_parts(fields, SILENT)
    fields = parts.fields
    heads = replace(parts.biased_heads(), ahead=ALL_AHEAD)
    feed = parts.biased_feed()
    facts = replace(parts.facts, ignored=("lm_head.",))
    turn = parts.rope()
    return pre_decoder(replace(parts, facts=facts, heads=heads, feed=feed), turn)
