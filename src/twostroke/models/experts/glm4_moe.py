"""GLM-4.5 and 4.6: half of each head is rotated; experts by DeepSeek-V3's rule after the first dense layers (Z.ai
2025)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.layers import pre_decoder, sparse_layer
from twostroke.models.common.fields.deepseek import prediction_layers
from twostroke.models.common.fields.mixture import blocks_by_layer, sigmoid_mixture
from twostroke.models.common.fields.nested import text_model
from twostroke.models.common.fields.read import Parts, read_parts
from twostroke.models.common.prediction import MtpHead, behind_the_last, predicts
from twostroke.models.kit import Architecture, CommonFacts, Fields, ProgramText, architecture, defaults
from twostroke.types.spec.rope import RopeSpec


@architecture("Glm4MoeForCausalLM", model_type="glm4_moe")
def glm4_moe(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads GLM-4.5. After the last layer the file may hold more layers, which predict further tokens: see
    `prediction`."""
    parts, turn = _parts(fields)
    fields, facts = parts.fields, parts.facts
    dense = fields.integer("first_k_dense_replace", 0, 4096)
    blocks = blocks_by_layer(sigmoid_mixture(fields, facts.hidden_size), facts.num_layers, dense)
    _, text = pre_decoder(parts, turn, blocks=blocks)
    return replace(facts, ignored=(*facts.ignored, *prediction_layers(fields))), text


@architecture("Glm4vMoeForConditionalGeneration", model_type="glm4v_moe")
def glm4_moe_with_images(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads GLM-4.5V and 4.6V: the language model of a checkpoint that also sees images."""
    return text_model(fields, Architecture("Glm4vMoeText", "glm4v_moe_text", glm4_moe), defaults("glm4v_moe_text"))


@predicts("Glm4MoeForCausalLM")
def prediction(fields: Fields) -> tuple[MtpHead, ...]:
    """Reads the layers that predict further tokens (MTP), which have experts and are stored after the last layer."""
    parts, turn = _parts(fields)
    block = sigmoid_mixture(parts.fields, parts.facts.hidden_size)
    return behind_the_last(parts.fields, parts.norm, lambda t, x: sparse_layer(t, parts, block, x, turn=turn))


def _parts(fields: Fields) -> tuple[Parts, RopeSpec]:
    """Reads the model's attention and feed-forward settings, and the rotation that all layers share."""
    parts = read_parts(fields, defaults("glm4_moe"), kv_absent=8)
    fields = parts.fields
    heads = replace(
        parts.heads,
        qkv_bias=fields.boolean("attention_bias", False),
        head_norm=parts.norm if fields.boolean("use_qk_norm", False) else None,
    )
    turn = parts.rope(partial=0.5)
    return replace(parts, heads=heads), turn
