"""EuroBERT: Llama's layers, whose positions also see later ones (Boizard et al. 2025)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.layers import pre_decoder
from twostroke.models.common.fields.read import read_parts
from twostroke.models.common.forms import EMBEDDINGS
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture, defaults
from twostroke.ops.program.values import ALL_AHEAD


@architecture("EuroBertModel", "EuroBertForMaskedLM", model_type="eurobert", form=EMBEDDINGS)
def eurobert(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads EuroBERT: the program's result is the last layer's rows after the last norm. The head for masked tokens is
    not read."""
    parts = read_parts(fields, defaults("eurobert"))
    fields = parts.fields
    heads = replace(parts.biased_heads(), ahead=ALL_AHEAD)
    feed = parts.biased_feed()
    facts = replace(parts.facts, ignored=("lm_head.",))
    turn = parts.rope()
    return pre_decoder(replace(parts, facts=facts, heads=heads, feed=feed), turn)
