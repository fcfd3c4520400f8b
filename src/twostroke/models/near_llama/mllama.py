"""Llama 3.2 Vision: Llama with further layers in between that see images; without an image these are left out (Meta
2024)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.decoder import Decoder, head
from twostroke.models.common.blocks.layers import pre_layer
from twostroke.models.common.fields.nested import text_model
from twostroke.models.common.fields.read import read_parts
from twostroke.models.kit import Architecture, CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.products.embed import embed
from twostroke.ops.program.values import Tensor

SPECIAL = 8
"""The number of rows after the vocabulary in the table of embeddings, for tokens that stand for images."""


@architecture("MllamaForConditionalGeneration", model_type="mllama")
def mllama(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads only the language model of a checkpoint that also has an image encoder."""
    return text_model(fields, Architecture("MllamaText", "mllama_text_model", _text))


def _text(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads the language model without the layers that see images. cross_attention_layers has the numbers of these
    layers, which num_hidden_layers counts too."""
    parts = read_parts(fields, defaults("mllama_text_model"), kv_absent=8)
    fields, facts, layers = parts.fields, parts.facts, parts.facts.num_layers
    if parts.decoder.tied:
        raise fields.wrong("tie_word_embeddings", "The table of embeddings has more rows than there are logits.")
    seeing = set(fields.integers("cross_attention_layers"))
    if not all(0 <= index < layers for index in seeing):
        raise fields.wrong("cross_attention_layers", f"It must name some of the {layers} layers.")
    own = [index for index in range(layers) if index not in seeing]
    if not own:
        raise fields.wrong("cross_attention_layers", "Some layer must see the text itself.")
    turn = parts.rope(theta=500_000.0)
    shape: Decoder = parts.decoder
    unread = tuple(f"model.layers.{index}." for index in sorted(seeing))

    def text(t: Tracer) -> Value:
        rows, width = shape.vocab_size, shape.hidden_size
        table = Tensor(f"{shape.embedding}.weight", (rows + SPECIAL, width), rows=(0, rows))
        x = embed(t.weight("embedding", rows, width, (table,)), t.token_ids, t)
        for index in own:
            with t.layer(f"{shape.layers}.{index}."):
                x = pre_layer(t, parts, x, turn=turn)
        return head(t, shape, x)

    return replace(facts, num_layers=len(own), ignored=(*facts.ignored, *unread)), text
