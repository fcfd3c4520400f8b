"""Jina Embeddings v3: XLM-RoBERTa with rotations in place of learned positions (Sturua et al. 2024)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.encoder import VECTORS, AfterLayers, Inputs, joined_heads
from twostroke.models.common.blocks.feed import Feed
from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.models.common.fields.fields import activation, head_dim, read_facts, with_silent
from twostroke.models.kit import CommonFacts, Fields, ProgramText, architecture, defaults
from twostroke.ops.rows.gather_rows import gather_rows
from twostroke.types.spec.rope import rope_from_config

THETA = 20_000.0
NORMS = ("norm1", "norm2")
PREFIXES = (("roberta.", ""),)
"""The beginning of names in files that have a head."""
UNUSED = ("pooler.", "lm_head.")


@architecture("JinaEmbeddingsV3Model", "JinaEmbeddingsV3ForMaskedLM", model_type="jina_embeddings_v3", form=VECTORS)
def jina_embeddings_v3(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads the model without adapters. The adapters of its tasks are separate files."""
    fields = with_silent(fields, defaults("jina_embeddings_v3"))
    facts = replace(read_facts(fields, positions=8194, ignored=UNUSED), stored_prefixes=PREFIXES)
    width, num_heads = facts.hidden_size, fields.integer("num_attention_heads", 1, 4096)
    norm = Norm(fields.number("layer_norm_eps", 1e-15, 0.1), NormKind.LAYER)
    dim = head_dim(fields, width, num_heads)
    turn = rope_from_config(fields, dim, facts.max_positions, theta=THETA)
    inputs = Inputs(facts.vocab_size, width, norm, types=fields.integer("type_vocab_size", 1, 64), norm_name="emb_ln")
    heads = joined_heads(width, num_heads, dim, "mixer.Wqkv", "mixer.out_proj", biased=True)
    inner, act = fields.integer("intermediate_size", 1, 1 << 20), activation(fields, "hidden_act", "gelu")
    feed = Feed(width, inner, act, bias=True, gate="", up="mlp.fc1", down="mlp.fc2")

    layers = AfterLayers("encoder.layers.", heads, [feed] * facts.num_layers, norm, NORMS, turn)
    return facts, lambda t: gather_rows(layers(t, inputs(t)), t.logit_rows)
